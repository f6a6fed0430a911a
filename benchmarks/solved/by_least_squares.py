"""This package's least squares in float64.

Levenberg's and Marquardt's steps, or, where a matrix would have more than some thousand
rows, Gauss's and Newton's by conjugate gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from optree import tree_leaves

from paddle_chainrules import grad, vmap
from paddle_chainrules.optimizers import gauss_newton, levenberg_marquardt

from .by_functions import Posed
from .clock import Clock
from .problem import Problem

MOST = 3_000
"""Residuals or parameters, whichever are fewer, that a matrix is made of."""


class Over(Exception):
    """The time is over."""


def least_squares(problem: Problem, seed: int, clock: Clock) -> str:
    """Residuals at all points; the Jacobian as the gradients of each point."""
    posed = Posed(problem, seed, "float64")
    look = posed.looking(clock)
    pieces = []
    for part, given in zip(problem.parts, posed.given, strict=True):
        for i in range(len(part.equations)):
            scale = float(np.sqrt(part.weight / len(given["targets"][i])))
            single = part._replace(equations=part.equations[i : i + 1])

            def missed(
                params: Any, at: Any, target: Any, part: Any = single, by: float = scale
            ) -> Any:
                row = {name: value.reshape([1, 1]) for name, value in at.items()}
                found = posed.residuals(params, part, row, [target.reshape([1, 1])])
                return by * found[0].sum()

            pieces.append((missed, given["at"], given["targets"][i]))

    def all_of(made: Any) -> Any:
        def of(params: Any) -> list[Any]:
            return [made(f)(params, at, target) for f, at, target in pieces]

        return of

    axes = None, 0, 0
    residual = all_of(lambda f: vmap(f, axes))
    jacobian = all_of(lambda f: vmap(grad(f), axes))

    def on_step(step: int, params: Any, _: float) -> None:
        if clock.over(step, lambda: look(params)):
            raise Over

    residuals = sum(target.size for _, _, target in pieces)
    size = min(residuals, sum(leaf.size for leaf in tree_leaves(posed.params)))
    method, more = gauss_newton, {}
    if size <= MOST:
        method, more = levenberg_marquardt, {"jacobian": jacobian}
    clock.start()
    clock.over(0, lambda: look(posed.params))
    try:
        fit = method(
            residual,
            posed.params,
            **more,
            steps=10**9,
            on_step=on_step,
            tolerance_grad=0.0,
            tolerance_change=0.0,
            tolerance_step=0.0,
        )
    except Over:
        return method.__name__
    clock.due = 0.0
    clock.over(fit.steps, lambda: look(fit.params))
    return f"{method.__name__} ended by itself: {fit.reason}"
