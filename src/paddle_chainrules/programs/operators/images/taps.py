"""Resampling as weighted sums of a few pixels, along one axis after another."""

from __future__ import annotations

import math
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


class Tap(NamedTuple):
    """A source place and a weight for each place of a result.

    Attributes:
        weights: None where all are one.
    """

    places: Any
    weights: Any


class Axis(NamedTuple):
    """An axis that is resampled."""

    number: int
    taps: Sequence[Tap]


@lru_cache(maxsize=64)
def _taps(
    name: str, size: int, axis: int, rank: int, how: tuple[Any, ...], dtype: str
) -> tuple[Tap, ...]:
    """Return the taps along an axis of an image, as the operator itself shows them.

    Those of its gradient are asked for by the gradient's name. Paddle's kernels round
    their weights differently.

    Raises:
        NoRule: pixels are made of too many others, or the operator does not show them.
    """
    layout, depth, height, width, scale, *kind = how
    shape = [size if k == axis else _least(scale, k) for k in range(rank)]
    rest = None, None, None
    given = layout, depth, height, width, [*scale], *kind
    operator = getattr(RAW, name.removesuffix("_grad"))
    with not_listening(), grad_mode(False):

        def each(count: int, space: Sequence[int]) -> Tensor:
            """Return images with ones in one place along the axis, zero elsewhere."""
            of_one = [count, *[1] * (axis + 1), count, *[1] * (rank - 1 - axis)]
            image = paddle.eye(count).astype(getattr(paddle, dtype)).reshape(of_one)
            return paddle.expand(image, [count, 1, *space])

        image = each(size, shape)
        found = operator(image, *rest, *given)
        if found.shape == image.shape:  # which is copied then, whatever the weights
            raise NoRule("a size that stays along some axes; use the operator")
        if name.endswith("_grad"):
            around = found.shape[2:]
            count = around[axis]
            like = paddle.zeros([count, 1, *shape], found.dtype)
            g = each(count, around)
            found = getattr(RAW, name)(like, *rest, g, *given).numpy()
            shares = math.prod(around) // count
            weights = np.moveaxis(found, 2 + axis, 1).reshape(count, size, -1)
            weights = weights.sum(2) / shares
        else:  # they are the same everywhere along the other axes
            rows = np.moveaxis(found.numpy(), 2 + axis, 1)
            weights = rows.reshape(size, rows.shape[1], -1)[..., 0].T
    count = int((weights != 0).sum(1).max())
    if count > MOST:
        raise NoRule("numbers that are made of many; resample them by the operator")
    order = np.argsort(weights == 0, axis=1, kind="stable")[:, :count]
    sorted_weights = np.take_along_axis(weights, order, 1)
    # Where there are fewer, a neighbour counts nothing, as Paddle has it.
    near = np.minimum(order[:, :1] + 1, size - 1)
    order = np.where(sorted_weights != 0, order, near)
    if count == 1 and (sorted_weights == 1).all():
        return (Tap(order[:, 0], None),)
    return tuple(Tap(order[:, k], sorted_weights[:, k]) for k in range(count))


def _least(scale: Sequence[float], axis: int) -> int:
    """Return a small size that changes if it is resampled, if any does."""
    if not scale:
        return 1
    factor = np.float32(scale[axis])
    some = [n for n in range(1, LARGEST) if int(n * factor) >= 1]
    return next((n for n in some if int(n * factor) != n), some[0])


def _stays(space: Sequence[int], how: Sequence[Any]) -> bool:
    """Tell whether the size is the same, so that Paddle copies the image."""
    *_, depth, height, width, scale, _, _, _ = how
    if scale:
        wanted = [int(n * np.float32(s)) for n, s in zip(space, scale, strict=True)]
    else:
        wanted = [depth, height, width][3 - len(space) :]
    return [*space] == wanted


def _axes(name: str, x: Tensor, how: Sequence[Any]) -> list[Axis]:
    """Return the axes, with the last one first, since it has no gaps in memory.

    Raises:
        NoRule: sizes are in tensors, the image is large, or its channels are last.
    """
    *sizes, layout, depth, height, width, scale, kind, corners, mode = how
    space = x.shape[2:]
    if any(isinstance(part, Tensor | list) for part in sizes):
        raise NoRule("a size that is in a tensor; give numbers")
    if not layout.startswith("NC") or max(space) > LARGEST:
        raise NoRule("channels that are last, or a large image; use the operator")
    if _stays(space, how):
        return []
    key = layout, depth, height, width, tuple(scale or ()), kind, corners, mode
    dtype = dtype_name(x.dtype)
    return [
        Axis(2 + k, _taps(name, n, k, len(space), key, dtype))
        for k, n in reversed([*enumerate(space)])
    ]


def _weighted(x: Tensor, weights: Any, axis: int) -> Tensor:
    if weights is None:
        return x
    column = paddle.to_tensor(weights)
    return x * ops.reshape(column, [-1, *[1] * (x.ndim - 1 - axis)])


def _put(name: str) -> None:
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
    _put(_name)
TAPPED = tuple(f"{name}{end}" for name in _LINEAR for end in ("", "_grad"))
"""Operators that have such formulas."""
