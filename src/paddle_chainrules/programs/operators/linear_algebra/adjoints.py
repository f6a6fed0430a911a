"""Matrices transposed and masked, as the rules of linear algebra need them."""

from __future__ import annotations

from collections.abc import Sequence

import paddle
from paddle import Tensor

from ..shared import conj, ops


def transposed(x: Tensor, first: int = -2, second: int = -1) -> Tensor:
    """Return x with two of its axes exchanged."""
    order = [*range(x.ndim)]
    order[first], order[second] = order[second], order[first]
    return ops.transpose(x, order)


def adjoint(x: Tensor) -> Tensor:
    """Return the conjugate transpose of each matrix."""
    return conj(transposed(x))


def chained_product(x: Tensor, *factors: Tensor) -> Tensor:
    """Multiply matrices, from the left to the right."""
    for factor in factors:
        x = ops.matmul(x, factor, False, False)
    return x


def column_factors(x: Tensor) -> Tensor:
    """Return factors in a shape that multiplies the columns of a matrix."""
    return ops.unsqueeze(x, [-2])


def identity_like(x: Tensor, n: int) -> Tensor:
    """Return the unit matrix of n rows, real and as precise as x."""
    dtype = paddle.float64 if x.dtype == paddle.complex128 else x.dtype
    dtype = paddle.float32 if dtype == paddle.complex64 else dtype
    return paddle.eye(n, dtype=dtype)


def diagonal(x: Tensor) -> Tensor:
    """Return the diagonal of each square matrix."""
    return ops.sum(x * identity_like(x, x.shape[-1]), [-1], None, False)


def diagonal_matrices(x: Tensor) -> Tensor:
    """Return diagonal matrices with these diagonals."""
    return column_factors(x) * identity_like(x, x.shape[-1])


def slice_axis(x: Tensor, axis: int, start: int, end: int) -> Tensor:
    """Return a slice of an axis."""
    return ops.slice(x, [axis % x.ndim], [start], [end], [1], [])


def reordered(x: Tensor, letters: Sequence[str], order: Sequence[str]) -> Tensor:
    """Return x with its axes, named by letters, in another order."""
    perm = [letters.index(letter) for letter in order]
    return x if perm == [*range(x.ndim)] else ops.transpose(x, perm)
