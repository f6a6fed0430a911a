"""Arguments of products, norms, and all that is done to matrices."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import paddle
from paddle import Tensor

from .tensors import T, positive, t, z

PIVOTS = T((3,), 3, 4, "int32")


def triangle(*sizes: int) -> T:
    """A matrix whose both triangles are far from singular."""
    return T((*sizes, sizes[-1]), 0.3, 1.2)


def hermitian(x: Tensor) -> Tensor:
    return x + x.mT.conj()


def definite(x: Tensor) -> Tensor:
    return x @ x.mT + paddle.eye(x.shape[-1], dtype=x.dtype)


PREPARED: dict[str, Callable[[Tensor], Tensor]] = {
    "cholesky": definite,
    "eigh": hermitian,
    "eigvalsh": hermitian,
}
"""What is made of the first tensor, for operators that read a triangle of it alone."""


def _by_phases(result: Any) -> Any:
    values, vectors = result
    return values, vectors * vectors[..., :1, :].conj()


def _by_phases_of_both(result: Any) -> Any:
    u, s, vh = result
    return u * u[..., :1, :].conj(), s, u * vh[..., :, :1].mT


COMPARED: dict[str, Callable[[Any], Any]] = {
    "eigh": _by_phases,
    "eigvalsh": lambda result: result[:1],
    "eig": _by_phases,
    "svd": _by_phases_of_both,
}
"""What of a result is looked at, where vectors may have any sign or phase."""

PRODUCTS: dict[str, list[tuple[Any, ...]]] = {
    "mv": [(t(3, 4), t(4))],
    "baddbmm": [
        (t(2, 3, 5), t(2, 3, 4), t(2, 4, 5), 1.0, 1.0),
        (t(2, 3, 5), t(2, 3, 4), t(2, 4, 5), 0.5, 2.0),
        (t(1, 3, 5), t(2, 3, 4), t(2, 4, 5), 1.0, 2.0),
    ],
    "multi_dot": [
        ([t(3, 4), t(4, 2)],),
        ([t(3), t(3, 4), t(4, 2)],),
        ([t(2, 3), t(3, 4), t(4, 5), t(5)],),
    ],
    "kron": [(t(2, 3), t(4, 5)), (t(2, 3), t(4, 3, 2)), (t(2), t(3, 4))],
    "cross": [
        (t(4, 3), t(4, 3), 9),
        (t(4, 3), t(4, 3), -1),
        (t(3, 2, 3), t(3, 2, 3), 9),
        (t(3, 2, 3), t(3, 2, 3), 2),
    ],
    "bilinear": [
        (t(2, 3), t(2, 4), t(5, 3, 4), t(1, 5)),
        (t(2, 3), t(2, 4), t(5, 3, 4), None),
    ],
    "trace": [(t(4, 4), 0, 0, 1), (t(3, 4, 5), 1, 0, 2), (t(3, 4, 5), -1, -1, -3)],
    "einsum": [
        ([t(3, 4), t(4, 5)], "ij,jk->ik"),
        ([t(3, 4), t(4, 5)], "ij,jk->ki"),
        ([t(2, 3, 4), t(2, 4, 5)], "bij,bjk->bk"),
        ([t(2, 3, 4), t(5, 4, 3, 2)], "bij,qjib->q"),
        ([t(3), t(4)], "i,j->ji"),
        ([t(3, 4), t(3, 4)], "ij,ij->"),
        ([t(3, 4), t(3, 4)], "ij,ij->ij"),
        ([t(3, 4), t(5, 2)], "ij,kl->k"),
        ([t(2, 3, 4)], "ijk->ki"),
        ([t(2, 3, 4)], "ijk->"),
        ([t(3, 3)], "ii->i"),
        ([t(3, 3)], "ii->"),
        ([t(2, 3, 3)], "bii->bi"),
        ([t(3, 4), t(4, 4)], "ij,jj->i"),
        ([t(3, 1), t(3, 4)], "ij,ij->i"),
        ([t(2, 1, 3, 4), t(1, 5, 4, 2)], "abij,abjk->abik"),
        ([t(), t(2, 3)], ",ij->ij"),
    ],
}

INF = float("inf")
EACH_P = (0.0, 0.5, 1.0, 1.3, 2.0, 3.0, INF, -INF, -1.0)

NORMS: dict[str, list[tuple[Any, ...]]] = {
    "p_norm": [(t(3, 4), p, 1, 1e-12, False, False) for p in EACH_P]
    + [(t(2, 3, 4), p, -2, 1e-12, True, False) for p in (1.0, 2.0, 2.5, INF)]
    + [(t(3, 4), p, -1, 1e-12, False, True) for p in (2.0, 3.0, INF)]
    + [(t(3, 4), 2.0, -1, 1e-12, True, True)],
    "frobenius_norm": [
        (t(3, 4), [], False, True),
        (t(2, 3, 4), [-2, -1], True, False),
        (t(2, 3, 4), [0, 2], False, False),
    ],
    "dist": [(t(3, 4), t(3, 4), p) for p in EACH_P] + [(t(2, 3, 4), t(4), 2.0)],
    "renorm": [
        (t(3, 4), 2.0, 0, 1.5),
        (t(2, 3, 4), 1.0, 1, 9.0),
        (t(2, 3, 4), 3.0, 2, 1.0),
    ],
}

SOLVING: dict[str, list[tuple[Any, ...]]] = {
    "inverse": [(t(3, 3),), (t(2, 4, 4),)],
    "solve": [
        (t(3, 3), t(3, 4)),
        (t(3, 3), t(3)),
        (t(2, 3, 3), t(2, 3)),
        (t(2, 3, 3), t(3)),
        (t(2, 3, 3), t(3, 4)),
        (t(2, 1, 3, 3), t(5, 3, 2)),
        (t(3, 3, 3), t(3, 3)),
    ],
    "triangular_solve": [
        (triangle(3), t(3, 4), *how)
        for how in itertools.product((True, False), repeat=3)
    ]
    + [(triangle(2, 3), t(3, 4), True, True, False)]
    + [(triangle(3), t(2, 3, 4), False, False, True)],
    "cholesky_solve": [
        (t(3, 4), triangle(3), False),
        (t(3, 4), triangle(3), True),
        (t(2, 3, 4), triangle(3), True),
        (t(2, 3, 4), triangle(2, 3), False),
    ],
    "lu_solve": [
        (t(3, 4), triangle(3), PIVOTS, "N"),
        (t(3, 4), triangle(3), PIVOTS, "T"),
    ],
    "det": [(t(n, n),) for n in (1, 2, 3, 4)]
    + [(t(5, n, n),) for n in (2, 3, 4)]
    + [(T((3, 3), 1.0, 1.0),)],
    "slogdet": [(t(3, 3),), (t(5, 2, 2),)],
    "matrix_exp": [(t(3, 3),), (t(2, 4, 4, low=-5.0, high=4.0),), (t(1, 1),)],
    "matrix_power": [(t(3, 3), n) for n in (0, 1, 2, 3, 5, -1, -2)]
    + [(t(2, 3, 3), -3)],
}

FACTORIZATIONS: dict[str, list[tuple[Any, ...]]] = {
    "cholesky": [(t(3, 3), False), (t(3, 3), True), (t(2, 3, 3), False)],
    "lu": [(t(*shape), True) for shape in ((3, 3), (4, 3), (3, 5), (2, 4, 3))],
    "lu_unpack": [
        (t(3, 3), PIVOTS, True, True),
        (t(5, 3), PIVOTS, True, False),
        (t(3, 4), PIVOTS, True, True),
    ],
    "qr": [
        (t(*shape), mode)
        for shape in ((3, 3), (4, 3), (3, 5), (2, 4, 3))
        for mode in ("reduced", "r")
    ]
    + [(t(3, 3), "complete"), (t(3, 5), "complete")],
    "lstsq": [  # not by gelsy, which has other last places at every call
        (t(5, 3), t(5, 2), 1e-14, "gelsd"),
        (t(3, 5), t(3, 2), 1e-14, "gelsd"),
        (t(3, 3), t(3, 2), 1e-14, "gelss"),
        (t(2, 5, 3), t(2, 5, 4), 1e-14, "gels"),
    ],
}

SPECTRA: dict[str, list[tuple[Any, ...]]] = {
    "eigh": [(t(3, 3), "L"), (t(3, 3), "U"), (t(2, 4, 4), "U")],
    "eigvalsh": [(t(3, 3), "L", False), (t(2, 4, 4), "U", True)],
    "svd": [
        (t(3, 3), False),
        (t(4, 3), False),
        (t(3, 5), False),
        (t(2, 4, 3), False),
        (t(3, 3), True),
    ],
    "svdvals": [(t(4, 3),), (t(2, 3, 5),)],
    "eig": [(t(3, 3),), (t(2, 4, 4),), (z(3, 3),)],
    "eigvals": [(t(3, 3),), (t(2, 4, 4),), (z(3, 3),)],
    "matrix_rank": [(t(4, 3), 0.0, True, False)],
    "matrix_rank_tol": [(t(4, 3), positive(1), True, False)],
    "matrix_rank_atol_rtol": [(t(4, 3), positive(1), positive(1), False)],
}

COMPLEX_TRIANGLE = T((3, 3), 0.3, 1.2, "complex128")

COMPLEX_MATRICES: dict[str, list[tuple[Any, ...]]] = {
    "kron": [(z(2, 3), z(4, 3)), (t(2, 3), z(4, 3))],
    "cross": [(z(4, 3), z(4, 3), 1)],
    "trace": [(z(3, 4, 5), 1, 0, 2)],
    "einsum": [
        ([z(2, 3, 4), z(2, 4, 5)], "bij,bjk->bk"),
        ([z(3, 4), z(3, 4)], "ij,ij->ij"),
        ([z(3, 3)], "ii->i"),
    ],
    "inverse": [(z(3, 3),)],
    "triangular_solve": [
        (COMPLEX_TRIANGLE, z(3, 4), *how)
        for how in itertools.product((True, False), repeat=3)
    ],
    "lu_solve": [(z(3, 4), COMPLEX_TRIANGLE, PIVOTS, how) for how in "NTC"],
    "det": [(z(n, n),) for n in (1, 2, 3, 4)],
    "slogdet": [(z(3, 3),), (z(5, 2, 2),)],
    "matrix_power": [(z(3, 3), 3), (z(3, 3), -2)],
    "lu": [(z(3, 3), True), (z(4, 3), True), (z(3, 5), True)],
    "lu_unpack": [(z(5, 3), PIVOTS, True, False)],
    "qr": [
        (z(*shape), mode)
        for shape in ((3, 3), (4, 3), (3, 5))
        for mode in ("reduced", "r")
    ],
    "eigh": [(z(3, 3), "L"), (z(2, 4, 4), "U")],
    "eigvalsh": [(z(3, 3), "L", False)],
    "svd": [(z(3, 3), False), (z(4, 3), False), (z(2, 3, 5), False)],
}

LINEAR_ALGEBRA = {**PRODUCTS, **NORMS, **SOLVING, **FACTORIZATIONS, **SPECTRA}
for _name, _rows in COMPLEX_MATRICES.items():
    LINEAR_ALGEBRA[_name] = [*LINEAR_ALGEBRA[_name], *_rows]
