"""Cholesky, LU and QR factors, and least squares.

Sources: Murray, "Differentiation of the Cholesky decomposition", 2016; Roberts and
Roberts, "QR and LQ decomposition matrix backpropagation algorithms for square, wide,
and deep matrices", 2020; the matrix rules of PyTorch.
"""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.rules.derivatives import linear_algebra as linear_algebra_rules
from ....paddle_side.rules.derivatives.formulas import by_rules, refuse_derivative
from ..axes import MATRICES
from ..calls import Call, NoRule
from ..entry import define, formula_of, holds_for_complex, reverse_of
from ..shared import conj, ops
from .adjoints import (
    adjoint,
    chained_product,
    column_factors,
    diagonal,
    diagonal_matrices,
    identity_like,
    slice_axis,
)

define("cholesky", "x upper", defaults={"upper": False}, axes=MATRICES)
define("lu", fixed=(1, 2))
define("lu_unpack", differentiable=(0,), fixed=(0,), tape=by_rules("lu_unpack", 0))
define("qr", defaults={"mode": "reduced"}, axes=MATRICES, tape=linear_algebra_rules.qr)
define("lstsq", fixed=(2,), tape=refuse_derivative("lstsq"))
holds_for_complex("lu", "lu_unpack", "qr")


def lower_solve(factor: Tensor, x: Tensor, unitriangular: bool = False) -> Tensor:
    """Return ``factor^-H x``, for a lower triangle."""
    return ops.triangular_solve(conj(factor), x, False, True, unitriangular)


def upper_solve(x: Tensor, factor: Tensor) -> Tensor:
    """Return ``x factor^-H``, for an upper triangle."""
    return adjoint(ops.triangular_solve(factor, adjoint(x), True, False, False))


@reverse_of("cholesky")
def _cholesky_reverse(
    call: Call,
) -> list[Any]:  # of symmetric changes of a symmetric matrix
    factor, g, upper = call.out, call.cotangent, call.args[1]
    if upper:
        factor, g = adjoint(factor), adjoint(g)
    inner = ops.tril(chained_product(adjoint(factor), g), 0)
    inner = inner - diagonal_matrices(diagonal(inner)) * 0.5
    half = lower_solve(factor, adjoint(lower_solve(factor, inner)))
    return [(half + adjoint(half)) * 0.5, None]


@reverse_of("lu")
def _lu_reverse(call: Call) -> list[Any]:
    packed, pivots = call.outputs[:2]
    g = call.cotangent
    m, n = packed.shape[-2:]
    k = min(m, n)
    order = ops.lu_unpack(packed.detach(), pivots, False, True)[0]
    core = slice_axis(slice_axis(packed, -2, 0, k), -1, 0, k)
    lower, upper = ops.tril(core, -1) + identity_like(core, k), ops.triu(core, 0)
    core_grad = slice_axis(slice_axis(g, -2, 0, k), -1, 0, k)
    lower_grad, upper_grad = ops.tril(core_grad, -1), ops.triu(core_grad, 0)
    rest_grad = None
    if m > k:
        below = slice_axis(packed, -2, k, m)
        rest_grad = upper_solve(slice_axis(g, -2, k, m), upper)
        upper_grad = upper_grad - ops.triu(
            chained_product(adjoint(below), rest_grad), 0
        )
    elif n > k:
        beside = slice_axis(packed, -1, k, n)
        rest_grad = lower_solve(lower, slice_axis(g, -1, k, n), True)
        lower_grad = lower_grad - ops.tril(
            chained_product(rest_grad, adjoint(beside)), -1
        )
    inner = ops.tril(chained_product(adjoint(lower), lower_grad), -1)
    inner = inner + ops.triu(chained_product(upper_grad, adjoint(upper)), 0)
    result = upper_solve(lower_solve(lower, inner, True), upper)
    if rest_grad is not None:
        result = ops.concat([result, rest_grad], result.ndim - (2 if m > k else 1))
    return [chained_product(order, result), None]


@formula_of("lu_unpack", keeps_kernel=True)
def _lu_unpack_formula(
    x: Tensor, y: Tensor, unpack_ludata: bool, unpack_pivots: bool
) -> list[Any]:
    m, n = x.shape[-2:]
    k = min(m, n)
    lower = ops.tril(slice_axis(x, -1, 0, k), -1)
    if m == k:
        one = identity_like(x, k)
    else:
        one = ops.concat(
            [identity_like(x, k), paddle.zeros([m - k, k], identity_like(x, k).dtype)],
            0,
        )
    return [None, lower + one, ops.triu(slice_axis(x, -2, 0, k), 0)]


