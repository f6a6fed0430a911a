"""Least squares by steps that solve with the Jacobian as a matrix.

Marquardt, "An algorithm for least-squares estimation of nonlinear parameters", Journal
of SIAM 11(2), 1963; Moré, "The Levenberg-Marquardt algorithm: implementation and
theory", Lecture Notes in Mathematics 630, 1978, for the scale; Transtrum and Sethna,
"Improvements to the Levenberg-Marquardt algorithm for nonlinear least-squares
minimization", arXiv:1201.5885, 2012, for acceleration.
"""

from __future__ import annotations

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
from .linear_systems import DTYPES, DampedSquares, without_warnings
from .reports import Steps, searched
from .vector_functions import MatrixFunction, VectorFunction

MAX_ACCELERATION_RATIO = 0.75
"""The longest acceleration of a step, beside its velocity."""


@searched
@checked
def levenberg_marquardt(
    residual: Callable[[Tree], Tree],
    params: Tree,
    *,
    steps: int = 100,
    jacobian: Callable[[Tree], Tree] | MatrixFunction | None = None,
    damping: float = 1e-2,
    scaled: bool = True,
    geodesic: bool = False,
    tolerance_grad: float = 1e-12,
    tolerance_change: float = 1e-12,
    tolerance_step: float = 1e-10,
    on_step: Callable[[int, Tree, float], Any] | None = None,
) -> Steps[Fit]:
    """Minimize half the sum of squares of residuals, from these parameters on.

    With the residuals r and their Jacobian J, a row for each, a step solves
    ``(J^T J + mu D) v = -J^T r``, D the largest diagonal of ``J^T J`` so far. If the
    value goes down, mu falls, by how good the linear problem was. Otherwise, or if the
    value is not finite, mu grows and the step is tried anew. A step takes the Jacobian
    and an n x n system for n parameters (m x m for m residuals, if these are fewer).
    NumPy solves the system: up to some thousands of parameters. For more use
    :func:`gauss_newton`.

    Residuals and Jacobian are programs (:func:`.jit.jit`), so they have no randomness.
    Use float64 for accurate results.

    Args:
        residual: a function from a tree of tensors of one dtype to tensors, or a tree
            of them, of any shapes.
        params: the parameters to start from; they stay as they are.
        steps: the most steps.
        jacobian: gives the derivatives of the residuals, nested as these are, each by
            all parameters, of shape ``[*residual.shape, *parameter.shape]``. Without it
            they are taken one by one, in forward mode if there are no more parameters
            than residuals, in reverse mode otherwise. If each residual belongs to a
            point, ``vmap(grad(residual_at_a_point), (None, 0))`` is far quicker.
        damping: the first mu.
        scaled: whether D scales the damping. With False D is one, which depends on the
            parameters' units, and is often far better if these are the weights of a
            net.
        geodesic: bend steps by the second derivative of the residuals along them, which
            follows curved valleys in fewer steps.
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
        ValueError: residuals or Jacobian are not finite at the start, there are none,
            the given Jacobian has other shapes, or the damping is negative.
        CaptureError: the residuals can't be captured, and no Jacobian is given;
            ``jacobian=jacrev(residual)`` is without programs.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules.optimizers import levenberg_marquardt
        >>> t = paddle.arange(5, dtype="float64")
        >>> y = 2.0 * paddle.exp(-0.5 * t)
        >>> fit = levenberg_marquardt(
        ...     lambda p: p[0] * paddle.exp(-p[1] * t) - y, paddle.ones([2], "float64")
        ... )
        >>> [round(p, 6) for p in fit.params.tolist()], fit.reason
        ([2.0, 0.5], 'the gradient is zero to tolerance_grad')
    """
    start, nesting = flat_params(params, "levenberg_marquardt", DTYPES)
    function = VectorFunction(residual, nesting, "residual", jacobian)
    second_derivative = jit(function.second_directional_derivative)
    largest: Any = 0.0

    def linearize(at: Tensor, residuals: Tensor) -> LocalProblem:
        nonlocal largest
        matrix, r = function.jacobian(at), array_of(residuals)
        with without_warnings():
            slope = matrix.T @ r
            if scaled:
                largest = np.maximum(largest, np.einsum("ij,ij->j", matrix, matrix))
                scale = np.where(largest > 0.0, largest, 1.0).astype(r.dtype)
                squares = DampedSquares(matrix, scale)
            else:
                scale = np.ones_like(slope)
                squares = DampedSquares(matrix)

        def step(mu: float) -> DampedStep | None:
            solve = squares.solver(mu)
            if solve is None:
                return None
            v = -solve(r)
            if not geodesic:
                return DampedStep(v, v)
            function.derivatives += 1
            a = -solve(
                array_of(second_derivative(at, paddle.to_tensor(v, place=at.place)))
            )
            if not a @ (scale * a) <= MAX_ACCELERATION_RATIO**2 * (v @ (scale * v)):
                return None
            return DampedStep(v + a / 2.0, v)

        return LocalProblem(slope, scale, step)

    limits = SearchLimits(steps, tolerance_grad, tolerance_change, tolerance_step)
    return DampedSearch(function, start, linearize, damping, limits).run()
