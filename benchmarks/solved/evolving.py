"""Equations in time and one dimension of space."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import references
from .points import around, grid, inside, where
from .problem import Columns, Equation, Part, Problem, column

PI = np.pi


def evolving(
    source: str,
    box: Any,
    hidden: tuple[int, ...],
    parts: tuple[Part, ...],
    solution: Any,
    **more: Any,
) -> Problem:
    """A problem of u in (t, x), compared at 101 times and 201 places."""
    seen = grid(box, (101, 201))
    return Problem(source, ("t", "x"), ("u",), hidden, parts, solution, seen, **more)


def periodic(length: float) -> Any:
    """Sine and cosine of the place instead of it (Dong and Ni 2021)."""

    def features(at: Columns, m: Any) -> dict[str, Any]:
        turn = 2 * PI / length * at["x"]
        return {"t": at["t"], "cos": m.cos(turn), "sin": m.sin(turn)}

    return features


def equation(of: Any, target: Any = 0.0) -> tuple[Equation, ...]:
    return (Equation(of, target),)


def start(box: Any, count: int, value: Any, weight: float = 1.0) -> Part:
    """What u is at first."""
    return Part(
        "start", where(box, 0, 0.0, count), equation(lambda u: u, value), weight
    )


def burgers() -> Problem:
    box = (0.0, 1.0), (-1.0, 1.0)
    nu = 0.01 / PI

    def residual(u: Any, u_t: Any, u_x: Any, u_xx: Any) -> Any:
        return u_t + u * u_x - nu * u_xx

    return evolving(
        "Raissi, Perdikaris, Karniadakis 2019; net and points of DeepXDE's example",
        box,
        (20, 20, 20),
        (
            Part("inside", inside(box, 2540), equation(residual)),
            Part("sides", around(box, 80, (1,)), equation(lambda u: u)),
            start(box, 160, lambda t, x: -np.sin(PI * x)),
        ),
        column(lambda t, x: references.cole_hopf(t, x, nu)),
    )


def allen_cahn() -> Problem:
    box = (0.0, 1.0), (-1.0, 1.0)

    def residual(u: Any, u_t: Any, u_xx: Any) -> Any:
        return u_t - 0.001 * u_xx - 5.0 * (u - u * u * u)

    def conditions(at: Columns, out: Columns, m: Any) -> dict[str, Any]:
        t, x = at["t"], at["x"]
        start = x * x * m.cos(PI * x)
        return {"u": start + t * (1.0 - x * x) * out["u"]}

    return evolving(
        "DeepXDE's example: conditions by the form of the solution, net and points",
        box,
        (20, 20, 20),
        (Part("inside", inside(box, 8000), equation(residual)),),
        references.allen_cahn,
        conditions=conditions,
    )


def korteweg_de_vries() -> Problem:
    box = (0.0, 1.0), (-1.0, 1.0)

    def residual(u: Any, u_t: Any, u_x: Any, u_xxx: Any) -> Any:
        return u_t + u * u_x + 0.0025 * u_xxx

    return evolving(
        "Raissi, Perdikaris, Karniadakis 2019; periodic by features",
        box,
        (32, 32, 32, 32),
        (
            Part("inside", inside(box, 2000), equation(residual)),
            start(box, 200, lambda t, x: np.cos(PI * x), 100.0),
        ),
        references.korteweg_de_vries,
        features=periodic(2.0),
    )


def convection() -> Problem:
    box = (0.0, 1.0), (0.0, 2 * PI)

    def residual(u_t: Any, u_x: Any) -> Any:
        return u_t + 30.0 * u_x

    return evolving(
        "Krishnapriyan et al. 2021, beta = 30; periodic by features",
        box,
        (50, 50, 50, 50),
        (
            Part("inside", inside(box, 1000), equation(residual)),
            start(box, 100, lambda t, x: np.sin(x), 100.0),
        ),
        column(lambda t, x: np.sin(x - 30.0 * t)),
        features=periodic(2 * PI),
    )


def reaction_diffusion() -> Problem:
    box = (0.0, 1.0), (0.0, 2 * PI)

    def residual(u: Any, u_t: Any, u_xx: Any) -> Any:
        return u_t - 3.0 * u_xx - 5.0 * u * (1.0 - u)

    return evolving(
        "Krishnapriyan et al. 2021, nu = 3, rho = 5; periodic by features",
        box,
        (50, 50, 50, 50),
        (
            Part("inside", inside(box, 1000), equation(residual)),
            start(box, 100, lambda t, x: references.bump(x), 10.0),
        ),
        references.reaction_diffusion,
        features=periodic(2 * PI),
    )


def wave() -> Problem:
    box = (0.0, 1.0), (0.0, 1.0)

    def solution(t: Any, x: Any) -> Any:
        slow = np.sin(PI * x) * np.cos(2 * PI * t)
        return slow + 0.5 * np.sin(4 * PI * x) * np.cos(8 * PI * t)

    return evolving(
        "Wang, Yu, Perdikaris 2022, whose net is 500 wide",
        box,
        (64, 64, 64, 64),
        (
            Part(
                "inside",
                inside(box, 1000),
                equation(lambda u_tt, u_xx: u_tt - 4.0 * u_xx),
            ),
            Part("sides", around(box, 200, (1,)), equation(lambda u: u), 1000.0),
            start(box, 200, solution, 1000.0),
            Part("at rest", where(box, 0, 0.0, 200), equation(lambda u_t: u_t), 10.0),
        ),
        column(solution),
    )


def klein_gordon() -> Problem:
    box = (0.0, 10.0), (-1.0, 1.0)

    def solution(t: Any, x: Any) -> Any:
        return x * np.cos(t)

    def source(t: Any, x: Any) -> Any:
        return -x * np.cos(t) + (x * np.cos(t)) ** 2

    return evolving(
        "DeepXDE's example: net, domain and coefficients",
        box,
        (40, 40),
        (
            Part(
                "inside",
                inside(box, 1800),
                equation(lambda u, u_tt, u_xx: u_tt - u_xx + u * u, source),
            ),
            Part("sides", around(box, 60, (1,)), equation(lambda u: u, solution)),
            start(box, 60, solution),
            Part("at rest", where(box, 0, 0.0, 60), equation(lambda u_t: u_t)),
        ),
        column(solution),
    )


def heat_from_data() -> Problem:
    box = (0.0, 1.0), (-1.0, 1.0)

    def solution(t: Any, x: Any) -> Any:
        return np.sin(PI * x) * np.exp(-t)

    def source(t: Any, x: Any) -> Any:
        return (PI**2 - 1.0) * np.exp(-t) * np.sin(PI * x)

    def noisy(t: Any, x: Any) -> Any:
        noise = np.random.default_rng(11).standard_normal(len(x))
        return solution(t, x) + 0.01 * noise

    def residual(u_t: Any, u_xx: Any, k: Any) -> Any:
        return u_t - k * u_xx

    return evolving(
        "DeepXDE's example of an inverse problem; data with noise of 0.01",
        box,
        (32, 32, 32),
        (
            Part("inside", inside(box, 400), equation(residual, source)),
            Part("sides", around(box, 20, (1,)), equation(lambda u: u)),
            start(box, 20, solution),
            Part("data", inside(box, 100), equation(lambda u: u, noisy)),
        ),
        column(solution),
        learnt={"k": (2.0, 1.0)},
    )
