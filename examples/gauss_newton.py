"""Gauss-Newton for a net: nine digits in the time in which Adam gives four.

The problem is that of poisson_2d.py, laplacian(u) = -sin(pi x) sin(pi y) on the unit
square, u = 0 on its boundary, here by a factor: u = x (1 - x) y (1 - y) N(x, y). With
the residuals r at all points and their Jacobian J, a row a point, a step solves

    (J^T J + mu D) v = -J^T r,        D = diag(J^T J)     (Levenberg and Marquardt)
    (J^T J + mu D) a = -J^T r'',      r'' of r along v    (geodesic acceleration)

and adds v, or v + a / 2. For one core, 40 seconds a method: OMP_NUM_THREADS=1 python
examples/gauss_newton.py; the picture goes to output/gauss_newton.png.

Sources: Müller and Zeinhofer, "Achieving High Accuracy with PINNs via Energy Natural
Gradient Descent", ICML 2023, arXiv:2302.13163 (J^T J is their matrix); Marquardt, "An
algorithm for least-squares estimation of nonlinear parameters", Journal of SIAM 11(2),
1963; Moré, "The Levenberg-Marquardt algorithm: implementation and theory", Lecture
Notes in Mathematics 630, 1978 (the largest D so far); Nielsen, "Damping parameter in
Marquardt's method", report IMM-REP-1999-05, Technical University of Denmark, 1999 (mu);
Transtrum and Sethna, "Improvements to the Levenberg-Marquardt algorithm for nonlinear
least-squares minimization", arXiv:1201.5885, 2012 (acceleration).
"""

from pathlib import Path
from time import process_time

import matplotlib as mpl
import numpy as np
import paddle
from scipy.linalg import cho_factor, cho_solve
from tqdm import tqdm

from paddle_chainrules import FCNet, grad, jit, jvp, laplacian, vmap
from poisson_2d import exact, plane, relative_error, source

mpl.use("Agg")
import matplotlib.pyplot as plt

OUTPUT = Path(__file__).resolve().parent.parent / "output"
GRID, SEED, SECONDS, PEAK = 30, 0, 40.0, 3e-2
MARKS = (1e-3, 1e-4, 1e-5, 3e-6, 1e-8)
net = FCNet((2, 24, 24, 1), "tanh", "float64")
ticks = (np.arange(GRID) + 0.5) / GRID
inside = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
at, rhs = paddle.to_tensor(inside), paddle.to_tensor(source(*inside.T))
mesh = paddle.to_tensor(np.stack(plane(), axis=-1))


def solution(theta, p):
    """u at points [..., 2]."""
    x, y = p[..., :1], p[..., 1:]
    return x * (1 - x) * y * (1 - y) * net.forward(theta, p)


def residual(theta, p, rhs):
    """What the equation leaves at one point; the squares of all sum up to a mean."""
    return (laplacian(solution, theta, p) - rhs).sum() / GRID


def residuals(theta):
    """At all points."""
    return vmap(residual, (None, 0, 0))(theta, at, rhs)


values = jit(residuals)
jacobian = jit(lambda theta: vmap(grad(residual), (None, 0, 0))(theta, at, rhs))
gradient = jit(grad(lambda theta: (residuals(theta) ** 2).sum()))


@jit
def bend(theta, v):
    """The second derivative of the residuals along v."""
    return jvp(lambda t: jvp(residuals, (t,), (v,))[1], (theta,), (v,))[1]


