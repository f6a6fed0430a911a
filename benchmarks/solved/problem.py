"""What all sides are told of a problem: equations, points, net, and its solution.

An equation is a function whose arguments are named after what it needs: coordinates
(``x``), outputs of the net (``u``), their derivatives (``u_xx`` is that of u twice by
x), and coefficients that are to be found. What it gives is to be its target, zero where
there is none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray
Columns = Mapping[str, Any]
"""Arrays of a column each, by name."""


class Equation(NamedTuple):
    """A function of named terms, and what it is to be at points [n, d]."""

    of: Callable[..., Any]
    target: Callable[..., Array] | float = 0.0

    @property
    def terms(self) -> tuple[str, ...]:
        return tuple(inspect.signature(self.of).parameters)

    def at(self, terms: Columns) -> Any:
        """What it gives of its terms."""
        return self.of(**{name: terms[name] for name in self.terms})

    def targets(self, points: Array) -> Array:
        """A column [n, 1]."""
        target = self.target
        found = target(*points.T) if callable(target) else target
        return np.broadcast_to(found, len(points)).reshape(-1, 1)


class Part(NamedTuple):
    """Equations that hold at the same points, and their weight in the loss."""

    name: str
    points: Callable[[np.random.Generator], Array]
    equations: tuple[Equation, ...]
    weight: float = 1.0


class Problem(NamedTuple):
    """A problem as its source poses it.

    Attributes:
        source: who posed it, or whose net and points these are.
        inputs: names of the coordinates, one letter each.
        outputs: names of the net's outputs.
        hidden: widths of the hidden layers, with tanh.
        parts: equations inside, at boundaries, of data.
        solution: from points [n, d] to the compared outputs [n, m].
        grid: points where the solution is compared, and their shape for a picture.
        features: of coordinates and a module with sin and cos, the net's inputs.
        conditions: of coordinates, outputs and that module, what meets conditions by
            itself.
        compared: how many of the outputs, from the first on, are compared.
        learnt: coefficients that are to be found: where they start, what they are.
    """

    source: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    hidden: tuple[int, ...]
    parts: tuple[Part, ...]
    solution: Callable[[Array], Array]
    grid: Callable[[], tuple[Array, tuple[int, ...]]]
    features: Callable[[Columns, Any], dict[str, Any]] | None = None
    conditions: Callable[[Columns, Columns, Any], dict[str, Any]] | None = None
    compared: int = 1
    learnt: Mapping[str, tuple[float, float]] = {}

    def net_inputs(self) -> tuple[str, ...]:
        """Names of what the net takes: the coordinates, or features of them."""
        if self.features is None:
            return self.inputs
        return tuple(self.features(dict.fromkeys(self.inputs, np.zeros(1)), np))

    def widths(self) -> list[int]:
        """All of the net's, with those of its inputs and outputs."""
        return [len(self.net_inputs()), *self.hidden, len(self.outputs)]

    def start(self, seed: int) -> list[tuple[Array, Array]]:
        """Of each layer weights [in, out] by Glorot, and biases, in float32."""
        return glorot(self.widths(), seed)

    def drawn(self, seed: int) -> list[Array]:
        """The points of each part, in float64."""
        rng = np.random.default_rng(seed)
        return [part.points(rng) for part in self.parts]

    def derivatives(self, part: Part) -> dict[str, tuple[str, ...]]:
        """What a part's equations need of the net: output, then by what."""
        names = dict.fromkeys(term for each in part.equations for term in each.terms)
        known = {*self.inputs, *self.learnt}
        return {n: named(n) for n in names if n not in known}


def glorot(widths: Sequence[int], seed: int) -> list[tuple[Array, Array]]:
    """What a net of these widths has at first, on all sides."""
    rng = np.random.default_rng((seed, 1))
    return [
        (rng.normal(0.0, (2.0 / (a + b)) ** 0.5, (a, b)).astype("float32"), zeros(b))
        for a, b in pairwise(widths)
    ]


def zeros(size: int) -> Array:
    return np.zeros(size, "float32")


def named(term: str) -> tuple[str, ...]:
    """``u_xx`` as ``("u", "x", "x")``."""
    output, _, by = term.partition("_")
    return (output, *by)


def columns(names: tuple[str, ...], values: Any) -> dict[str, Any]:
    """The columns [n, 1] of an array [n, d]."""
    return {name: values[:, i : i + 1] for i, name in enumerate(names)}


def column(solution: Callable[..., Array]) -> Callable[[Array], Array]:
    """From points [n, d] to [n, 1], by a function of the coordinates."""
    return lambda points: solution(*points.T)[:, None]


class Judge:
    """How far a net is from the solution, at the same points on all sides."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.points, self.shape = problem.grid()
        self.solution = problem.solution(self.points)

    def error(self, found: Array, learnt: Mapping[str, float] | None = None) -> float:
        """The norm of all differences by that of the solution.

        Of coefficients their relative error, where that is larger.
        """
        found = np.asarray(found, "float64")[:, : self.problem.compared]
        if found.shape != self.solution.shape:
            raise ValueError(
                f"outputs [points, compared] are compared, {self.solution.shape} of "
                f"them, and a net gave {found.shape}; give the net's whole result"
            )
        errors = [np.linalg.norm(found - self.solution) / np.linalg.norm(self.solution)]
        for name, (_, true) in self.problem.learnt.items():
            errors.append(abs((learnt or {})[name] - true) / abs(true))
        return float(max(errors))