@reverse_of("qr")
def _qr_reverse(call: Call) -> list[Any]:
    x, mode = call.args
    q, r = call.outputs
    q_grad: Any
    r_grad: Any
    q_grad, r_grad = call.cotangents
    m, n = x.shape[-2:]
    if mode == "r":
        q, r = ops.qr(x, "reduced")
    elif mode == "complete" and m > n:
        if q_grad is not None:
            raise NoRule(
                "Q with columns that the matrix does not determine; use mode='reduced'"
            )
        q, r = slice_axis(q, -1, 0, n), slice_axis(r, -2, 0, n)
        r_grad = slice_axis(r_grad, -2, 0, n)
    if n <= m:
        return [_tall_qr_gradient(q, r, q_grad, r_grad), None]
    beside = None if r_grad is None else slice_axis(r_grad, -1, m, n)
    r_grad = None if r_grad is None else slice_axis(r_grad, -1, 0, m)
    if beside is None:
        beside = paddle.zeros_like(slice_axis(x, -1, m, n))
    else:
        through_beside = chained_product(slice_axis(x, -1, m, n), adjoint(beside))
        q_grad = through_beside if q_grad is None else q_grad + through_beside
    result = _tall_qr_gradient(q, slice_axis(r, -1, 0, m), q_grad, r_grad)
    return [ops.concat([result, chained_product(q, beside)], x.ndim - 1), None]


def _tall_qr_gradient(q: Tensor, r: Tensor, q_grad: Any, r_grad: Any) -> Tensor:
    """Return the gradient where there are at least as many rows as columns."""
    inner: Any = None
    if r_grad is not None:
        inner = chained_product(r, adjoint(ops.triu(r_grad, 0)))
    if q_grad is not None:
        projection = chained_product(adjoint(q_grad), q)
        inner = -projection if inner is None else inner - projection
    lower, middle = ops.tril(inner, -1), diagonal(inner)
    middle = (middle + conj(middle)) * 0.5
    result = chained_product(q, lower + adjoint(lower) + diagonal_matrices(middle))
    return upper_solve(result if q_grad is None else result + q_grad, r)


@reverse_of("lstsq")
def _lstsq_reverse(call: Call) -> list[Any]:
    x, y, *_ = call.args
    solution, _, rank, _ = call.outputs
    g, squares_grad, _, values_grad = call.cotangents
    g = paddle.zeros_like(solution) if g is None else g
    if rank._is_initialized():  # without all of its rank there is no derivative
        g = g + _nan_where(rank < min(x.shape[-2:]), g)
    is_wide = x.shape[-2] < x.shape[-1]
    x_grad, y_grad = (_minimum_norm_gradients if is_wide else _least_squares_gradients)(
        x, y, solution, g, squares_grad
    )
    if values_grad is not None:
        u, _, vh = ops.svd(x, False)
        x_grad = x_grad + chained_product(u * column_factors(values_grad), vh)
    return [x_grad, y_grad, None, None]


def _nan_where(bad: Tensor, like: Tensor) -> Tensor:
    nan = paddle.full_like(bad, float("nan"), like.dtype)
    return ops.unsqueeze(ops.where(bad, nan, paddle.zeros_like(nan)), [-1, -2])


def _least_squares_gradients(
    x: Tensor, y: Tensor, solution: Tensor, g: Tensor, squares_grad: Any
) -> tuple[Tensor, Tensor]:
    """Return gradients by both, with at least as many equations as unknowns."""
    q, r = ops.qr(x, "reduced")
    r_solution = ops.triangular_solve(r, g, True, True, False)
    normal_solution = ops.triangular_solve(r, r_solution, True, False, False)
    y_grad, residual = chained_product(q, r_solution), y - chained_product(x, solution)
    if squares_grad is not None:
        y_grad = y_grad + residual * column_factors(squares_grad) * 2.0
    return chained_product(residual, adjoint(normal_solution)) - chained_product(
        y_grad, adjoint(solution)
    ), y_grad


def _minimum_norm_gradients(
    x: Tensor, y: Tensor, solution: Tensor, g: Tensor, _: Any
) -> tuple[Tensor, Tensor]:
    """Return gradients by both, with fewer equations: of the minimum-norm solution."""
    q, r = ops.qr(adjoint(x), "reduced")
    y_grad = ops.triangular_solve(r, chained_product(adjoint(q), g), True, False, False)
    weights = ops.triangular_solve(
        r, chained_product(adjoint(q), solution), True, False, False
    )
    orthogonal = g - chained_product(q, chained_product(adjoint(q), g))
    return chained_product(weights, adjoint(orthogonal)) - chained_product(
        y_grad, adjoint(solution)
    ), y_grad
