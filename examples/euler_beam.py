"""A clamped beam under its own weight: a differential equation of fourth order.

    u'''' + 1 = 0 on [0, 1],    u(0) = u'(0) = 0,    u''(1) = u'''(1) = 0,

solved by u = -x^4 / 24 + x^3 / 6 - x^2 / 4. All four derivatives come from one call.
Run it: python examples/euler_beam.py; the picture goes to output/euler_beam.png.
"""

from pathlib import Path

import matplotlib as mpl
import numpy as np
import paddle

from lbfgs import fit
from paddle_chainrules import FCNet, taylor

mpl.use("Agg")
import matplotlib.pyplot as plt

OUTPUT = Path(__file__).resolve().parent.parent / "output"
net = FCNet((1, 20, 20, 1), "tanh", "float64")
along = paddle.ones([1], "float64")


def exact(x):
    """The deflection at x."""
    return -(x**4) / 24 + x**3 / 6 - x**2 / 4


def residual(theta, x):
    """What the equation leaves at points [n, 1]."""
    *_, fourth = taylor(net, theta, x, along, order=4)
    return fourth + 1


def ends(theta):
    """What the four boundary conditions leave."""
    at = paddle.to_tensor([[0.0], [1.0]], dtype="float64")
    u, u1, u2, u3 = taylor(net, theta, at, along, order=3)
    return paddle.concat([u[0], u1[0], u2[1], u3[1]])


def draw(path, x, u, losses) -> None:
    """Deflection, error and loss."""
    figure, panels = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
    panels[0].plot(x, exact(x), color="C7", linewidth=4, label="exact")
    panels[0].plot(x, u, color="C0", linestyle="--", label="net")
    panels[0].set(title="deflection u(x)", xlabel="x")
    panels[0].legend()
    panels[1].plot(x, u - exact(x))
    panels[1].set(title="error u - exact", xlabel="x")
    panels[2].semilogy(losses)
    panels[2].set(title="loss", xlabel="step")
    for axes in panels:
        axes.grid(alpha=0.3)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    x = paddle.linspace(0, 1, 50, dtype="float64").unsqueeze(1)

    def loss(theta):
        return (residual(theta, x) ** 2).mean() + (ends(theta) ** 2).sum()

    theta, losses = fit(loss, net.flatten(net.init(0)), 1000)
    x = np.linspace(0, 1, 201)
    u = net.forward(theta, paddle.to_tensor(x).unsqueeze(1)).squeeze(1).numpy()
    error = np.abs(u - exact(x)).max()
    draw(OUTPUT / "euler_beam.png", x, u, losses)
    print(f"largest error {error:.2e} of a deflection of {-exact(1.0):.3f}")
    assert error < 1e-4
