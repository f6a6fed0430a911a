"""L-BFGS with a line search, of a function of a tree of parameters.

Nocedal, Wright, "Numerical optimization", 2nd edition, 2006: algorithm 7.4 for the
direction, 3.5 and 3.6 for the length of a step, which has the strong Wolfe conditions.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from paddle import Tensor

from ...paddle_side.autograd.grad_mode import grad_mode
from ...transforms.containers.tree import Tree
from .flat_trees import flat_params, value_and_slope

DECREASE, CURVATURE = 1e-4, 0.9
"""Of the strong Wolfe conditions: how much of the slope a step must gain at least, and
how much of it may be left."""

LONGER = 4.0
"""By which a step is longer that goes down at its end still."""


class Minimum(NamedTuple):
    """What :func:`lbfgs` has found.

    Attributes:
        params: nested as they were given.
        value: of the function there.
        grad: the largest entry of its gradient.
        steps: how many there were.
        evaluations: of the function and its gradient.
        converged: whether a tolerance was met.
        reason: why there are no more steps, in words.
    """

    params: Tree
    value: float
    grad: float
    steps: int
    evaluations: int
    converged: bool
    reason: str


class _Point(NamedTuple):
    """A step's end: its length, the value, the gradient, and the slope along it."""

    length: float
    value: float
    grad: Tensor | None
    slope: float


def lbfgs(
    fn: Callable[[Tree], Tensor],
    params: Tree,
    *,
    steps: int = 100,
    memory: int = 10,
    tolerance_grad: float = 1e-7,
    tolerance_change: float = 1e-9,
    evaluations: int = 25,
    on_step: Callable[[int, Tree, float], Any] | None = None,
) -> Minimum:
    """A minimum of a smooth function, from these parameters on.

    The function is a program (:func:`.jit.jit`), so it has no randomness, and batches
    are all of the data. In float32 a few digits are as far as it goes; use float64
    where more are wanted.

    Args:
        fn: from a tree of tensors of one dtype to one number.
        params: where to start; left as they are.
        steps: at most.
        memory: steps of which changes of the gradient are remembered.
        tolerance_grad: the largest entry of the gradient that is zero.
        tolerance_change: the change of value, or of the largest parameter, that is
            none.
        evaluations: in a step, at most.
        on_step: called after each step with the number of steps, the parameters and the
            value. What it raises ends the search.

    Raises:
        TypeError: a parameter is no tensor of floating point, or of another dtype than
            the first.
        ValueError: the function gives more than one number, or no finite one at the
            start.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules.optimizers import lbfgs
        >>> bowl = lambda x: ((x - 3.0) ** 2).sum()
        >>> lbfgs(bowl, paddle.zeros([2])).params.tolist()
        [3.0, 3.0]
    """
    search = _Search(fn, params, memory, evaluations)
    return search.run(steps, tolerance_grad, tolerance_change, on_step)


