"""Gauss-Newton for a net: a hundred times Adam's accuracy in the same time.

The problem is that of poisson_2d.py, laplacian(u) = -sin(pi x) sin(pi y) on the unit
square and u = 0 on its boundary. With all residuals as one vector r of the parameters
and its Jacobian J, a row a point, by per-sample gradients, a step solves

    (J^T J + mu diag(J^T J)) v = -J^T r                 (Levenberg and Marquardt),
    (J^T J + mu diag(J^T J)) a = -J^T r''               (geodesic acceleration),

where r'' is the second derivative of r along v, and goes to theta + v + a / 2. Run it on
one core: OMP_NUM_THREADS=1 python examples/gauss_newton.py, two and a half minutes;
the picture goes to output/gauss_newton.png.

Sources: Müller and Zeinhofer, "Achieving High Accuracy with PINNs via Energy Natural
Gradient Descent", ICML 2023, arXiv:2302.13163, whose matrix of a linear equation is
J^T J; Marquardt, "An algorithm for least-squares estimation of nonlinear parameters",
Journal of SIAM 11(2), 1963; Transtrum and Sethna, "Improvements to the
Levenberg-Marquardt algorithm for nonlinear least-squares minimization",
arXiv:1201.5885, 2012, the acceleration; Nielsen, "Damping parameter in Marquardt's
method", report IMM-REP-1999-05, Technical University of Denmark, 1999, the law of mu.
"""

from itertools import count
from pathlib import Path
from time import process_time

import matplotlib as mpl
import numpy as np
import paddle
from scipy.linalg import cho_factor, cho_solve
from tqdm import tqdm

from paddle_chainrules import FCNet, grad, jit, jvp, laplacian, value_and_grad, vmap
from poisson_2d import WEIGHT, exact, plane, points, relative_error, source

mpl.use("Agg")
import matplotlib.pyplot as plt

OUTPUT = Path(__file__).resolve().parent.parent / "output"
GRID, SEED, SECONDS, AT_LEAST = 30, 0, 40.0, 300
PEAK = 1e-2
MARKS = (1e-3, 1e-4, 1e-5, 3e-6, 1e-6)
net = FCNet((2, 24, 24, 1), "tanh", "float64")
ticks = (np.arange(GRID) + 0.5) / GRID
inside = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
at, rhs = paddle.to_tensor(inside), paddle.to_tensor(source(*inside.T))


def solution(theta, p):
    """u at points [..., 2]: zero on the boundary by its factor."""
    x, y = p[..., :1], p[..., 1:]
    return x * (1 - x) * y * (1 - y) * net.forward(theta, p)


def residual(theta, p, rhs):
    """What the equation leaves at one point."""
    return (laplacian(solution, theta, p) - rhs).sum() / GRID


def residuals(theta):
    """The same at all points."""
    return vmap(residual, (None, 0, 0))(theta, at, rhs)


values = jit(residuals)
jacobian = jit(lambda theta: vmap(grad(residual), (None, 0, 0))(theta, at, rhs))


@jit
def bend(theta, v):
    """The second derivative of the residuals along v."""
    return jvp(lambda t: jvp(residuals, (t,), (v,))[1], (theta,), (v,))[1]


def gauss_newton(theta, accelerate=True):
    """Parameters, step by step."""
    r, damping, growth = values(theta).numpy(), 1e-2, 2.0
    scale = np.zeros(len(theta))
    while True:
        J = jacobian(theta).numpy()
        gram, slope = J.T @ J, J.T @ r
        scale, improved = np.maximum(scale, gram.diagonal()), False
        while not improved:
            factor = cho_factor(gram + damping * np.diag(scale))
            v = -cho_solve(factor, slope)
            a = np.zeros_like(v)
            if accelerate:
                a = -cho_solve(factor, J.T @ bend(theta, paddle.to_tensor(v)).numpy())
            trial = theta + paddle.to_tensor(v + a / 2)
            after = values(trial).numpy()
            gain = (r @ r - after @ after) / (v @ (damping * scale * v - slope))
            improved = gain > 0 and a @ (scale * a) <= 0.75**2 * v @ (scale * v)
            if improved:
                theta, r, growth = trial, after, 2.0
                damping = max(damping * max(1 / 3, 1 - (2 * gain - 1) ** 3), 1e-11)
            else:
                damping, growth = damping * growth, 2 * growth
        yield theta


def adam(theta):
    """Parameters, step by step; the rate falls as a cosine does."""
    theta, began = theta.clone(), process_time()
    gradient = jit(value_and_grad(lambda theta: (residuals(theta) ** 2).sum()))
    optimizer = paddle.optimizer.Adam(PEAK, parameters=[theta])
    theta.stop_gradient = False
    while True:
        spent = min((process_time() - began) / SECONDS, 1.0)
        optimizer.set_lr(PEAK * (1 + np.cos(np.pi * spent)) / 2)
        theta.grad = gradient(theta.detach())[1]
        optimizer.step()
        yield theta.detach()


