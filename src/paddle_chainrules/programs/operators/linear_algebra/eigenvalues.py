"""Eigenvalues, singular values, and their vectors.

A result that depends on the phase of a vector has no derivative. Where eigenvalues are
equal, gradients that depend on their vectors are not finite.

Sources: Giles, as in :mod:`.solving`; Wan and Zhang, "Automatic differentiation for
complex valued SVD", 2019; the matrix rules of PyTorch.
"""

from __future__ import annotations

from typing import Any

from paddle import Tensor

from ..axes import MATRICES, Matrices
from ..calls import Call, NoRule
from ..entry import define, formula_of, holds_for_complex, reverse_of
from ..shared import conj, ops
from .adjoints import (
    adjoint,
    chained_product,
    columns,
    diagonal,
    on_diagonal,
    part,
    transposed,
    unit,
)

define("eigh", "x UPLO", axes=MATRICES)
define("eigvalsh", "x uplo is_test", axes=MATRICES)
define("eig")
define("eigvals")
define("svd", "x full_matrices", defaults={"full_matrices": False}, axes=MATRICES)
define("svdvals", axes=Matrices(batches=False))
define("matrix_rank", differentiable=())
define("matrix_rank_tol", differentiable=())
define("matrix_rank_atol_rtol", differentiable=())
holds_for_complex("eigh", "eigvalsh", "eig", "eigvals", "svd")


def _gaps(values: Tensor) -> Tensor:
    """Return ``values[j] - values[i]``, and one on the diagonal."""
    result = columns(values) - ops.unsqueeze(values, [-1])
    return result + unit(values, values.shape[-1])


def _off_diagonal(x: Tensor) -> Tensor:
    return x - on_diagonal(diagonal(x))


def _skew(x: Tensor) -> Tensor:
    return x - adjoint(x)


def _between(left: Tensor, values: Any, inner: Any, right: Tensor) -> Tensor:
    """Return ``left (diagonal of the values + inner) right``, where None is zero."""
    result = None if values is None else left * columns(values)
    if inner is not None:
        more = chained_product(left, inner)
        result = more if result is None else result + more
    assert result is not None
    return chained_product(result, right)


@reverse_of("eigh")
def _eigh_reverse(call: Call) -> list[Any]:
    values, vectors = call.outputs
    by_values, by_vectors = call.cotangents
    inner = None
    if by_vectors is not None:
        turns = _off_diagonal(_skew(chained_product(adjoint(vectors), by_vectors)))
        inner = turns / (_gaps(values) * 2.0)
    return [_between(vectors, by_values, inner, adjoint(vectors)), None]


@formula_of("eigvalsh", keeps_kernel=True)
def _eigvalsh_formula(x: Tensor, uplo: str, is_test: bool) -> Any:
    return ops.eigh(x, uplo)


@reverse_of("eig")
def _eig_reverse(call: Call) -> list[Any]:
    values, vectors = call.outputs
    by_values, by_vectors = call.cotangents
    back, inner = adjoint(vectors), None
    if by_vectors is not None:
        turns = chained_product(back, by_vectors)
        length = diagonal(turns)
        length = (length + conj(length)) * 0.5
        turns = _off_diagonal(turns - chained_product(back, vectors * columns(length)))
        inner = turns / conj(_gaps(values))
    return [_between(ops.inverse(back), by_values, inner, back)]


@reverse_of("eigvals")
def _eigvals_reverse(call: Call) -> list[Any]:
    values, vectors = ops.eig(transposed(call.args[0]))  # whose order it mostly has
    order = _order(call.out.detach(), values.detach())
    by_values = ops.squeeze(chained_product(columns(call.cotangent), order), [-2])
    back = adjoint(vectors)
    return [transposed(_between(ops.inverse(back), by_values, None, back))]


def _order(result: Tensor, others: Tensor) -> Tensor:
    """Return a matrix of ones and zeros that tells which of the others each is."""
    far = ops.abs(ops.unsqueeze(result, [-1]) - columns(others))
    nearest = ops.cast(far == ops.min(far, [-1], True), far.dtype)
    own = ops.unsqueeze(diagonal(nearest), [-1])  # in the same place
    shared = nearest / ops.sum(nearest, [-1], None, True)
    return ops.cast(own * unit(far, far.shape[-1]) + (1.0 - own) * shared, result.dtype)


@reverse_of("svd")
def _svd_reverse(call: Call) -> list[Any]:
    x, full = call.args
    u, s, vh = call.outputs
    by_u, by_s, by_vh = call.cotangents
    m, n = x.shape[-2:]
    k = min(m, n)
    if full and m != n:
        if (by_u if m > n else by_vh) is not None:
            raise NoRule(
                "vectors that the matrix does not determine; use full_matrices=False"
            )
        u, vh = part(u, -1, 0, k), part(vh, -2, 0, k)
    inner, outside, gaps = None, [], _gaps(s * s)
    if by_u is not None:
        turns = chained_product(adjoint(u), by_u)
        inner = _off_diagonal(_skew(turns)) / gaps * columns(s)
        if x.is_complex():
            inner = inner + on_diagonal(diagonal(_skew(turns)) / (s * 2.0))
        if m > k:
            outside.append(
                chained_product((by_u - chained_product(u, turns)) / columns(s), vh)
            )
    if by_vh is not None:
        turns = chained_product(vh, adjoint(by_vh))
        rows = ops.unsqueeze(s, [-1])
        result = _off_diagonal(_skew(turns)) / gaps * rows
        inner = result if inner is None else inner + result
        if n > k:
            across = by_vh - chained_product(adjoint(turns), vh)
            outside.append(chained_product(u, across / rows))
    total = _between(u, by_s, inner, vh)
    for more in outside:
        total = total + more
    return [total, None]


@formula_of("svdvals", keeps_kernel=True)
def _svdvals_formula(x: Tensor) -> Tensor:
    return ops.svd(x, False)[1]
