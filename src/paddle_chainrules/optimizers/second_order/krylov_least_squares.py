"""Least squares by steps that solve with products of the Jacobian and vectors alone.

Nocedal, Wright, "Numerical optimization", 2nd edition, 2006, section 7.1, for how
exact a step is; Björck, "Numerical methods for least squares problems", 1996, section
7.4, for conjugate gradients that carry the residuals; Bekas, Kokiopoulou and Saad, "An
estimator for the diagonal of a matrix", Applied Numerical Mathematics 57, 2007, for
estimates by random signs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from ...transforms.as_programs.jit import jit
from ...transforms.containers.tree import Tree
from ..arguments import checked
from .damped_steps import DampedSearch, DampedStep, Fit, LocalProblem, SearchLimits
from .flat_trees import array_of, flat_params
from .linear_systems import DTYPES
from .reports import Steps, searched
from .vector_functions import VectorFunction


@searched
@checked
def gauss_newton(
    residual: Callable[[Tree], Tree],
    params: Tree,
    *,
    steps: int = 100,
    iterations: int = 100,
    forcing: float = 0.1,
    probes: int = 5,
    seed: int = 0,
    damping: float = 1e-2,
    tolerance_grad: float = 1e-12,
    tolerance_change: float = 1e-12,
    tolerance_step: float = 1e-10,
    on_step: Callable[[int, Tree, float], Any] | None = None,
) -> Steps[Fit]:
    """Minimize a sum of squares in too many parameters for a matrix to fit in memory.

    It does as :func:`levenberg_marquardt`, but solves the system of a step by conjugate
    gradients. An iteration takes a product of the Jacobian and a vector
    (:func:`.jvp.jvp`) and one of its transpose (:func:`.vjp.vjp`), in one program. D
    scales the damping and the iterations. It is an estimate of the diagonal of
    ``J^T J``, the largest so far.

    With fewer than some thousands of residuals use :func:`levenberg_marquardt`, for any
    number of parameters. Its steps are exact, and its matrix has no more rows than
    there are residuals.

    Args:
        residual: a function from a tree of tensors of one dtype to tensors, or a tree
            of them, of any shapes.
        params: the parameters to start from; they stay as they are.
        steps: the most steps.
        iterations: the most iterations of conjugate gradients in a step.
        forcing: the part of the gradient that a step may leave of the linear problem.
            It shrinks as the root of the gradient does.
        probes: the number of products with random signs at each step, which give the
            estimate of the diagonal. With 0, D is one, which depends on the parameters'
            units.
        seed: the seed of these signs.
        damping: the first mu.
        tolerance_grad: the largest entry of the gradient that counts as zero.
        tolerance_change: the decrease relative to the value, both actual and expected,
            that counts as none.
        tolerance_step: the length of a step relative to the parameters', both scaled by
            D, that counts as none.
        on_step: called after each step with the number of steps, the parameters and the
            value. StopIteration ends the search, as SciPy has it.

    Raises:
        TypeError: a parameter is no tensor of float32 or float64, or of another dtype
            than the first; a residual is of another dtype.
        ValueError: residuals or gradient are not finite at the start, there are none,
            or an option is out of its range.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules.optimizers import gauss_newton
        >>> chain = lambda x: [x[0] - 1.0, x[1:] - paddle.tanh(x[:-1]) / 2.0]
        >>> fit = gauss_newton(chain, paddle.zeros([1000], "float64"))
        >>> [round(x, 4) for x in fit.params[:3].tolist()], fit.converged
        ([1.0, 0.3808, 0.1817], True)
    """
    if iterations < 1 or probes < 0 or not 0.0 < forcing < 1.0:
        raise ValueError(
            "gauss_newton takes iterations from 1 on, probes from 0 on, and forcing "
            f"between 0 and 1, and is given {iterations}, {probes} and {forcing}"
        )
    start, nesting = flat_params(params, "gauss_newton", DTYPES)
    function = VectorFunction(residual, nesting, "residual")
    pullback = jit(function.pullback)
    rng = np.random.default_rng(seed)
    diagonal, first_norm = paddle.zeros_like(start), 0.0

    @jit
    def iterate(
        at: Tensor, mu: Tensor, scale: Tensor, v: Tensor, remainder: Tensor, p: Tensor,
        square: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Return an iteration: v, its remainder of residuals, the next direction."""
        q = function.pushforward(at, p)
        length = square / ((q * q).sum() + mu * (p * scale * p).sum())
        v, remainder = v + length * p, remainder - length * q
        slope = function.pullback(at, remainder) - mu * scale * v
        z = slope / scale
        new_square = (slope * z).sum()
        return v, remainder, z + new_square / square * p, new_square

    def scale_at(at: Tensor, example: Tensor) -> Tensor:
        """Return D from the estimates so far; one if nothing depends on a parameter."""
        nonlocal diagonal
        result = paddle.zeros_like(at)
        for _ in range(probes):
            signs = rng.choice([-1.0, 1.0], example.shape)
            u = paddle.to_tensor(signs, example.dtype, example.place)
            result = result + pullback(at, u) ** 2 / probes
        function.derivatives += probes
        diagonal = paddle.maximum(diagonal, result)
        return paddle.where(diagonal > 0.0, diagonal, paddle.ones_like(diagonal))

    def linearize(at: Tensor, residuals: Tensor) -> LocalProblem:
        nonlocal first_norm
        grad, scale = pullback(at, residuals), scale_at(at, residuals)
        function.derivatives += 1
        norm = math.sqrt(float((grad * grad / scale).sum()))
        first_norm = first_norm or norm
        target_norm = norm * min(forcing, math.sqrt(norm / first_norm)) if norm else 0.0

        def step(mu: float) -> DampedStep | None:
            z = -grad / scale
            v, remainder, p = paddle.zeros_like(at), -residuals, z
            damping, square = paddle.full([], mu, at.dtype), -(grad * z).sum()
            for _ in range(iterations):
                function.derivatives += 2
                v, remainder, p, square = iterate(
                    at, damping, scale, v, remainder, p, square
                )
                if not float(square) > target_norm**2:
                    break
            result = array_of(v)
            return DampedStep(result, result)

        return LocalProblem(array_of(grad), array_of(scale), step)

    limits = SearchLimits(steps, tolerance_grad, tolerance_change, tolerance_step)
    return DampedSearch(function, start, linearize, damping, limits).run()
