"""Searches by second-order methods, of functions of Julia; imported when one begins."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle import Tensor

from ..optimizers.second_order.flat_trees import GradientFunction
from ..optimizers.second_order.methods import METHODS, check_options
from ..optimizers.second_order.metric_gradients import natural_gradient
from ..optimizers.second_order.reports import next_step
from ..paddle_side.shared_memory import without_gaps


class GivenGradient(GradientFunction):
    """A function of a vector, with a gradient that Julia computes.

    Args:
        compute: returns value and gradient.
    """

    def __init__(self, compute: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
        self._compute = compute

    def value_and_grad(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Return the value at a vector, and the gradient."""
        return self._compute(point)


class Minimizing:
    """A search, some steps at a time.

    Args:
        method: the method's name.
        fn: a function from a tuple of tensors to a number, or for methods of least
            squares to residuals.
        params: the tensors to begin from, which stay as they are.
        options: the method's.
        steps: the most steps.

    Raises:
        ValueError: there is no such method.
        TypeError: the method has no such option.

    Attributes:
        steps: the number of steps that were taken.
        value: the value there.
        result: what the search has found, once it has ended.
    """

    def __init__(
        self,
        method: str,
        fn: Callable[[Any], Any],
        params: Sequence[Tensor],
        options: Mapping[str, Any],
        steps: int = sys.maxsize,
    ) -> None:
        check_options(method, options)
        kind = METHODS[method]
        function: Any = kind.function
        given = {"steps": steps, **kind.options, **options}
        loss = fn
        if function is natural_gradient:
            given["metric"] = fn
            loss = lambda params: _half_square(fn(params))  # noqa: E731
        self._search = function.__wrapped__(loss, tuple(params), **given)
        self._params, self._most = tuple(params), steps
        self.steps, self.value, self.result = 0, math.nan, None

    def advance(self, most: int, seconds: float) -> bool:
        """Take more steps, up to ``most`` in all; tell whether it has ended."""
        end = time.perf_counter() + seconds
        while self.result is None and self.steps < most:
            self._next()
            if time.perf_counter() > end:
                break
        return self.result is not None

    def finish(self) -> None:
        """End the search."""
        if self.result is None and not self.steps:
            self._next()
        if self.result is None:
            self._next(self.steps < self._most)

    def now(self) -> tuple[Tensor, ...]:
        """Return the parameters."""
        return tuple(map(without_gaps, self._params))

    def outcome(self) -> tuple[float, int, bool, str]:
        """Return the largest entry of the gradient, evaluations, and how it ended."""
        found: Any = self.result
        return found.grad, found.evaluations, found.converged, found.reason

    def _next(self, stop: bool | None = None) -> None:
        try:
            self.steps, self._params, self.value, _ = next_step(self._search, stop)
        except StopIteration as end:
            self.result = end.value
            self._params, self.value = end.value.params, end.value.value
            self.steps = end.value.steps


def _half_square(residuals: Any) -> Tensor:
    parts = residuals if isinstance(residuals, list | tuple) else [residuals]
    sums = [(r**2).sum() for r in parts]
    result: Tensor = sum(sums[1:], sums[0]) / 2.0
    return result
