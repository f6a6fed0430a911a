"""A problem in arrays of a library that has ``jvp``: JAX's, or PyTorch's.

Written by hand, as the documentation of both would have it: with derivatives in forward
mode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .problem import Part, Problem, columns


class Posed:
    """A problem's residuals and its loss, of parameters in the library's arrays.

    Args:
        xp: the module that has ``tanh``, ``sin``, ``cos`` and ``concatenate``.
        jvp: of a function, its arguments and their directions.
        array: makes an array of NumPy's into one of the library's, in its dtype.
    """

    def __init__(
        self, problem: Problem, seed: int, xp: Any, jvp: Any, array: Callable[..., Any]
    ) -> None:
        self.problem, self.xp, self.jvp, self.array = problem, xp, jvp, array
        self.params: dict[str, Any] = {
            "net": [(array(w), array(b)) for w, b in problem.start(seed)]
        }
        for name, (first, _) in problem.learnt.items():
            self.params[name] = array(np.array(first))
        self.directions = [array(row) for row in np.eye(len(problem.inputs))]
        drawn = problem.drawn(seed)
        self.given = [
            (array(points), [array(e.targets(points)) for e in part.equations])
            for part, points in zip(problem.parts, drawn, strict=True)
        ]
        """Of each part the points [n, d], and each equation's targets [n, 1]."""

    def fields(self, params: Any, points: Any) -> dict[str, Any]:
        """Return the outputs by name, [n, 1] each."""
        problem, xp = self.problem, self.xp
        at = columns(problem.inputs, points)
        features = at if problem.features is None else problem.features(at, xp)
        x = xp.concatenate([*features.values()], -1)
        *hidden, last = params["net"]
        for weight, bias in hidden:
            x = xp.tanh(x @ weight + bias)
        out = columns(problem.outputs, x @ last[0] + last[1])
        return out if not problem.conditions else problem.conditions(at, out, xp)

    def along(self, f: Any, axis: int) -> Any:
        """Return the derivative of a function by one coordinate."""

        def slope(x: Any) -> Any:
            direction = self.xp.broadcast_to(self.directions[axis], x.shape)
            return self.jvp(f, (x,), (direction,))[1]

        return slope

    def residuals(self, params: Any, part: Part, points: Any, targets: Any) -> Any:
        """Return what each equation misses its target by, [n, 1] each."""
        problem = self.problem
        terms = columns(problem.inputs, points)
        terms |= {name: params[name] for name in problem.learnt}
        for name, (output, *by) in problem.derivatives(part).items():
            f = lambda x, output=output: self.fields(params, x)[output]  # noqa: E731
            for letter in by:
                f = self.along(f, problem.inputs.index(letter))
            terms[name] = f(points)
        return [
            each.at(terms) - target
            for each, target in zip(part.equations, targets, strict=True)
        ]

    def weighted(self, params: Any) -> list[tuple[float, Any]]:
        """Return all residuals, [n, 1] each, with the weights of their parts."""
        return [
            (part.weight, missed)
            for part, given in zip(self.problem.parts, self.given, strict=True)
            for missed in self.residuals(params, part, *given)
        ]

    def loss(self, params: Any) -> Any:
        return sum(w * (missed**2).mean() for w, missed in self.weighted(params))

    def scaled(self, params: Any) -> list[Any]:
        """Return residuals; the sum of their squares is the loss."""
        return [r * (w / len(r)) ** 0.5 for w, r in self.weighted(params)]
