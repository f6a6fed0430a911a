"""Inverses, systems of linear equations, determinants and powers of matrices.

Source: Giles, "An extended collection of matrix derivative results for forward and
reverse mode algorithmic differentiation", 2008.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from ....paddle_side.dtypes import dtype_name
from ....paddle_side.rules import requested_gradients
from ....paddle_side.rules.derivatives.formulas import by_rules
from ....paddle_side.rules.requested_gradients import differentiate_all
from ....paddle_side.rules.wrong_at_values import is_nearly_singular, refuse_where
from ..axes import MATRICES, Matrices
from ..calls import Call
from ..entry import define, formula_of, holds_for_complex, reverse_of
from ..shared import broadcast_gradients, conj, ops, summed_to
from .adjoints import adjoint, chained_product, identity_like, slice_axis, transposed

define("inverse", axes=MATRICES)
define("solve", axes=Matrices(batches=False), tape=differentiate_all("solve"))
define(
    "triangular_solve",
    defaults={"upper": True, "transpose": False, "unitriangular": False},
    axes=MATRICES,
    tape=requested_gradients.triangular_solve,
)
define(
    "cholesky_solve",
    defaults={"upper": False},
    axes=MATRICES,
    tape=requested_gradients.cholesky_solve,
)
define("lu_solve", differentiable=(0, 1), tape=by_rules("lu_solve"))
define(
    "det",
    axes=MATRICES,
    tape=refuse_where("det", "where it is nearly zero", is_nearly_singular),
)
define(
    "slogdet", axes=Matrices(batches=False), tape=by_rules("slogdet", of_complex=True)
)
define(
    "matrix_power",
    axes=Matrices(batches=False),
    tape=by_rules("matrix_power", of_complex=True),
)
holds_for_complex(
    "inverse", "triangular_solve", "lu_solve", "det", "slogdet", "matrix_power"
)


@reverse_of("inverse")
def _inverse_reverse(call: Call) -> list[Any]:
    adjoint_inverse = adjoint(call.out)
    return [-chained_product(adjoint_inverse, call.cotangent, adjoint_inverse)]


@reverse_of("solve")
def _solve_reverse(call: Call) -> list[Any]:
    x, y = call.args
    g, out = call.cotangent, call.out
    if out.ndim < x.ndim:  # right-hand sides are vectors
        g, out = ops.unsqueeze(g, [-1]), ops.unsqueeze(out, [-1])
        y = ops.unsqueeze(y, [-1])
    y_grad = ops.solve(adjoint(x), g)
    x_grad = None
    if 0 in call.wanted:
        x_grad = summed_to(-chained_product(y_grad, adjoint(out)), x)
    return [x_grad, ops.reshape(summed_to(y_grad, y), call.args[1].shape)]


@reverse_of("triangular_solve")
def _triangular_solve_reverse(call: Call) -> list[Any]:
    x, _, upper, transpose, unitriangular = call.args
    out = call.out
    y_grad = ops.triangular_solve(
        conj(x), call.cotangent, upper, not transpose, unitriangular
    )

    def x_grad() -> Tensor:
        result = -chained_product(y_grad, adjoint(out))
        result = transposed(result) if transpose else result
        return triangle(result, upper, unitriangular)

    return [*broadcast_gradients(call, x_grad, lambda: y_grad, None, None, None)]


def triangle(x: Tensor, upper: bool, strict: bool = False) -> Tensor:
    """Return one of the triangles, without the diagonal where it is strict."""
    return ops.triu(x, int(strict)) if upper else ops.tril(x, -int(strict))


@reverse_of("cholesky_solve")
def _cholesky_solve_reverse(call: Call) -> list[Any]:
    _, factor, upper = call.args
    x_grad = ops.cholesky_solve(call.cotangent, factor, upper)

    def factor_grad() -> Tensor:
        half = chained_product(x_grad, adjoint(call.out))
        symmetric = half + adjoint(half)
        triangular = triangle(factor, upper)
        result = (
            chained_product(triangular, symmetric)
            if upper
            else chained_product(symmetric, triangular)
        )
        return triangle(-result, upper)

    return broadcast_gradients(call, lambda: x_grad, factor_grad, None)


@formula_of("lu_solve", keeps_kernel=True)
def _lu_solve_formula(b: Tensor, lu: Tensor, pivots: Tensor, trans: str) -> Tensor:
    order = ops.lu_unpack(lu.detach(), pivots, False, True)[0]
    if trans == "N":
        result = ops.triangular_solve(
            lu, chained_product(transposed(order), b), False, False, True
        )
        return ops.triangular_solve(lu, result, True, False, False)
    lu = conj(lu) if trans == "C" else lu
    result = ops.triangular_solve(lu, b, True, True, False)
    return chained_product(order, ops.triangular_solve(lu, result, False, True, True))


def cofactors(x: Tensor) -> Tensor | None:
    """Return the derivatives of a determinant of up to three rows, of any rank."""
    n = x.shape[-1]
    if n == 1:
        return paddle.ones_like(x)
    if n == 2:
        signs = 2.0 * identity_like(x, 2) - 1.0
        return ops.flip(x, [x.ndim - 2, x.ndim - 1]) * signs
    if n == 3:
        first, second = (ops.roll(x, [-k], [x.ndim - 2]) for k in (1, 2))
        return ops.cross(first, second, x.ndim - 1)
    return None


def _as_matrix(x: Tensor) -> Tensor:
    return ops.unsqueeze(x, [-1, -2])


@reverse_of("det")
def _det_reverse(call: Call) -> list[Any]:
    x, g = call.args[0], call.cotangent
    slopes = cofactors(x)
    if slopes is not None:
        return [_as_matrix(g) * conj(slopes)]
    is_singular = _is_singular(x, call.out)
    singular = ops.expand(_as_matrix(is_singular), x.shape)
    identity = ops.expand(identity_like(x, x.shape[-1]), x.shape)
    adjoint_inverse = adjoint(ops.inverse(ops.where(singular, identity, x)))
    zero = call.out - call.out.detach()
    ones = paddle.ones_like(zero)
    nan_slope = 0.0 * ops.sqrt(ops.where(is_singular, zero, ones))  # its slope is NaN
    slopes = _singular_slopes(x) + _as_matrix(nan_slope)
    slopes = ops.where(singular, slopes, _as_matrix(conj(call.out)) * adjoint_inverse)
    return [_as_matrix(g) * slopes]


def _is_singular(x: Tensor, out: Tensor) -> Tensor:
    """Tell whether a determinant is zero up to rounding."""
    x, out, n = x.detach(), out.detach(), x.shape[-1]
    squares = ops.real(x * conj(x)) if x.is_complex() else x * x
    size = ops.sqrt(ops.sum(squares, [-2, -1], None, False) / n)
    tolerance = 64 * float(np.finfo(dtype_name(size.dtype)).eps)
    return ops.abs(out) <= tolerance * ops.pow(size, float(n))


def _singular_slopes(x: Tensor) -> Tensor:
    """Return conjugate cofactors of matrices of any rank, by singular values.

    They are constants, without a gradient.
    """
    u, values, vh = ops.svd(x.detach(), False)
    n = x.shape[-1]
    other_values = ops.expand(ops.unsqueeze(values, [-2]), [*values.shape, n])
    other_values = ops.where(
        ops.expand(identity_like(values, n) > 0, other_values.shape),
        paddle.ones_like(other_values),
        other_values,
    )
    products = ops.prod(other_values, [-1], False, False)
    phase = conj(ops.det(u) * ops.det(vh))
    scaled_u = u * ops.cast(ops.unsqueeze(products, [-2]), x.dtype)
    return (_as_matrix(phase) * chained_product(scaled_u, vh)).detach()


@reverse_of("slogdet")
def _slogdet_reverse(call: Call) -> list[Any]:
    x, g = call.args[0], call.cotangent
    sign_grad, log_grad = (ops.squeeze(slice_axis(g, 0, k, k + 1), [0]) for k in (0, 1))
    if x.is_complex():  # the phase turns, and the logarithm is a real one
        sign = ops.squeeze(slice_axis(call.out, 0, 0, 1), [0])
        rotation = sign_grad * conj(sign)
        log_grad = (log_grad + conj(log_grad) + rotation - conj(rotation)) * 0.5
    return [_as_matrix(log_grad) * adjoint(ops.inverse(x))]


@formula_of("matrix_power", keeps_kernel=True)
def _matrix_power_formula(x: Tensor, n: int) -> Tensor:
    if n == 0:
        return x * 0.0 + identity_like(x, x.shape[-1])
    return _matrix_power(x, n)


def _matrix_power(x: Tensor, n: int) -> Tensor:
    """Return a power of a matrix by repeated squaring; n is not 0."""
    base = x if n > 0 else ops.inverse(x)
    result: Any = None
    remaining = abs(n)
    while remaining:
        if remaining & 1:
            result = base if result is None else ops.matmul(result, base, False, False)
        remaining >>= 1
        base = ops.matmul(base, base, False, False) if remaining else base
    power: Tensor = result
    return power