class _Search:
    def __init__(
        self, fn: Callable[[Tree], Tensor], params: Tree, memory: int, evaluations: int
    ) -> None:
        self._at, nesting = flat_params(params, "lbfgs")
        self._tree = nesting.tree
        self._memory: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=memory)
        self._most = evaluations
        self._count = 0
        self._fn = value_and_slope(fn, nesting)

    def _evaluate(self, at: Tensor) -> tuple[float, Tensor]:
        self._count += 1
        value, grad = self._fn(at)
        return float(value), grad

    def run(
        self,
        steps: int,
        tolerance_grad: float,
        tolerance_change: float,
        on_step: Callable[[int, Tree, float], Any] | None,
    ) -> Minimum:
        with grad_mode(False):
            value, grad = self._evaluate(self._at)
            if not math.isfinite(value):
                raise ValueError(
                    f"the function is {value} where the search begins; give parameters "
                    "where it is finite"
                )
            done, reason = 0, f"there were {steps} steps"
            converged = False
            while True:
                largest = float(grad.abs().max())
                if largest <= tolerance_grad:
                    converged, reason = True, "the gradient is zero to tolerance_grad"
                    break
                if done == steps:
                    break
                found, direction = self._line(value, grad)
                if found is None or found.grad is None:
                    reason = "no step along the direction goes down far enough"
                    break
                step = direction * found.length
                self._remember(step, found.grad - grad)
                change = abs(value - found.value)
                self._at = self._at + step
                value, grad, done = found.value, found.grad, done + 1
                if on_step is not None:
                    on_step(done, self._tree(self._at), value)
                moved = float(step.abs().max())
                if change < tolerance_change or moved < tolerance_change:
                    converged = True
                    reason = "value or parameters change by less than tolerance_change"
                    break
            tree = self._tree(self._at)
            largest = float(grad.abs().max())
            ends = done, self._count, converged, reason
            return Minimum(tree, value, largest, *ends)

    def _remember(self, step: Tensor, change: Tensor) -> None:
        along = float((step * change).sum())
        if along > 1e-10 * float((change * change).sum()):
            self._memory.append((step, change, 1.0 / along))

    def _direction(self, grad: Tensor) -> Tensor:
        found, factors = -grad, []
        for step, change, scale in reversed(self._memory):
            factor = scale * float((step * found).sum())
            found = found - change * factor
            factors.append(factor)
        if self._memory:
            _, change, scale = self._memory[-1]
            found = found / (scale * float((change * change).sum()))
        for (step, change, scale), factor in zip(
            self._memory, reversed(factors), strict=True
        ):
            found = found + step * (factor - scale * float((change * found).sum()))
        return found

    def _line(self, value: float, grad: Tensor) -> tuple[_Point | None, Tensor]:
        """The end of a step, None where there is none; along the direction."""
        direction = self._direction(grad)
        slope = float((grad * direction).sum())
        if slope >= 0.0 or not math.isfinite(slope):  # rounding has the better of it
            self._memory.clear()
            direction = -grad
            slope = float((grad * direction).sum())
        length = 1.0
        if not self._memory:
            length = min(1.0, 1.0 / float(grad.abs().sum()))
        start = _Point(0.0, value, grad, slope)
        return self._wolfe(start, direction, length), direction

    def _point(self, direction: Tensor, length: float) -> _Point:
        value, grad = self._evaluate(self._at + direction * length)
        return _Point(length, value, grad, float((grad * direction).sum()))

    def _wolfe(self, start: _Point, direction: Tensor, length: float) -> _Point | None:
        """A step with the strong Wolfe conditions, or the lowest that was met."""
        before, last = start, self._count + self._most
        first = True
        while self._count < last:
            here = self._point(direction, length)
            too_far = not _is_lower(here, start) or (
                not first and here.value >= before.value
            )
            if too_far or not math.isfinite(here.value):
                return self._zoom(start, before, here, direction, last)
            if abs(here.slope) <= -CURVATURE * start.slope:
                return here
            if here.slope >= 0.0:
                return self._zoom(start, here, before, direction, last)
            before, length, first = here, length * LONGER, False
        return before if before.length else None

    def _zoom(
        self, start: _Point, low: _Point, high: _Point, direction: Tensor, last: int
    ) -> _Point | None:
        """Between two ends, of which ``low`` is the lower one."""
        while self._count < last:
            length = _between(low, high)
            if length in (low.length, high.length):
                break
            here = self._point(direction, length)
            if not _is_lower(here, start) or here.value >= low.value:
                high = here
                continue
            if abs(here.slope) <= -CURVATURE * start.slope:
                return here
            if here.slope * (high.length - low.length) >= 0.0:
                high = low
            low = here
        return low if low.length else None


def _is_lower(here: _Point, start: _Point) -> bool:
    """Whether a step gains enough; of what is no number it gains nothing."""
    return here.value <= start.value + DECREASE * here.length * start.slope


def _between(one: _Point, other: _Point) -> float:
    """Where the cubic of both values and slopes is lowest, well between the two."""
    low, high = sorted((one.length, other.length))
    middle, margin = (low + high) / 2.0, 0.1 * (high - low)
    if not all(map(math.isfinite, (other.value, other.slope))):
        return middle
    apart = other.length - one.length
    a = one.slope + other.slope - 3.0 * (other.value - one.value) / apart
    square = a * a - one.slope * other.slope
    if square < 0.0:
        return middle
    root = math.copysign(math.sqrt(square), apart)
    below = other.slope - one.slope + 2.0 * root
    if below == 0.0:
        return middle
    found = other.length - apart * (other.slope + root - a) / below
    return min(max(found, low + margin), high - margin)
