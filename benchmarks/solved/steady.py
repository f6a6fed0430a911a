"""Equations without time: Poisson's, Helmholtz's, and of beams and plates."""

from __future__ import annotations

from typing import Any

import numpy as np

from .points import around, grid, inside, where
from .problem import Array, Equation, Part, Problem, column

PI = np.pi
LETTERS = tuple("abcdefghij")


def sharp_poisson() -> Problem:
    """A peak of width 0.03, and points where the source is."""
    box = (-1.0, 1.0), (-1.0, 1.0)

    def solution(x: Any, y: Any) -> Any:
        return np.exp(-1000.0 * ((x - 0.5) ** 2 + (y - 0.5) ** 2))

    def source(x: Any, y: Any) -> Any:
        r2 = (x - 0.5) ** 2 + (y - 0.5) ** 2
        return (4e6 * r2 - 4e3) * np.exp(-1000.0 * r2)

    def by_source(rng: np.random.Generator) -> Array:
        """Drawn as the residual of zero has it (Wu et al. 2023, k = c = 1)."""
        pool = rng.uniform(-1.0, 1.0, (100_000, 2))
        size = np.abs(source(*pool.T))
        odds = size / size.mean() + 1.0
        return pool[rng.choice(len(pool), 2000, False, odds / odds.sum())]

    # The source is 4,000 at the peak: residuals in units of that.
    return Problem(
        "Tang, Wan, Yang 2023; points by their residual at first",
        ("x", "y"),
        ("u",),
        (32,) * 6,
        (
            Part(
                "inside",
                by_source,
                (
                    Equation(
                        lambda u_xx, u_yy: (u_xx + u_yy) / 4e3,
                        lambda x, y: source(x, y) / 4e3,
                    ),
                ),
            ),
            Part("sides", around(box, 400), (Equation(lambda u: u, solution),)),
        ),
        column(solution),
        grid(box, (201, 201)),
    )


def helmholtz() -> Problem:
    box = (-1.0, 1.0), (-1.0, 1.0)

    def solution(x: Any, y: Any) -> Any:
        return np.sin(PI * x) * np.sin(4 * PI * y)

    return Problem(
        "McClenny, Braga-Neto 2023; Wang, Teng, Perdikaris 2021",
        ("x", "y"),
        ("u",),
        (50, 50, 50, 50),
        (
            Part(
                "inside",
                inside(box, 1000),
                (
                    Equation(
                        lambda u, u_xx, u_yy: u_xx + u_yy + u,
                        lambda x, y: (1.0 - 17 * PI**2) * solution(x, y),
                    ),
                ),
            ),
            Part("sides", around(box, 400), (Equation(lambda u: u),), 100.0),
        ),
        column(solution),
        grid(box, (101, 101)),
    )


def beam() -> Problem:
    box = ((0.0, 1.0),)
    left, right = where(box, 0, 0.0, 1), where(box, 0, 1.0, 1)

    def solution(x: Any) -> Any:
        return -(x**4) / 24 + x**3 / 6 - x**2 / 4

    return Problem(
        "DeepXDE's example of an Euler beam: net and points",
        ("x",),
        ("u",),
        (20, 20, 20),
        (
            Part(
                "inside",
                inside(box, 12),
                (Equation(lambda u_xxxx: u_xxxx, -1.0),),
            ),
            Part("left", left, (Equation(lambda u: u), Equation(lambda u_x: u_x))),
            Part(
                "right",
                right,
                (Equation(lambda u_xx: u_xx), Equation(lambda u_xxx: u_xxx)),
            ),
        ),
        column(solution),
        grid(box, (201,)),
    )


def plate() -> Problem:
    box = (0.0, 1.0), (0.0, 1.0)
    count = 200

    def solution(x: Any, y: Any) -> Any:
        return np.sin(PI * x) * np.sin(PI * y)

    return Problem(
        "PaddleScience's example of a plate that rests on its sides: net 5 x 20",
        ("x", "y"),
        ("u",),
        (20,) * 5,
        (
            Part(
                "inside",
                inside(box, 1000),
                (
                    Equation(
                        lambda u_xxxx, u_xxyy, u_yyyy: u_xxxx + 2.0 * u_xxyy + u_yyyy,
                        lambda x, y: 4 * PI**4 * solution(x, y),
                    ),
                ),
            ),
            Part(
                "sides at x",
                around(box, count, (0,)),
                (Equation(lambda u: u), Equation(lambda u_xx: u_xx)),
                100.0,
            ),
            Part(
                "sides at y",
                around(box, count, (1,)),
                (Equation(lambda u: u), Equation(lambda u_yy: u_yy)),
                100.0,
            ),
        ),
        column(solution),
        grid(box, (101, 101)),
    )


def ten_dimensions() -> Problem:
    box = ((0.0, 1.0),) * 10

    def solution(*x: Any) -> Any:
        return sum(x[i] * x[i + 1] for i in range(0, 10, 2))

    def laplacian(
        *,
        u_aa: Any,
        u_bb: Any,
        u_cc: Any,
        u_dd: Any,
        u_ee: Any,
        u_ff: Any,
        u_gg: Any,
        u_hh: Any,
        u_ii: Any,
        u_jj: Any,
    ) -> Any:
        first = u_aa + u_bb + u_cc + u_dd + u_ee
        return first + u_ff + u_gg + u_hh + u_ii + u_jj

    def seen() -> tuple[Array, tuple[int, ...]]:
        return inside(box, 4096)(np.random.default_rng(1)), (4096,)

    return Problem(
        "E, Yu 2018, whose net has residual blocks of width 10",
        LETTERS,
        ("u",),
        (40, 40, 40),
        (
            Part("inside", inside(box, 1000), (Equation(laplacian),)),
            Part("sides", around(box, 1000), (Equation(lambda u: u, solution),), 10.0),
        ),
        column(solution),
        seen,
    )
