"""Viscous Burgers' equation: nonlinear, in time, and steep.

    u_t + u u_x = nu u_xx on [-1, 1] x [0, 1],    nu = 0.01 / pi,
    u(x, 0) = -sin(pi x),    u(-1, t) = u(1, t) = 0,

compared with the method of lines: central differences on 2001 points, in time by an
implicit method of scipy's. The net N is part of an ansatz that holds at the start and
at the ends by itself, u = -sin(pi x) + t (1 - x^2) N(x, t); N and its derivatives come
from one call. Run it: python examples/burgers_1d.py; the picture goes to
output/burgers_1d.png.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import paddle
from scipy.integrate import solve_ivp
from scipy.sparse import diags
from scipy.stats.qmc import Sobol

from lbfgs import fit
from paddle_chainrules import FCNet, derivatives

mpl.use("Agg")
import matplotlib.pyplot as plt

OUTPUT = Path(__file__).resolve().parent.parent / "output"
NU = 0.01 / np.pi
POINTS, STEPS = 2048, 3000
net = FCNet((2, 20, 20, 20, 20, 1), "tanh", "float64")
NEEDED = (0, 0), (1, 0), (0, 1), (2, 0)  # N, N_x, N_t, N_xx


def reference(x, times):
    """The solution on a grid, [times, x], by the method of lines."""
    h = x[1] - x[0]

    def slope(_, u):
        inner = -u[1:-1] * (u[2:] - u[:-2]) / (2 * h)
        inner += NU * (u[2:] - 2 * u[1:-1] + u[:-2]) / h**2
        return np.concatenate([[0.0], inner, [0.0]])

    found = solve_ivp(
        slope,
        (0.0, times[-1]),
        -np.sin(np.pi * x),
        method="BDF",
        t_eval=times,
        rtol=1e-7,
        atol=1e-9,
        jac_sparsity=diags([1, 1, 1], [-1, 0, 1], shape=(len(x), len(x))),
    )
    return found.y.T


def solution(value, at):
    """u at points (x, t), [..., 2], where the net gives ``value``, [..., 1]."""
    x, t = at[..., :1], at[..., 1:]
    return -paddle.sin(np.pi * x) + t * (1 - x**2) * value


def residual(theta, at):
    """What the equation leaves at points (x, t), [n, 2], by the product rule."""
    value, v_x, v_t, v_xx = derivatives(net, theta, at, NEEDED)
    x, t = at[:, :1], at[:, 1:]
    start, slope = -paddle.sin(np.pi * x), -np.pi * paddle.cos(np.pi * x)
    bump = 1 - x**2
    u = start + t * bump * value
    u_t = bump * (value + t * v_t)
    u_x = slope + t * (bump * v_x - 2 * x * value)
    u_xx = -(np.pi**2) * start + t * (bump * v_xx - 4 * x * v_x - 2 * value)
    return u_t + u * u_x - NU * u_xx


def points():
    """Points (x, t), denser in the middle, where the wave is steep, and weights.

    By x = q^3 of even q, so that the weighted mean is that of even points.
    """
    right = Sobol(2, seed=0).random(POINTS // 2)
    q, t = np.concatenate([right, right * [-1, 1]]).T
    return np.stack([q**3, t], axis=-1), 3 * q[:, None] ** 2


def draw(path, x, times, u, expected, losses) -> None:
    """The solution over time, cuts against the reference, and the loss."""
    figure, panels = plt.subplots(1, 3, figsize=(12.5, 3.8), layout="constrained")
    image = panels[0].pcolormesh(times, x, u.T, shading="auto")
    panels[0].set(title="u(x, t) by the net", xlabel="t", ylabel="x")
    figure.colorbar(image, ax=panels[0])
    for color, k in enumerate((0, len(times) // 4, len(times) // 2, len(times) - 1)):
        panels[1].plot(x, expected[k], color=f"C{color}", linewidth=4, alpha=0.35)
        panels[1].plot(x, u[k], color=f"C{color}", label=f"t = {times[k]:.2f}")
    panels[1].set(title="net (thin) and reference (thick)", xlabel="x")
    panels[1].legend()
    panels[2].semilogy(losses)
    panels[2].set(title="loss", xlabel="step")
    for axes in panels[1:]:
        axes.grid(alpha=0.3)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    at, weights = map(paddle.to_tensor, points())

    def loss(theta):
        return (weights * residual(theta, at) ** 2).mean()

    theta, losses = fit(loss, net.flatten(net.init(1)), STEPS)
    x, times = np.linspace(-1, 1, 2001), np.linspace(0, 1, 101)
    expected = reference(x, times)
    mesh = paddle.to_tensor(np.stack(np.meshgrid(x, times), axis=-1))
    u = solution(net.forward(theta, mesh), mesh).squeeze(-1).numpy()
    error = np.linalg.norm(u - expected) / np.linalg.norm(expected)
    draw(OUTPUT / "burgers_1d.png", x, times, u, expected, losses)
    print(f"relative L2 error {error:.2e}, loss {losses[-1]:.2e}")
    assert error < 1e-2
