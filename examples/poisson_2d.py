"""Poisson's equation on the unit square by a neural net, with an exact Laplacian.

    laplacian(u) = -sin(pi x) sin(pi y) inside,    u = 0 on the boundary,

solved by u = sin(pi x) sin(pi y) / (2 pi^2). Run it: python examples/poisson_2d.py;
the picture goes to output/poisson_2d.png. ``QUICK=1`` takes half of the steps.
"""

import os
from pathlib import Path

import matplotlib as mpl
import numpy as np
import paddle

from lbfgs import fit
from paddle_chainrules import FCNet, laplacian

mpl.use("Agg")
import matplotlib.pyplot as plt

OUTPUT = Path(__file__).resolve().parent.parent / "output"
SIZES, ACTIVATION, SEED = (2, 16, 16, 1), "sin", 0
GRID, EDGE, WEIGHT = 20, 25, 100.0
STEPS = 2000 if "QUICK" in os.environ else 4000


def source(x, y):
    """The right-hand side."""
    return -np.sin(np.pi * x) * np.sin(np.pi * y)


def exact(x, y):
    """The solution."""
    return np.sin(np.pi * x) * np.sin(np.pi * y) / (2 * np.pi**2)


def points():
    """Inside [GRID^2, 2], between the lines of a grid, and on the edges [4 EDGE, 2]."""
    ticks = (np.arange(GRID) + 0.5) / GRID
    inside = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    t = np.linspace(0, 1, EDGE)
    edges = [(t, 0 * t), (t, 0 * t + 1), (0 * t, t), (0 * t + 1, t)]
    return inside, np.concatenate([np.stack(edge, axis=-1) for edge in edges])


def plane(ticks=101):
    """The points where the result is compared and drawn."""
    t = np.linspace(0, 1, ticks)
    return np.meshgrid(t, t)


def relative_error(u) -> float:
    """Of values at :func:`plane`, in the L2 norm."""
    expected = exact(*plane())
    return float(np.linalg.norm(u - expected) / np.linalg.norm(expected))


def draw(path, u, losses, title) -> None:
    """Solution, error and loss."""
    expected = exact(*plane())
    figure, panels = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    for axes, values, name in zip(
        panels, (u, u - expected), ("solution u(x, y)", "error u - exact"), strict=False
    ):
        image = axes.imshow(values, origin="lower", extent=(0, 1, 0, 1))
        axes.set(title=name, xlabel="x", ylabel="y")
        figure.colorbar(image, ax=axes)
    panels[2].semilogy(losses)
    panels[2].set(title="loss", xlabel="step")
    panels[2].grid(alpha=0.3)
    figure.suptitle(f"{title}, relative L2 error {relative_error(u):.1e}")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    net = FCNet(SIZES, ACTIVATION, "float64")
    inside, edges = map(paddle.to_tensor, points())
    rhs = paddle.to_tensor(source(*points()[0].T)).unsqueeze(1)

    def loss(theta):
        residual = laplacian(net, theta, inside) - rhs
        on_edges = net.forward(theta, edges)
        return (residual**2).mean() + WEIGHT * (on_edges**2).mean()

    theta, losses = fit(loss, net.flatten(net.init(SEED)), STEPS)
    x, y = plane()
    at = paddle.to_tensor(np.stack([x, y], axis=-1))
    u = net.forward(theta, at).squeeze(-1).numpy()
    draw(OUTPUT / "poisson_2d.png", u, losses, "Poisson's equation, Paddle from Python")
    print(f"relative L2 error {relative_error(u):.2e}, loss {losses[-1]:.2e}")
    assert relative_error(u) < 1e-3
