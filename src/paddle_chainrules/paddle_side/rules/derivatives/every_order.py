"""Operators with derivatives of every order, where Paddle's kernels end after a few.

The derivative of each is written in operators that are again of this kind, or that
Paddle differentiates without end (multiply, matmul, add, tanh, exp). They cost more
than Paddle's own, and stand in for these only where derivatives are nested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ...autograd.hooked_layers import HookedLayer


class _SmoothFunction(HookedLayer):
    """``f(x)``, element by element, with the derivative in the same terms."""

    @staticmethod
    def forward(
        ctx: Any,
        value: Callable[[Tensor], Tensor],
        slope: Callable[[Tensor], Tensor],
        x: Tensor,
    ) -> Tensor:
        ctx.slope, ctx.version = slope, x._inplace_version()
        ctx.save_for_backward(x)
        return value(x)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        (x,) = ctx.saved_tensor()
        if x._inplace_version() != ctx.version:
            raise NotImplementedError(
                "a tensor has been written into, whose value is needed for a gradient "
                "that is differentiated once more; write it out of place"
            )
        slope = ctx.slope(x)
        grad: Tensor = cotangent * (slope.conj() if x.is_complex() else slope)
        return grad


class _GatheredColumns(HookedLayer):
    """Columns of a matrix, in another order and as often as one likes."""

    @staticmethod
    def forward(ctx: Any, index: Callable[[], Tensor], x: Tensor) -> Tensor:
        ctx.index, ctx.count = index(), x.shape[1]  # Paddle counts tensors as inputs
        result: Tensor = paddle.index_select(x, ctx.index, 1)
        return result

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        return scatter_columns(cotangent, ctx.index, ctx.count)


class _ScatteredColumns(HookedLayer):
    """The transpose: columns added up at indices among others, which are zero."""

    @staticmethod
    def forward(ctx: Any, index: Callable[[], Tensor], count: int, x: Tensor) -> Tensor:
        ctx.index = index()
        zeros = paddle.zeros([x.shape[0], count], x.dtype)
        if x.is_complex():  # Paddle adds real numbers alone
            args = paddle.as_real(zeros), ctx.index, 1, paddle.as_real(x)
            return paddle.as_complex(paddle.index_add(*args))
        result: Tensor = paddle.index_add(zeros, ctx.index, 1, x)
        return result

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        return gather_columns(cotangent, ctx.index)


def gather_columns(x: Tensor, index: Tensor) -> Tensor:
    """Return ``x[:, index]`` of a matrix."""
    result: Tensor = _GatheredColumns.apply(lambda: index, x)
    return result


def scatter_columns(x: Tensor, index: Tensor, count: int) -> Tensor:
    """Return a matrix of so many columns to which ``x`` is added at ``[:, index]``."""
    result: Tensor = _ScatteredColumns.apply(lambda: index, count, x)
    return result


def embedding(index: Tensor, weight: Tensor, padding: int = -1) -> Tensor:
    """Return rows of a table; those of the padding are zero and have no gradient."""
    result = gather_columns(weight.T, index.reshape([-1])).T
    rows = result.reshape([*index.shape, weight.shape[1]])
    return mask_padding(rows, index, padding)


def mask_padding(rows: Tensor, index: Tensor, padding: int) -> Tensor:
    """Return rows of a table, those of the padding zero and without a gradient."""
    if padding == -1:
        return rows
    is_unpadded = index.unsqueeze(-1) != padding
    result: Tensor = paddle.where(is_unpadded, rows, paddle.zeros_like(rows))
    return result


def sigmoid(x: Tensor) -> Tensor:
    def slope(x: Tensor) -> Tensor:
        # Paddle's kernel rounds complex numbers, of x otherwise than of -x.
        y = sigmoid(x)
        return y * (1 - y if x.is_complex() else sigmoid(-x))

    return _apply_smooth(F.sigmoid, slope, x)


def silu(x: Tensor) -> Tensor:
    return x * sigmoid(x)


def _apply_smooth(
    value: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor], x: Tensor
) -> Tensor:
    result: Tensor = _SmoothFunction.apply(value, slope, x)
    return result
