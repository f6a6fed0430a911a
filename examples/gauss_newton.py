"""Gauss-Newton for a net: nine digits in the time in which Adam gives four.

The problem is that of poisson_2d.py, laplacian(u) = -sin(pi x) sin(pi y) on the unit
square, u = 0 on its boundary, here by a factor: u = x (1 - x) y (1 - y) N(x, y). The
residuals at all points are a problem of least squares, which Levenberg's and
Marquardt's steps solve, without and with geodesic acceleration: see the docstring of
paddle_chainrules.optimizers.levenberg_marquardt. Their matrix J^T J is that of Müller
and Zeinhofer, "Achieving High Accuracy with PINNs via Energy Natural Gradient Descent",
ICML 2023, arXiv:2302.13163.

For one core, 40 seconds a method: OMP_NUM_THREADS=1 python examples/gauss_newton.py;
the picture goes to output/gauss_newton.png.
"""

from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from time import process_time

import matplotlib as mpl
import numpy as np
import paddle
from tqdm import tqdm

from paddle_chainrules import FCNet, grad, jit, laplacian, vmap
from paddle_chainrules.optimizers import levenberg_marquardt
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


def jacobian(theta):
    """Their derivatives, a row a point."""
    return vmap(grad(residual), (None, 0, 0))(theta, at, rhs)


gradient = jit(grad(lambda theta: (residuals(theta) ** 2).sum()))


def gauss_newton(theta, on_step, geodesic):
    """Steps without end; on_step(step, theta, value) is called after each."""
    ends = dict.fromkeys(("tolerance_grad", "tolerance_change", "tolerance_step"), 0.0)
    levenberg_marquardt(
        residuals,
        theta,
        jacobian=jacobian,
        geodesic=geodesic,
        steps=10**9,
        on_step=on_step,
        **ends,
    )


def adam(theta, on_step):
    """The same; the rate falls as a cosine does. on_step gives the seconds so far."""
    theta, spent = theta.clone(), 0.0
    optimizer = paddle.optimizer.Adam(PEAK, parameters=[theta])
    theta.stop_gradient = False
    for step in count(1):
        optimizer.set_lr(PEAK * (1 + np.cos(np.pi * min(spent / SECONDS, 1.0))) / 2)
        theta.grad = gradient(theta.detach())
        optimizer.step()
        spent = on_step(step, theta.detach(), None)


class Enough(Exception):
    """The seconds are over."""


def follow(name, method, theta):
    """Steps, seconds and errors, without the time of measuring, and u at the end.

    The clock begins after the first step, which captures the programs.
    """
    clock, due, began, seconds, errors, last = 0.0, 0.0, None, [], [], []
    form = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}{postfix}"

    def on_step(step, theta, _):
        nonlocal clock, due, began
        clock += 0.0 if began is None else process_time() - began
        if clock >= due:
            u = solution(theta, mesh).squeeze(-1).numpy()
            last[:] = step, u
            seconds.append(clock)
            errors.append(relative_error(u))
            due = min(1.02 * clock + 0.02, SECONDS)
            bar.set_postfix_str(f"error {errors[-1]:.1e}", refresh=False)
            bar.update(min(clock, SECONDS) - bar.n)
        if clock >= SECONDS:
            raise Enough
        began = process_time()
        return clock

    with (
        tqdm(total=SECONDS, desc=name, bar_format=form, mininterval=0.5) as bar,
        suppress(Enough),
    ):
        method(theta, on_step)
    step, u = last
    return step, np.array(seconds), np.array(errors), u


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
    methods = {
        "Adam": adam,
        "Gauss-Newton": partial(gauss_newton, geodesic=False),
        "Gauss-Newton, accelerated": partial(gauss_newton, geodesic=True),
    }
    found = {name: follow(name, method, theta) for name, method in methods.items()}
    draw(OUTPUT / "gauss_newton.png", found)
    print(f"{'seconds to an error of':26}", *(f"{mark:>7.0e}" for mark in MARKS))
    for name, (steps, seconds, errors, _) in found.items():
        firsts = [seconds[errors <= mark][:1] for mark in MARKS]
        cells = (f"{t[0]:7.1f}" if len(t) else f"{'-':>7}" for t in firsts)
        print(f"{name:26}", *cells, f"  {errors[-1]:.1e} after {steps} steps")
    assert all(found[name][2][-1] < 3e-6 for name in list(found)[1:])
