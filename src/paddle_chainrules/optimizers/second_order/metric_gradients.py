"""Gradients by a metric on the outputs of a net, with a search along them.

Müller and Zeinhofer, "Achieving High Accuracy with PINNs via Energy Natural Gradient
Descent", ICML 2023, arXiv:2302.13163; Martens, "New insights and perspectives on the
natural gradient method", JMLR 21, 2020, for the metric of a loss of outputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from ...transforms.as_programs.jit import jit
from ...transforms.containers.tree import Tree
from ...transforms.derivatives.hessian import hvp
from ...transforms.vmap import vmap
from ..arguments import checked
from .flat_trees import VectorNesting, array_of, flat_params, flat_value_and_grad
from .linear_systems import DTYPES, symmetric_solve, without_warnings
from .quasi_newton import Minimum
from .reports import STOPPED, Step, Steps, searched
from .vector_functions import CHUNK, MatrixFunction, VectorFunction

HALVINGS = tuple(0.5**k for k in range(31))
"""The lengths of a step that the paper tries."""


@searched
@checked
def natural_gradient(
    loss: Callable[[Tree], Tensor],
    params: Tree,
    *,
    metric: Callable[[Tree], Tree] | None = None,
    model: Callable[[Tree], Tree] | None = None,
    jacobian: Callable[[Tree], Tree] | MatrixFunction | None = None,
    steps: int = 100,
    damping: float = 0.0,
    rcond: float | None = None,
    lengths: Sequence[float] = HALVINGS,
    tolerance_grad: float = 1e-12,
    tolerance_change: float = 1e-12,
    on_step: Callable[[int, Tree, float], Any] | None = None,
) -> Steps[Minimum]:
    """Minimize a loss by its gradient in a metric of the parameters.

    A step is the best of ``-length d`` with ``G d = gradient``, d the shortest solution
    of least squares. The metric G comes in one of two ways:

    - ``metric``, a function of the parameters with the Jacobian J: ``G = J^T J``. For a
      variational loss that is the derivative in its energy (the gradient of a net at
      points of quadrature, say, by the roots of the weights), for squares of residuals
      the residuals, where ``length=1`` of half their sum is a step of Gauss-Newton.
    - ``model``, a function of the parameters; the loss is then a function of its value:
      ``G = J^T H J`` with the Hessian H of the loss with respect to the model's
      outputs. For a cross entropy of logits that is the Fisher matrix.

    The matrix of n x n for n parameters and its eigenvalues are NumPy's: up to some
    thousands of parameters. Functions are programs (:func:`.jit.jit`). Use float64.

    Args:
        loss: a function to one number, from parameters, or with ``model`` from its
            outputs.
        params: the parameters to start from, a tree of tensors of one dtype; they stay
            as they are.
        metric: a function from parameters to tensors, or a tree of them.
        model: a function from parameters to the loss's argument.
        jacobian: the Jacobian of metric or model, as for :func:`levenberg_marquardt`.
        steps: the most steps.
        damping: the number that is added to the diagonal of G.
        rcond: eigenvalues of G up to this part of the largest count as zero; n times
            the rounding of the dtype if None.
        lengths: the lengths to try in a step; the one with the least loss is taken.
        tolerance_grad: the largest entry of the gradient that counts as zero.
        tolerance_change: the decrease of the loss, relative to the loss, that counts as
            none.
        on_step: called after each step with the number of steps, the parameters and the
            loss. StopIteration ends the search, as SciPy has it.

    Returns:
        A :class:`Minimum`, whose evaluations are those of the loss.

    Raises:
        TypeError: a parameter is no tensor of float32 or float64, or of another dtype
            than the first; the metric's or the model's value is of another dtype.
        ValueError: not one of metric and model is given; the loss gives more than one
            number; loss, gradient or metric are not finite at the start; damping is
            negative; there are no lengths, or some are not positive.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules.optimizers import natural_gradient
        >>> x = paddle.linspace(0.0, 1.0, 9, "float64")
        >>> model = lambda p: paddle.exp(p[0] * x) + p[1]
        >>> found = natural_gradient(
        ...     lambda y: ((y - paddle.exp(0.5 * x) - 2.0) ** 2).sum(),
        ...     paddle.zeros([2], "float64"),
        ...     model=model,
        ... )
        >>> [round(p, 6) for p in found.params.tolist()]
        [0.5, 2.0]
    """
    if (metric is None) == (model is None):
        raise ValueError(
            f"natural_gradient takes metric or model, and is given "
            f"{'none' if model is None else 'both'} of the two; give metric for a loss "
            "of parameters, model for a loss of outputs"
        )
    if not 0.0 <= damping < math.inf:
        raise ValueError(
            f"damping must be a finite number from zero on, and is {damping!r}; give "
            "0.0 for the shortest solution"
        )
    if not lengths or not all(0.0 < length < math.inf for length in lengths):
        raise ValueError(
            f"lengths must be positive numbers, one at least, and are {lengths!r}; "
            "leave them out for one and its halves"
        )
    start, nesting = flat_params(params, "natural_gradient", DTYPES)
    search = _MetricSearch(loss, metric, model, jacobian, nesting)
    limits = steps, tolerance_grad, tolerance_change
    n = int(start.size)
    cutoff = n * float(paddle.finfo(start.dtype).eps) if rcond is None else rcond
    return search.run(start, lengths, (damping, cutoff), limits)


class _MetricSearch:
    def __init__(
        self,
        loss: Callable[[Tree], Tensor],
        metric: Callable[[Tree], Tree] | None,
        model: Callable[[Tree], Tree] | None,
        jacobian: Callable[[Tree], Tree] | MatrixFunction | None,
        nesting: VectorNesting,
    ) -> None:
        self._loss, self._model, self._tree = loss, model, nesting.tree
        kind, name = (metric, "metric") if model is None else (model, "model")
        assert kind is not None
        self._function = VectorFunction(kind, nesting, name, jacobian)
        self._value = jit(lambda at: self._loss_of_params(nesting.tree(at)))
        self._slope = flat_value_and_grad(self._loss_of_params, nesting)
        self._hessian_products = jit(vmap(self._hessian_product, (None, 0)))

    def _loss_of_params(self, params: Tree) -> Tensor:
        return self._loss(params if self._model is None else self._model(params))

    def _hessian_product(self, outputs: Tensor, direction: Tensor) -> Tensor:
        """Multiply the Hessian of the loss with respect to the outputs by a vector."""
        nest = self._function.outputs.tree
        return hvp(lambda y: self._loss(nest(y)), outputs, direction)

    def _metric_matrix(self, at: Tensor) -> Any:
        outputs = self._function(at)
        jacobian = self._function.jacobian(at)
        if self._model is None:
            return jacobian.T @ jacobian
        rows = paddle.to_tensor(np.ascontiguousarray(jacobian.T), place=at.place)
        blocks = [
            array_of(self._hessian_products(outputs, rows[i : i + CHUNK]))
            for i in range(0, len(rows), CHUNK)
        ]
        result = np.concatenate(blocks) @ jacobian
        return (result + result.T) / 2.0

    def run(
        self,
        at: Tensor,
        lengths: Sequence[float],
        solving: tuple[float, float],
        limits: tuple[int, float, float],
    ) -> Steps[Minimum]:
        steps, tolerance_grad, tolerance_change = limits
        step_count, count, reason, converged = 0, 0, "", False
        while True:
            number, slope = self._slope(at)
            value, largest, count = float(number), float(slope.abs().max()), count + 1
            if not math.isfinite(value + largest):
                reason, converged = (
                    self._not_finite("loss or gradient", step_count),
                    False,
                )
            elif largest <= tolerance_grad:
                reason, converged = "the gradient is zero to tolerance_grad", True
            elif not reason and step_count == steps:
                reason = f"there were {step_count} steps"
            if not reason:
                with without_warnings():
                    matrix = self._metric_matrix(at)
                if not np.isfinite(matrix).all():
                    reason = self._not_finite("metric", step_count)
            if reason:
                break
            result = symmetric_solve(matrix, slope.numpy(), *solving)
            step = paddle.to_tensor(result, place=at.place)
            tried = [float(self._value(at - step * length)) for length in lengths]
            count += len(tried)
            best = int(np.argmin(np.nan_to_num(tried, nan=np.inf)))
            if not tried[best] < value:
                reason = "no length of the step goes down"
                break
            at, step_count = at - step * lengths[best], step_count + 1
            if value - tried[best] <= tolerance_change * abs(value):
                reason = "the loss changes by less than tolerance_change"
                converged = True
            if (yield Step(step_count, self._tree(at), tried[best])):
                reason = reason or STOPPED
        return Minimum(
            self._tree(at), value, largest, step_count, count, converged, reason
        )

    def _not_finite(self, what: str, done: int) -> str:
        """Return a reason to end, or raise an error at the start."""
        if not done:
            raise ValueError(
                f"natural_gradient begins where the {what} is not finite; give "
                "parameters where it is"
            )
        return f"the {what} is not finite there"
