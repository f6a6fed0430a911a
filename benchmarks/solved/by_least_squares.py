"""This package's least squares in float64.

Levenberg's and Marquardt's steps, alike for all parameters and bent by the residuals'
second derivatives; where a matrix would have more than some thousand rows, Gauss's and
Newton's by conjugate gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from optree import tree_leaves

from paddle_chainrules import grad, vmap
from paddle_chainrules.optimizers import gauss_newton, levenberg_marquardt

from .by_functions import Posed
from .clock import Clock, Over
from .problem import Part, Problem

MOST = 3_000
"""Residuals or parameters, whichever are fewer, that a matrix is made of."""


def scale(part: Part) -> float:
    """By which residuals are multiplied, so that their squares are the loss."""
    return float(np.sqrt(part.weight))


def all_at_once(posed: Posed) -> Callable[[Any], list[Any]]:
    """The residuals of all points."""
    pairs = [*zip(posed.problem.parts, posed.given, strict=True)]

    def residual(params: Any) -> list[Any]:
        return [
            missed * (scale(part) / len(missed) ** 0.5)
            for part, given in pairs
            for missed in posed.residuals(params, part, **given)
        ]

    return residual


def by_points(posed: Posed) -> tuple[Callable[[Any], list[Any]], ...]:
    """The same, and their Jacobian as the gradients of each point."""
    pieces = []
    for part, given in zip(posed.problem.parts, posed.given, strict=True):
        for i in range(len(part.equations)):
            by = scale(part) / len(given["targets"][i]) ** 0.5
            single = part._replace(equations=part.equations[i : i + 1])

            def missed(
                params: Any, at: Any, target: Any, part: Any = single, by: float = by
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
    return all_of(lambda f: vmap(f, axes)), all_of(lambda f: vmap(grad(f), axes))


def least_squares(problem: Problem, seed: int, clock: Clock) -> str:
    posed = Posed(problem, seed, "float64")
    look = posed.looking(clock)
    residuals = sum(t.size for given in posed.given for t in given["targets"])
    size = min(residuals, sum(leaf.size for leaf in tree_leaves(posed.params)))
    if size <= MOST:
        residual, jacobian = by_points(posed)
        more = {"jacobian": jacobian, "scaled": False, "geodesic": True}
        method: Any = levenberg_marquardt
    else:
        residual, method, more = all_at_once(posed), gauss_newton, {}
    clock.start()
    clock.over(0, lambda: look(posed.params))
    try:
        fit = method(
            residual,
            posed.params,
            **more,
            steps=10**9,
            on_step=clock.until_over(look),
            tolerance_grad=0.0,
            tolerance_change=0.0,
            tolerance_step=0.0,
        )
    except Over:
        return method.__name__
    clock.last(fit.steps, lambda: look(fit.params))
    return f"{method.__name__} ended by itself: {fit.reason}"
