"""Quasi-Newton methods, of a function of a tree of parameters.

Directions are products with the inverse of a Hessian that is learnt from the steps
(``inverse_hessians.py``); lengths have the strong Wolfe conditions
(``line_search.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from paddle import Tensor

from ...transforms.containers.tree import Tree
from ..arguments import checked
from .flat_trees import GradientFunction, flat_params, flat_value_and_grad
from .inverse_hessians import DenseInverse, InverseHessian, LimitedMemory
from .line_search import LinePoint, strong_wolfe
from .reports import STOPPED, Step, Steps, one_line_repr, searched

UPDATES = "ssbroyden", "ssbfgs", "bfgs"


class Minimum(NamedTuple):
    """The result of :func:`lbfgs` or :func:`bfgs`.

    Attributes:
        params: the parameters, nested as they were given.
        value: the value of the function at the end.
        grad: the largest entry of its gradient.
        steps: the number of steps.
        evaluations: the number of evaluations of the function and its gradient.
        converged: whether a tolerance was met.
        reason: why there are no more steps, in words.
        inverse: what was learnt of the Hessian, to go on with; None of
            :func:`natural_gradient`.
    """

    params: Tree
    value: float
    grad: float
    steps: int
    evaluations: int
    converged: bool
    reason: str
    inverse: Any = None

    def __repr__(self) -> str:
        return one_line_repr(self)


@searched
@checked
def lbfgs(
    fn: Callable[[Tree], Tensor] | GradientFunction,
    params: Tree,
    *,
    steps: int = 100,
    memory: int = 10,
    tolerance_grad: float = 1e-7,
    tolerance_change: float = 1e-9,
    evaluations: int = 25,
    inverse: Any = None,
    on_step: Callable[[int, Tree, float], Any] | None = None,
) -> Steps[Minimum]:
    """Minimize a smooth function, from these parameters on.

    The function is a program (:func:`.jit.jit`), so it has no randomness, and batches
    are all of the data. In float32 it reaches a few digits; use float64 for more.

    Args:
        fn: a function from a tree of tensors of one dtype to one number.
        params: the parameters to start from; they stay as they are.
        steps: the most steps.
        memory: the number of steps whose changes of the gradient are remembered.
        tolerance_grad: the largest entry of the gradient that counts as zero.
        tolerance_change: the change of value, or of the largest parameter, that counts
            as none.
        evaluations: the most evaluations in a step.
        inverse: a :class:`Minimum`'s, to go on where it ended. It learns on.
        on_step: called after each step with the number of steps, the parameters and the
            value. StopIteration ends the search, as SciPy has it.

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
    start = LimitedMemory(memory) if inverse is None else inverse
    search = _QuasiNewtonSearch(fn, params, "lbfgs", start, evaluations)
    return search.run(steps, tolerance_grad, tolerance_change)


@searched
@checked
def bfgs(
    fn: Callable[[Tree], Tensor] | GradientFunction,
    params: Tree,
    *,
    update: Literal["ssbroyden", "ssbfgs", "bfgs"] = "ssbroyden",
    steps: int = 100,
    tolerance_grad: float = 1e-7,
    tolerance_change: float = 1e-9,
    evaluations: int = 25,
    inverse: Any = None,
    on_step: Callable[[int, Tree, float], Any] | None = None,
) -> Steps[Minimum]:
    """Minimize a smooth function with a matrix of all parameters by all.

    The inverse of the Hessian is kept whole: 8 MB in float64 for 1,000 parameters, 800
    MB for 10,000, which each step reads once, and each eighth writes. That pays if many
    steps teach much, as with nets for equations of some thousand parameters, in
    float64. There self-scaled methods reach errors several digits smaller than L-BFGS
    (Urbán, Stefanou, Pons, J. Comput. Phys. 523, 2025).

    Args:
        fn: a function from a tree of tensors of one dtype to one number, as for
            :func:`lbfgs`.
        params: the parameters to start from, best after some steps of Adam; they stay
            as they are.
        update: "ssbroyden" and "ssbfgs", of Broyden's class and BFGS, divide what was
            learnt before by a factor wherever the function is flatter than it
            says (Al-Baali 1998); "bfgs" does not.
        steps: the most steps.
        tolerance_grad: the largest entry of the gradient that counts as zero.
        tolerance_change: the change of value, or of the largest parameter, that counts
            as none.
        evaluations: the most evaluations in a step.
        inverse: a :class:`Minimum`'s, to go on where it ended. It learns on.
        on_step: called after each step with the number of steps, the parameters and the
            value. StopIteration ends the search, as SciPy has it.

    Raises:
        TypeError: a parameter is no tensor of floating point, or of another dtype than
            the first.
        ValueError: the function gives more than one number, or no finite one at the
            start; there is no such update.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules.optimizers import bfgs
        >>> bowl = lambda x: ((x - 3.0) ** 2).sum()
        >>> bfgs(bowl, paddle.zeros([2])).params.tolist()
        [3.0, 3.0]
    """
    if not isinstance(update, str) or update not in UPDATES:
        raise ValueError(
            f"bfgs has the updates {', '.join(UPDATES)}, and is given {update!r}; "
            "name one of them"
        )
    start = DenseInverse(update) if inverse is None else inverse
    search = _QuasiNewtonSearch(fn, params, "bfgs", start, evaluations)
    return search.run(steps, tolerance_grad, tolerance_change)