def gauss_newton(theta, accelerate):
    """Parameters, step by step."""
    r, scale, mu, growth = values(theta).numpy(), 0.0, 1e-2, 2.0
    while True:
        J = jacobian(theta).numpy()
        gram, slope, improved = J.T @ J, J.T @ r, False
        scale = np.maximum(scale, gram.diagonal())
        while not improved:
            factor = cho_factor(gram + mu * np.diag(scale))
            v, a = -cho_solve(factor, slope), np.zeros_like(slope)
            if accelerate:
                a = -cho_solve(factor, J.T @ bend(theta, paddle.to_tensor(v)).numpy())
            trial = theta + paddle.to_tensor(v + a / 2)
            new = values(trial).numpy()
            gain = (r @ r - new @ new) / (v @ (mu * scale * v - slope))
            improved = gain > 0 and a @ (scale * a) <= 0.75**2 * v @ (scale * v)
            if improved:
                theta, r, growth = trial, new, 2.0
                mu = max(mu * max(1 / 3, 1 - (2 * gain - 1) ** 3), 1e-12)
            else:
                mu, growth = mu * growth, 2 * growth
        yield theta


def adam(theta):
    """Parameters, step by step; the rate falls as a cosine does."""
    theta, spent = theta.clone(), 0.0
    optimizer = paddle.optimizer.Adam(PEAK, parameters=[theta])
    theta.stop_gradient = False
    while True:
        began = process_time()
        optimizer.set_lr(PEAK * (1 + np.cos(np.pi * min(spent / SECONDS, 1.0))) / 2)
        theta.grad = gradient(theta.detach())
        optimizer.step()
        spent += process_time() - began
        yield theta.detach()


def follow(name, iterates):
    """Steps, seconds and errors, without the time of measuring, and u at the end."""
    clock, due, seconds, errors = 0.0, 0.0, [], []
    form = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}{postfix}"
    with tqdm(total=SECONDS, desc=name, bar_format=form, mininterval=0.5) as bar:
        began = process_time()
        for step, theta in enumerate(iterates, 1):
            clock += process_time() - began
            if clock >= due:
                u = solution(theta, mesh).squeeze(-1).numpy()
                seconds.append(clock)
                errors.append(relative_error(u))
                due = min(1.02 * clock + 0.02, SECONDS)
                bar.set_postfix_str(f"error {errors[-1]:.1e}", refresh=False)
                bar.update(min(clock, SECONDS) - bar.n)
            if clock >= SECONDS:
                return step, np.array(seconds), np.array(errors), u
            began = process_time()


def draw(path, found) -> None:
    """Errors against time, and where they are at the end."""
    figure = plt.figure(figsize=(13, 4.2), layout="constrained")
    left, *panels = figure.subplots(1, 3, width_ratios=(1.5, 1, 1))
    for name, (_, seconds, errors, _) in found.items():
        left.loglog(seconds, errors, label=name)
    left.set(title="relative L2 error", xlabel="seconds on one core")
    left.grid(alpha=0.3)
    left.legend()
    first, *_, last = found
    for axes, name in zip(panels, (first, last), strict=True):
        error = found[name][3] - exact(*plane())
        image = axes.imshow(error, origin="lower", extent=(0, 1, 0, 1))
        axes.set(xlabel="x", ylabel="y")
        axes.set_title(f"u - exact: {name}", fontsize="medium", pad=14)
        figure.colorbar(image, ax=axes, shrink=0.8)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    theta = net.flatten(net.init(SEED))
    began = process_time()
    values(theta), jacobian(theta), gradient(theta), bend(theta, theta.clone())
    print(f"{process_time() - began:.1f} s to capture the programs, before the clock")
    methods = {
        "Adam": adam(theta),
        "Gauss-Newton": gauss_newton(theta, accelerate=False),
        "Gauss-Newton, accelerated": gauss_newton(theta, accelerate=True),
    }
    found = {name: follow(name, iterates) for name, iterates in methods.items()}
    draw(OUTPUT / "gauss_newton.png", found)
    print(f"{'seconds to an error of':26}", *(f"{mark:>7.0e}" for mark in MARKS))
    for name, (steps, seconds, errors, _) in found.items():
        firsts = [seconds[errors <= mark][:1] for mark in MARKS]
        cells = (f"{t[0]:7.1f}" if len(t) else f"{'-':>7}" for t in firsts)
        print(f"{name:26}", *cells, f"  {errors[-1]:.1e} after {steps} steps")
    assert all(found[name][2][-1] < 3e-6 for name in list(found)[1:])
