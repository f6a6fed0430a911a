"""Resampling as weighted sums of a few pixels, along one axis after another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import Tensor

from ....paddle_side.autograd.grad_mode import grad_mode
from ....paddle_side.dtypes import dtype_name
from ....paddle_side.interception import RAW
from ....paddle_side.listener import not_listening
from ..calls import NoRule
from ..entry import TABLE
from ..shared import ops
from . import resampling  # noqa: F401  # whose operators are in the table then

MAX_TAPS, MAX_AXIS_SIZE = 2, 512
"""The most source pixels of one pixel along an axis, and the longest axis."""


class SourceTap(NamedTuple):
    """A source index and a weight for each index of a resampled axis.

    Attributes:
        weights: None where all are one.
    """

    indices: Any
    weights: Any


class ResampledAxis(NamedTuple):
    """An axis that is resampled."""

    number: int
    taps: Sequence[SourceTap]


@lru_cache(maxsize=64)
def _source_taps(
    name: str,
    axis_and_rank: tuple[int, int],
    size: int,
    out_size: int,
    scale: float | None,
    attrs: tuple[Any, ...],
    dtype: str,
) -> tuple[SourceTap, ...]:
    """Return the taps along an axis, as the operator on images itself shows them.

    Those of its gradient are asked for by the gradient's name. Paddle's kernels round
    their weights differently.

    Args:
        axis_and_rank: the number of the spatial axis, and how many there are.
        size: of the axis before.
        out_size: of the axis after.
        scale: the factor by which sizes are given, if they are.
        attrs: the layout, the kind, whether corners are aligned, and where pixels lie.

    Raises:
        NoRule: pixels are made of too many others.
    """
    axis, rank = axis_and_rank

    def along(value: Any, other_value: Any) -> list[Any]:
        """Return a list with one value for this axis, and another for all others."""
        return [value if k == axis else other_value for k in range(rank)]

    # Beside axes that change, since Paddle copies an image that stays, whatever its
    # weights are. The first place there is that of the one pixel.
    size_attrs = [*[-1] * (3 - rank), *along(out_size, 2), []]
    if scale is not None:
        size_attrs = [-1, -1, -1, along(scale, 2.0)]
    kernel_attrs = None, None, None, attrs[0], *size_attrs, *attrs[1:]

    def images(count: int, other_value: int) -> Tensor:
        """Return one-hot images, each with its one at another index of the axis."""
        result = np.zeros([count, 1, *along(count, other_value)], dtype)
        for n in range(count):
            index = n, 0, *along(n, 0)
            result[index] = 1
        return paddle.to_tensor(result)

    diagonal: Any = slice(None), 0, *along(slice(None), 0)
    operator = getattr(RAW, name.removesuffix("_grad"))
    with not_listening(), grad_mode(False):
        result = operator(images(size, 1), *kernel_attrs)
        weights = result.numpy()[diagonal].T
        if name.endswith("_grad"):
            count = result.shape[2 + axis]
            image_shape_like = paddle.zeros([count, 1, *along(size, 1)], result.dtype)
            g = images(count, 2)
            result = TABLE[name].run(
                image_shape_like, *kernel_attrs[:3], g, *kernel_attrs[3:]
            )
            weights = result.numpy()[diagonal]
    count = int((weights != 0).sum(1).max())
    if count > MAX_TAPS:
        raise NoRule("numbers that are made of many; resample them by the operator")
    order = np.argsort(weights == 0, axis=1, kind="stable")[:, :count]
    sorted_weights = np.take_along_axis(weights, order, 1)
    # Where there are fewer, a neighbour counts nothing, as Paddle has it.
    neighbour = np.minimum(order[:, :1] + 1, size - 1)
    order = np.where(sorted_weights != 0, order, neighbour)
    if count == 1 and (sorted_weights == 1).all():
        return (SourceTap(order[:, 0], None),)
    return tuple(SourceTap(order[:, k], sorted_weights[:, k]) for k in range(count))


def _resampled_axes(name: str, x: Tensor, attrs: Sequence[Any]) -> list[ResampledAxis]:
    """Return the axes, with the last one first, since it has no gaps in memory.

    Raises:
        NoRule: sizes are in tensors, the image is large, or its channels are last.
    """
    *sizes, layout, depth, height, width, scale, kind, corners, mode = attrs
    space = x.shape[2:]
    rank = len(space)
    if any(isinstance(size, Tensor | list) for size in sizes):
        raise NoRule("a size that is in a tensor; give numbers")
    if not layout.startswith("NC") or max(space) > MAX_AXIS_SIZE:
        raise NoRule("channels that are last, or a large image; use the operator")
    out_sizes = [depth, height, width][3 - rank :]
    scales: list[float | None] = [*scale] if scale else [None] * rank
    if scale:
        out_sizes = [int(n * np.float32(s)) for n, s in zip(space, scale, strict=True)]
    if [*space] == out_sizes:
        return []  # Paddle copies it
    dtype, settings = dtype_name(x.dtype), (layout, kind, corners, mode)
    size_rows = [*zip(space, out_sizes, scales, strict=True)]
    return [
        ResampledAxis(2 + k, _source_taps(name, (k, rank), *size_row, settings, dtype))
        for k, size_row in reversed([*enumerate(size_rows)])
    ]


def _weighted(x: Tensor, weights: Any, axis: int) -> Tensor:
    if weights is None:
        return x
    column = paddle.to_tensor(weights)
    return x * ops.reshape(column, [-1, *[1] * (x.ndim - 1 - axis)])


def _register_taps(name: str) -> None:
    """Give an operator and its gradient formulas, where they have no others."""
    other_formulas = TABLE[name].formula, TABLE[f"{name}_grad"].formula

    def forward(x: Tensor, *attrs: Any) -> Tensor:
        if other_formulas[0] is not None:
            try:
                return other_formulas[0](x, *attrs)
            except NoRule:
                pass
        for axis, taps in _resampled_axes(name, x, attrs):
            terms = (
                _weighted(
                    ops.gather(x, paddle.to_tensor(t.indices), axis), t.weights, axis
                )
                for t in taps
            )
            first, *other_terms = terms
            x = sum(other_terms, first)
        return x

    def backward(x: Tensor, *attrs: Any) -> Tensor:
        if other_formulas[1] is not None:
            try:
                return other_formulas[1](x, *attrs)
            except NoRule:
                pass
        sizes, g, settings = attrs[:3], attrs[3], attrs[4:]
        axes = _resampled_axes(f"{name}_grad", x, (*sizes, *settings))
        for axis, taps in reversed(axes):
            shape = [*g.shape]
            shape[axis] = x.shape[axis]
            like = paddle.zeros(shape, g.dtype)
            terms = [
                ops.gather_grad(
                    like,
                    paddle.to_tensor(t.indices),
                    _weighted(g, t.weights, axis),
                    axis,
                )
                for t in taps
            ]
            g = sum(terms[1:], terms[0])
        return g

    TABLE[name].formula, TABLE[f"{name}_grad"].formula = forward, backward


_LINEAR = ("linear_interp", "bilinear_interp", "trilinear_interp", "nearest_interp")
for _name in _LINEAR:
    _register_taps(_name)
TAPPED = tuple(f"{name}{end}" for name in _LINEAR for end in ("", "_grad"))
"""Operators that have such formulas."""