class _QuasiNewtonSearch:
    def __init__(
        self,
        fn: Callable[[Tree], Tensor] | GradientFunction,
        params: Tree,
        caller: str,
        inverse: InverseHessian,
        evaluations: int,
    ) -> None:
        self._point, nesting = flat_params(params, caller)
        if not isinstance(inverse, LimitedMemory | DenseInverse):
            raise TypeError(
                f"{caller} goes on with the inverse of a Minimum, and is given "
                f"{type(inverse).__name__}; give found.inverse"
            )
        if not (inverse.empty or inverse.size == self._point.size):
            raise ValueError(
                f"{caller} is given {self._point.size} parameters and what was learnt "
                f"of {inverse.size}; leave inverse out"
            )
        self._tree = nesting.tree
        self._inverse = inverse
        self._max_evaluations = evaluations
        self._evaluation_count = 0
        self._fn = flat_value_and_grad(fn, nesting)

    def _evaluate(self, at: Tensor) -> tuple[float, Tensor]:
        self._evaluation_count += 1
        value, grad = self._fn(at)
        return float(value.reshape([])), grad

    def run(
        self,
        steps: int,
        tolerance_grad: float,
        tolerance_change: float,
    ) -> Steps[Minimum]:
        value, grad = self._evaluate(self._point)
        if not (math.isfinite(value) and bool(grad.isfinite().all())):
            raise ValueError(
                f"the function is {value} where the search begins, or its gradient "
                "is not finite; give parameters where it is finite, and that is"
            )
        step_count, reason = 0, f"there were {steps} steps"
        converged = False
        while True:
            largest = float(grad.abs().max())
            if largest <= tolerance_grad:
                converged, reason = True, "the gradient is zero to tolerance_grad"
                break
            if step_count == steps:
                break
            end_point, direction, slope = self._line_search(value, grad)
            if end_point is None:
                reason = "no step along the direction goes down far enough"
                break
            step = direction * end_point.length
            curvature = -(end_point.length**2) * slope
            self._inverse.learn(step, grad, end_point.grad, curvature)
            change = abs(value - end_point.value)
            self._point = self._point + step
            value, grad, step_count = (
                end_point.value,
                end_point.grad,
                step_count + 1,
            )
            is_stopped = yield Step(step_count, self._tree(self._point), value)
            largest_move = float(step.abs().max())
            if min(change, largest_move) < tolerance_change:
                converged = True
                reason = "value or parameters change by less than tolerance_change"
                break
            if is_stopped:
                reason = STOPPED
                break
        tree = self._tree(self._point)
        largest = float(grad.abs().max())
        outcome = step_count, self._evaluation_count, converged, reason
        return Minimum(tree, value, largest, *outcome, self._inverse)

    def _line_search(
        self, value: float, grad: Tensor
    ) -> tuple[LinePoint | None, Tensor, float]:
        """Return the end of a step, None if there is none; the direction; its slope."""
        result, last_evaluation = None, self._evaluation_count + self._max_evaluations
        while result is None:
            direction = -self._inverse(grad)
            slope = float((grad * direction).sum())
            if not (slope < 0.0 and math.isfinite(slope)) and not self._inverse.empty:
                self._inverse.forget()  # rounding has the better of it
                continue
            length = 1.0
            if self._inverse.empty:
                length = min(1.0, 1.0 / float(grad.abs().sum()))
            start = LinePoint(0.0, value, grad, slope)
            evaluations_left = last_evaluation - self._evaluation_count
            if not self._inverse.empty:  # some are for a search that begins anew
                evaluations_left -= evaluations_left // 3
            result = strong_wolfe(
                self._line_function(direction), start, length, evaluations_left
            )
            if self._inverse.empty:
                break
            if result is None:
                self._inverse.forget()
        return result, direction, slope

    def _line_function(self, direction: Tensor) -> Callable[[float], LinePoint]:
        def evaluate(length: float) -> LinePoint:
            value, grad = self._evaluate(self._point + direction * length)
            return LinePoint(length, value, grad, float((grad * direction).sum()))

        return evaluate
