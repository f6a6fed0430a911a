"""Damped steps of least squares, for any solver.

Nielsen, "Damping parameter in Marquardt's method", report IMM-REP-1999-05, Technical
University of Denmark, 1999, has the rule for the damping.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import Tensor

from ...transforms.containers.tree import Tree
from .flat_trees import array_of
from .linear_systems import without_warnings
from .reports import STOPPED, Step, Steps, one_line_repr
from .vector_functions import VectorFunction

MIN_GAIN_RATIO = 0.25
"""Least part of the expected decrease that a step must reach for a tolerance to end the
search."""


class Fit(NamedTuple):
    """The result of :func:`levenberg_marquardt` and :func:`gauss_newton`.

    Attributes:
        params: the parameters, nested as they were given.
        value: half the sum of the squares of the residuals at the end.
        grad: the largest entry of its gradient.
        steps: the number of steps.
        evaluations: the number of evaluations of the residuals.
        derivatives: the number of Jacobians and second derivatives along a step, or of
            products of Jacobians with vectors.
        damping: the damping at the end, to go on with.
        converged: whether a tolerance was met.
        reason: why there are no more steps, in words.
    """

    params: Tree
    value: float
    grad: float
    steps: int
    evaluations: int
    derivatives: int
    damping: float
    converged: bool
    reason: str

    def __repr__(self) -> str:
        return one_line_repr(self)


class DampedStep(NamedTuple):
    """A change of the parameters, and that of the linear problem alone, as arrays."""

    move: Any
    linear: Any


class LocalProblem(NamedTuple):
    """The problem near some parameters.

    Attributes:
        grad: the gradient, an array.
        scale: the diagonal of D, an array.
        step: with so much damping; None where there is none.
    """

    grad: Any
    scale: Any
    step: Callable[[float], DampedStep | None]


class SearchLimits(NamedTuple):
    """The limits at which a search ends."""

    steps: int
    grad: float
    change: float
    step: float


class DampedSearch:
    """A search by damped steps; a step that does not go down adds damping."""

    def __init__(
        self,
        residuals: VectorFunction,
        start: Tensor,
        linearize: Callable[[Tensor, Tensor], LocalProblem],
        damping: float,
        limits: SearchLimits,
    ) -> None:
        if not 0.0 <= damping < math.inf:
            raise ValueError(
                f"damping must be a finite number from zero on, and is {damping!r}; "
                "give 0.0 for the least that rounding allows"
            )
        self._fn, self._linearize = residuals, linearize
        eps = float(paddle.finfo(start.dtype).eps)
        self._min_mu, self._max_mu = eps**0.75, eps**-2.0
        self._limits = limits._replace(
            change=max(limits.change, eps) if limits.change else 0.0,
            step=max(limits.step, eps) if limits.step else 0.0,
        )
        self._mu = max(damping, self._min_mu)
        self._point = start

    def _evaluate(self, at: Tensor) -> tuple[float, Tensor]:
        result = self._fn(at)
        return _half_square(result), result

    def run(self) -> Steps[Fit]:
        self._value, self._residuals = self._evaluate(self._point)
        if not math.isfinite(self._value):
            raise ValueError(
                f"half the sum of the residuals' squares is {self._value} where "
                "the search begins; give parameters where it is finite"
            )
        step_count, reason, converged = 0, "", False
        while True:
            problem = self._linearize(self._point, self._residuals)
            largest = float(np.abs(problem.grad).max())
            if not math.isfinite(largest):
                reason, converged = "the Jacobian is not finite there", False
                if not step_count:
                    raise ValueError(
                        f"the gradient is {largest} where the search begins; give "
                        "parameters where derivatives are finite"
                    )
            elif largest <= self._limits.grad:
                reason, converged = "the gradient is zero to tolerance_grad", True
            elif not reason and step_count == self._limits.steps:
                reason = f"there were {step_count} steps"
            if reason:
                break
            has_moved, reason = self._step(problem)
            converged = bool(reason)
            if not has_moved:
                reason = reason or "no step goes down, however short"
                break
            step_count += 1
            tree = self._fn.params.tree(self._point)
            if (yield Step(step_count, tree, self._value, self._mu)):
                reason, converged = reason or STOPPED, bool(reason)
        counts = self._fn.evaluations, self._fn.derivatives
        outcome = step_count, *counts, self._mu, converged, reason
        return Fit(self._fn.params.tree(self._point), self._value, largest, *outcome)

    def _step(self, problem: LocalProblem) -> tuple[bool, str]:
        """Take a step; tell whether there is one, and what tolerance it meets."""
        growth, limits = 2.0, self._limits
        while self._mu < self._max_mu:
            result = problem.step(self._mu)
            if result is not None:
                v = result.linear
                candidate = self._point + paddle.to_tensor(
                    result.move, place=self._point.place
                )
                expected = 0.5 * float(
                    v @ (self._mu * problem.scale * v - problem.grad)
                )
                value, residuals = self._evaluate(candidate)
                gain = self._value - value
                unchanged = max(abs(gain), expected) <= limits.change * self._value
                if gain > 0.0 and expected > 0.0:
                    params_length = _scaled_norm(array_of(self._point), problem.scale)
                    move_length = _scaled_norm(result.move, problem.scale)
                    self._point, self._value, self._residuals = (
                        candidate,
                        value,
                        residuals,
                    )
                    ratio = min(gain / expected, 2.0)
                    reduction = max(1.0 / 3.0, 1.0 - (2.0 * ratio - 1.0) ** 3)
                    self._mu = max(self._mu * reduction, self._min_mu)
                    if unchanged and ratio > MIN_GAIN_RATIO:
                        return True, "the value changes by less than tolerance_change"
                    if (
                        move_length <= limits.step * params_length
                        and ratio > MIN_GAIN_RATIO
                    ):
                        return True, "parameters change by less than tolerance_step"
                    return True, ""
                if unchanged and growth == 2.0:  # what is left is rounding
                    return False, "the value changes by less than tolerance_change"
            self._mu, growth = self._mu * growth, 2.0 * growth
        return False, ""


def _half_square(residuals: Tensor) -> float:
    """Return half the sum of squares, in float64."""
    array = array_of(residuals).astype("float64")
    with without_warnings():
        return 0.5 * float(array @ array)


def _scaled_norm(vector: Any, scale: Any) -> float:
    return math.sqrt(float(vector @ (scale * vector)))
