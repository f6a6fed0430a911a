"""Formulas of linear algebra whose gradients Paddle gets wrong, or leaves out."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ...dtypes import single
from ...listener import is_plain
from ...watch import RuleContext, is_traced
from .formulas import refuse_derivative

ops: Any = paddle._C_ops


def matmul(
    x: Tensor, y: Any, transpose_x: bool = False, transpose_y: bool = False, **rest: Any
) -> Tensor | None:
    """Multiply stacks with unlike numbers of axes, where Paddle's gradient fails.

    In its forward pass alone, Paddle ignores the transposition of a vector.
    """
    if not isinstance(y, Tensor) or x.ndim == y.ndim or min(x.ndim, y.ndim) == 2:
        return None
    if min(x.ndim, y.ndim) == 1:
        transposed = transpose_x and x.ndim > 1, transpose_y and y.ndim > 1
        if transposed == (transpose_x, transpose_y):
            return None
        result: Tensor = paddle.matmul(x, y, *transposed, **rest)
        return result
    count = max(x.ndim, y.ndim)
    x, y = (t.reshape([1] * (count - t.ndim) + t.shape) for t in (x, y))
    result = paddle.matmul(x, y, transpose_x, transpose_y, **rest)
    return result


def addmm(c: Tensor, x: Tensor, y: Tensor, beta: Any = 1.0, alpha: Any = 1.0) -> Tensor:
    """Return ``beta c + alpha x y``, of factors that are numbers or tensors."""
    return _scaled(ops.matmul(x, y, False, False), alpha) + _scaled(c, beta)


def _scaled(x: Tensor, factor: Any) -> Tensor:
    """Multiply by a number, which Paddle's kernel rounds to float32, or a tensor."""
    if isinstance(factor, Tensor):
        return x * factor
    return x if factor == 1 else x * single(factor)


def qr(operator: Any, context: RuleContext, x: Tensor, mode: str = "reduced") -> Any:
    """Return factors that depend on each other, so that no gradient leaves one out."""
    q, r = operator(x, mode)
    if not is_traced(x) or mode == "r":
        return q, r
    return q + 0 * r.sum(), r + 0 * q.sum()


def svd(
    operator: Any,
    context: RuleContext,
    x: Tensor,
    full_matrices: bool = False,
    **rest: Any,
) -> Any:
    """Decompose complex matrices with each vector's phase; Paddle has their sum.

    Source: Wan and Zhang, "Automatic differentiation for complex valued SVD", 2019.
    """
    if not (x.is_complex() and is_traced(x)):
        return operator(x, full_matrices, **rest)
    if full_matrices and x.shape[-2] > x.shape[-1]:
        return refuse_derivative("svd of complex numbers in full")(
            operator, context, x, True
        )
    u, s, vh = operator(x, full_matrices, **rest)
    u_constant, vh_constant = u.detach(), vh.detach()[..., : s.shape[-1], :]
    partner_overlap = (u_constant.conj() * paddle.matmul(x, vh_constant.mT.conj())).sum(
        -2
    )
    overlap = (u_constant.conj() * u).sum(-2)
    phase_slope = paddle.imag(partner_overlap) / s.detach() - paddle.imag(overlap)
    return (
        u * paddle.complex(paddle.ones_like(phase_slope), phase_slope).unsqueeze(-2),
        s,
        vh,
    )


def unit_triangular_solve(x: Tensor, y: Tensor, upper: bool, transpose: bool) -> Tensor:
    """Solve with a matrix whose diagonal is taken to be ones."""
    strict = paddle.triu(x, 1) if upper else paddle.tril(x, -1)
    matrix = strict + paddle.eye(x.shape[-1], dtype=x.dtype)
    return paddle.linalg.triangular_solve(matrix, y, upper, transpose)


def householder_product(
    operator: Any, context: RuleContext, x: Tensor, tau: Tensor, name: Any = None
) -> Tensor:
    """Return the first columns of a product of reflections; Paddle's writes into ``x``.

    Source: Schreiber and Van Loan, "A storage-efficient WY representation for products
    of Householder transformations", 1989.
    """
    if not (is_plain() or is_traced(x) or is_traced(tau)):
        return operator(x, tau)
    m, n = x.shape[-2:]
    k = tau.shape[-1]
    vectors = paddle.tril(x[..., :k], -1) + paddle.eye(m, k, dtype=x.dtype)
    adjoint = paddle.conj(vectors.mT) if x.is_complex() else vectors.mT
    scales = tau.unsqueeze(-1)
    overlaps = paddle.triu(paddle.matmul(adjoint, vectors), 1)
    identity = paddle.eye(k, dtype=x.dtype)
    inner = paddle.linalg.triangular_solve(
        scales * overlaps + identity, scales * identity, upper=True, unitriangular=True
    )
    update = paddle.matmul(paddle.matmul(vectors, inner), adjoint[..., :n])
    return paddle.eye(m, n, dtype=x.dtype) - update
