"""Arguments of products, norms, and all that is done to matrices."""

from __future__ import annotations

from typing import Any

from .tensors import t

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
    "trace": [
        (t(4, 4), 0, 0, 1),
        (t(3, 4, 5), 1, 0, 2),
        (t(3, 4, 5), -1, -1, -3),
    ],
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

LINEAR_ALGEBRA = {**PRODUCTS, **NORMS}
