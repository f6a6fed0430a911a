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

MOST, LARGEST = 2, 512
"""The most pixels that make one along an axis, and the most places of an axis."""


class SourceTap(NamedTuple):
    """A source place and a weight for each place of a result.

    Attributes:
        weights: None where all are one.
    """

    places: Any
    weights: Any


class Axis(NamedTuple):
    """An axis that is resampled."""

    number: int
    taps: Sequence[SourceTap]


@lru_cache(maxsize=64)
def _taps(
    name: str,
    where: tuple[int, int],
    size: int,
    wanted: int,
    scale: float | None,
    how: tuple[Any, ...],
    dtype: str,
) -> tuple[SourceTap, ...]:
    """Return the taps along an axis, as the operator on images itself shows them.

    Those of its gradient are asked for by the gradient's name. Paddle's kernels round
    their weights differently.

    Args:
        where: the number of the axis among those of space, and how many these are.
        size: of the axis.
        wanted: the size to be.
        scale: the factor by which sizes are given, if they are.
        how: the layout, the kind, whether corners are aligned, and where pixels lie.

    Raises:
        NoRule: pixels are made of too many others.
    """
    axis, rank = where

    def along(own: Any, other: Any) -> list[Any]:
        """Return one thing for this axis, and another for each of the others."""
        return [own if k == axis else other for k in range(rank)]

    # Beside axes that change, since Paddle copies an image that stays, whatever its
    # weights are. The first place there is that of the one pixel.
    by = [*[-1] * (3 - rank), *along(wanted, 2), []]
    if scale is not None:
        by = [-1, -1, -1, along(scale, 2.0)]
    given = None, None, None, how[0], *by, *how[1:]

    def images(count: int, other: int) -> Tensor:
        """Return images with one in one place, the first along the other axes."""
        result = np.zeros([count, 1, *along(count, other)], dtype)
        for n in range(count):
            place = n, 0, *along(n, 0)
            result[place] = 1
        return paddle.to_tensor(result)

    first: Any = slice(None), 0, *along(slice(None), 0)
    operator = getattr(RAW, name.removesuffix("_grad"))
    with not_listening(), grad_mode(False):
        result = operator(images(size, 1), *given)
        weights = result.numpy()[first].T
        if name.endswith("_grad"):
            count = result.shape[2 + axis]
            like = paddle.zeros([count, 1, *along(size, 1)], result.dtype)
            g = images(count, 2)
            result = getattr(RAW, name)(like, *given[:3], g, *given[3:])
            weights = result.numpy()[first]
    count = int((weights != 0).sum(1).max())
    if count > MOST:
        raise NoRule("numbers that are made of many; resample them by the operator")
    order = np.argsort(weights == 0, axis=1, kind="stable")[:, :count]
    sorted_weights = np.take_along_axis(weights, order, 1)
    # Where there are fewer, a neighbour counts nothing, as Paddle has it.
    near = np.minimum(order[:, :1] + 1, size - 1)
    order = np.where(sorted_weights != 0, order, near)
    if count == 1 and (sorted_weights == 1).all():
        return (SourceTap(order[:, 0], None),)
    return tuple(SourceTap(order[:, k], sorted_weights[:, k]) for k in range(count))


def _axes(name: str, x: Tensor, how: Sequence[Any]) -> list[Axis]:
    """Return the axes, with the last one first, since it has no gaps in memory.

    Raises:
        NoRule: sizes are in tensors, the image is large, or its channels are last.
    """
    *sizes, layout, depth, height, width, scale, kind, corners, mode = how
    space = x.shape[2:]
    rank = len(space)
    if any(isinstance(part, Tensor | list) for part in sizes):
        raise NoRule("a size that is in a tensor; give numbers")
    if not layout.startswith("NC") or max(space) > LARGEST:
        raise NoRule("channels that are last, or a large image; use the operator")
    wanted = [depth, height, width][3 - rank :]
    scales: list[float | None] = [*scale] if scale else [None] * rank
    if scale:
        wanted = [int(n * np.float32(s)) for n, s in zip(space, scale, strict=True)]
    if [*space] == wanted:
        return []  # Paddle copies it
    dtype, rest = dtype_name(x.dtype), (layout, kind, corners, mode)
    rows = [*zip(space, wanted, scales, strict=True)]
    return [
        Axis(2 + k, _taps(name, (k, rank), *row, rest, dtype))
        for k, row in reversed([*enumerate(rows)])
    ]


def _weighted(x: Tensor, weights: Any, axis: int) -> Tensor:
    if weights is None:
        return x
    column = paddle.to_tensor(weights)
    return x * ops.reshape(column, [-1, *[1] * (x.ndim - 1 - axis)])


def _register_taps(name: str) -> None:
    """Give an operator and its gradient formulas, where they have no others."""
    others = TABLE[name].formula, TABLE[f"{name}_grad"].formula

    def forward(x: Tensor, *how: Any) -> Tensor:
        if others[0] is not None:
            try:
                return others[0](x, *how)
            except NoRule:
                pass
        for axis, taps in _axes(name, x, how):
            parts = (
                _weighted(
                    ops.gather(x, paddle.to_tensor(t.places), axis), t.weights, axis
                )
                for t in taps
            )
            first, *rest = parts
            x = sum(rest, first)
        return x

    def back(x: Tensor, *how: Any) -> Tensor:
        if others[1] is not None:
            try:
                return others[1](x, *how)
            except NoRule:
                pass
        sizes, g, given = how[:3], how[3], how[4:]
        axes = _axes(f"{name}_grad", x, (*sizes, *given))
        for axis, taps in reversed(axes):
            shape = [*g.shape]
            shape[axis] = x.shape[axis]
            like = paddle.zeros(shape, g.dtype)
            parts = [
                ops.gather_grad(
                    like,
                    paddle.to_tensor(t.places),
                    _weighted(g, t.weights, axis),
                    axis,
                )
                for t in taps
            ]
            g = sum(parts[1:], parts[0])
        return g

    TABLE[name].formula, TABLE[f"{name}_grad"].formula = forward, back


_LINEAR = ("linear_interp", "bilinear_interp", "trilinear_interp", "nearest_interp")
for _name in _LINEAR:
    _register_taps(_name)
TAPPED = tuple(f"{name}{end}" for name in _LINEAR for end in ("", "_grad"))
"""Operators that have such formulas."""
