"""Eigenvalues, singular values, and their vectors.

A result that depends on the phase of a vector has no derivative. Where eigenvalues are
equal, gradients that depend on their vectors are not finite.

Sources: Giles, as in :mod:`.solving`; Wan and Zhang, "Automatic differentiation for
complex valued SVD", 2019; the matrix rules of PyTorch.
"""

from __future__ import annotations

from typing import Any

from paddle import Tensor

from ....paddle_side.rules.derivatives import linear_algebra as linear_algebra_rules
from ....paddle_side.rules.derivatives.formulas import refuse_derivative
from ....paddle_side.rules.wrong_at_values import has_equal_eigenvalues, refuse_where
from ..axes import MATRICES, Matrices
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
    transposed,
)

define(
    "eigh",
    "x UPLO",
    axes=MATRICES,
    tape=refuse_where("eigh", "of a batch, or of equal values", has_equal_eigenvalues),
)
define(
    "eigvalsh",
    "x uplo is_test",
    axes=MATRICES,
    tape=refuse_where(
        "eigvalsh", "of a batch, or of equal values", has_equal_eigenvalues
    ),
)
define(
    "eig",
    tape=refuse_where("eig", "of a batch, or of equal values", has_equal_eigenvalues),
)
define("eigvals", tape=refuse_derivative("eigvals"))
define(
    "svd",
    "x full_matrices",
    defaults={"full_matrices": False},
    axes=MATRICES,
    tape=linear_algebra_rules.svd,
)
define("svdvals", axes=Matrices(batches=False))
define("matrix_rank", differentiable=())
define("matrix_rank_tol", differentiable=())
define("matrix_rank_atol_rtol", differentiable=())
holds_for_complex("eigh", "eigvalsh", "eig", "eigvals", "svd")


def _gaps(values: Tensor) -> Tensor:
    """Return ``values[j] - values[i]``, and one on the diagonal."""
    result = column_factors(values) - ops.unsqueeze(values, [-1])
    return result + identity_like(values, values.shape[-1])


def _off_diagonal(x: Tensor) -> Tensor:
    return x - diagonal_matrices(diagonal(x))


def _skew(x: Tensor) -> Tensor:
    return x - adjoint(x)


def _scaled_product(left: Tensor, values: Any, inner: Any, right: Tensor) -> Tensor:
    """Return ``left (diagonal of the values + inner) right``, where None is zero."""
    result = None if values is None else left * column_factors(values)
    if inner is not None:
        product = chained_product(left, inner)
        result = product if result is None else result + product
    assert result is not None
    return chained_product(result, right)


@reverse_of("eigh")
def _eigh_reverse(call: Call) -> list[Any]:
    values, vectors = call.outputs
    values_grad, vectors_grad = call.cotangents
    inner = None
    if vectors_grad is not None:
        rotations = _off_diagonal(
            _skew(chained_product(adjoint(vectors), vectors_grad))
        )
        inner = rotations / (_gaps(values) * 2.0)
    return [_scaled_product(vectors, values_grad, inner, adjoint(vectors)), None]


@formula_of("eigvalsh", keeps_kernel=True)
def _eigvalsh_formula(x: Tensor, uplo: str, is_test: bool) -> Any:
    return ops.eigh(x, uplo)


@reverse_of("eig")
def _eig_reverse(call: Call) -> list[Any]:
    values, vectors = call.outputs
    values_grad, vectors_grad = call.cotangents
    adjoint_vectors, inner = adjoint(vectors), None
    if vectors_grad is not None:
        rotations = chained_product(adjoint_vectors, vectors_grad)
        lengths = diagonal(rotations)
        lengths = (lengths + conj(lengths)) * 0.5
        rotations = _off_diagonal(
            rotations
            - chained_product(adjoint_vectors, vectors * column_factors(lengths))
        )
        inner = rotations / conj(_gaps(values))
    return [
        _scaled_product(
            ops.inverse(adjoint_vectors), values_grad, inner, adjoint_vectors
        )
    ]


@reverse_of("eigvals")
def _eigvals_reverse(call: Call) -> list[Any]:
    values, vectors = ops.eig(transposed(call.args[0]))  # whose order it mostly has
    matching = _match_values(call.out.detach(), values.detach())
    values_grad = ops.squeeze(
        chained_product(column_factors(call.cotangent), matching), [-2]
    )
    adjoint_vectors = adjoint(vectors)
    return [
        transposed(
            _scaled_product(
                ops.inverse(adjoint_vectors), values_grad, None, adjoint_vectors
            )
        )
    ]


def _match_values(result: Tensor, candidates: Tensor) -> Tensor:
    """Return a matrix that maps each result to the candidate nearest to it."""
    distances = ops.abs(ops.unsqueeze(result, [-1]) - column_factors(candidates))
    nearest = ops.cast(distances == ops.min(distances, [-1], True), distances.dtype)
    is_in_place = ops.unsqueeze(diagonal(nearest), [-1])  # in the same place
    shared = nearest / ops.sum(nearest, [-1], None, True)
    return ops.cast(
        is_in_place * identity_like(distances, distances.shape[-1])
        + (1.0 - is_in_place) * shared,
        result.dtype,
    )


@reverse_of("svd")
def _svd_reverse(call: Call) -> list[Any]:
    x, full_matrices = call.args
    u, s, vh = call.outputs
    u_grad, s_grad, vh_grad = call.cotangents
    m, n = x.shape[-2:]
    k = min(m, n)
    if full_matrices and m != n:
        if (u_grad if m > n else vh_grad) is not None:
            raise NoRule(
                "vectors that the matrix does not determine; use full_matrices=False"
            )
        u, vh = slice_axis(u, -1, 0, k), slice_axis(vh, -2, 0, k)
    inner, outer_terms, gaps = None, [], _gaps(s * s)
    if u_grad is not None:
        rotations = chained_product(adjoint(u), u_grad)
        inner = _off_diagonal(_skew(rotations)) / gaps * column_factors(s)
        if x.is_complex():
            inner = inner + diagonal_matrices(diagonal(_skew(rotations)) / (s * 2.0))
        if m > k:
            outer_terms.append(
                chained_product(
                    (u_grad - chained_product(u, rotations)) / column_factors(s), vh
                )
            )
    if vh_grad is not None:
        rotations = chained_product(vh, adjoint(vh_grad))
        rows = ops.unsqueeze(s, [-1])
        through_vh = _off_diagonal(_skew(rotations)) / gaps * rows
        inner = through_vh if inner is None else inner + through_vh
        if n > k:
            across = vh_grad - chained_product(adjoint(rotations), vh)
            outer_terms.append(chained_product(u, across / rows))
    total = _scaled_product(u, s_grad, inner, vh)
    for term in outer_terms:
        total = total + term
    return [total, None]


@formula_of("svdvals", keeps_kernel=True)
def _svdvals_formula(x: Tensor) -> Tensor:
    return ops.svd(x, False)[1]
