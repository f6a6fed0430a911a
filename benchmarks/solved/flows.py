"""The equations of Navier and Stokes in the plane."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import references
from .points import around, grid, inside, where
from .problem import Array, Equation, Part, Problem

PI = np.pi


def momentum(viscosity: float) -> tuple[Equation, ...]:
    """Both components of steady flow, and that nothing is lost."""

    def along(
        u: Any, v: Any, u_x: Any, u_y: Any, u_xx: Any, u_yy: Any, p_x: Any
    ) -> Any:
        return u * u_x + v * u_y + p_x - viscosity * (u_xx + u_yy)

    def across(
        u: Any, v: Any, v_x: Any, v_y: Any, v_xx: Any, v_yy: Any, p_y: Any
    ) -> Any:
        return u * v_x + v * v_y + p_y - viscosity * (v_xx + v_yy)

    return Equation(along), Equation(across), Equation(lambda u_x, v_y: u_x + v_y)


def kovasznay() -> Problem:
    box = (-0.5, 1.0), (-0.5, 1.5)
    reynolds = 20.0
    decay = reynolds / 2 - np.sqrt(reynolds**2 / 4 + 4 * PI**2)

    def u(x: Any, y: Any) -> Any:
        return 1.0 - np.exp(decay * x) * np.cos(2 * PI * y)

    def v(x: Any, y: Any) -> Any:
        return decay / (2 * PI) * np.exp(decay * x) * np.sin(2 * PI * y)

    def p(x: Any, y: Any) -> Any:
        return 0.5 * (1.0 - np.exp(2 * decay * x))

    def solution(points: Array) -> Array:
        return np.stack([each(*points.T) for each in (u, v, p)], 1)

    return Problem(
        "Kovasznay 1948; net and points of DeepXDE's example",
        ("x", "y"),
        ("u", "v", "p"),
        (50, 50, 50, 50),
        (
            Part("inside", inside(box, 2601), momentum(1 / reynolds)),
            Part(
                "sides",
                around(box, 400),
                (Equation(lambda u: u, u), Equation(lambda v: v, v)),
            ),
            Part("outlet", where(box, 0, 1.0, 100), (Equation(lambda p: p, p),)),
        ),
        solution,
        grid(box, (76, 101)),
        compared=3,
    )


def cavity() -> Problem:
    box = (0.0, 1.0), (0.0, 1.0)

    def lid(x: Any, y: Any) -> Any:
        return np.where(y == 1.0, references.lid(x), 0.0)

    return Problem(
        "Shen 1991: a lid without corners, Re 100; net and points of Kovasznay's flow",
        ("x", "y"),
        ("u", "v", "p"),
        (50, 50, 50, 50),
        (
            Part("inside", inside(box, 2601), momentum(0.01)),
            Part(
                "sides",
                around(box, 400),
                (Equation(lambda u: u, lid), Equation(lambda v: v)),
                10.0,
            ),
            Part(
                "corner",
                lambda rng: np.zeros((1, 2)),
                (Equation(lambda p: p),),
            ),
        ),
        references.cavity,
        grid(box, (81, 81)),
        compared=2,
    )
