"""A PINN of Burgers' equation, whose points go where the equation is not yet met.

Raissi et al., "Physics-informed neural networks", 2019; Wu et al., "A comprehensive
study of residual-based adaptive sampling", 2023. The start and the ends hold exactly.
"""

import math

import numpy as np
import paddle
from pictures import plt, save

from paddle_chainrules import FCNet, derivatives, jit
from paddle_chainrules.optimizers import bfgs

paddle.seed(0)
net, nu = FCNet((2, 20, 20, 20, 1), "tanh", "float64"), 0.01 / math.pi
terms = {"u": ("u",), "u_t": ("u", "t"), "u_x": ("u", "x"), "u_xx": ("u", "x", "x")}


def u(params, at):
    t, x = at["t"], at["x"]
    inner = net(params, paddle.concat([x, t], -1))
    return {"u": t * (1.0 - x * x) * inner - (math.pi * x).sin()}


@jit
def residual(params, at):
    d = derivatives(u, params, at, terms)
    return d["u_t"] + d["u"] * d["u_x"] - nu * d["u_xx"]


def drawn(count):
    t, x = (paddle.rand([count, 1], "float64") for _ in range(2))
    return {"t": t, "x": 2.0 * x - 1.0}


params, at = net.init(0), drawn(2_000)
loss = jit(lambda params: (residual(params, at) ** 2).mean())
for _ in range(5):
    params = bfgs(loss, params, steps=500).params
    pool = drawn(20_000)
    size = residual(params, pool).abs().flatten()
    rows = paddle.multinomial(size / size.mean() + 1.0, 2_000)
    for name in at:
        paddle.assign(paddle.gather(pool[name], rows), at[name])

t, x = paddle.meshgrid(paddle.linspace(0.01, 1.0, 100), paddle.linspace(-1.0, 1.0, 201))
seen = {n: v.reshape([-1, 1]).astype("float64") for n, v in (("t", t), ("x", x))}
found = u(params, seen)["u"].numpy().reshape(100, 201)
z, w = np.polynomial.hermite.hermgauss(80)  # the solution of Cole and Hopf
y = x.numpy()[..., None] - np.sqrt(4.0 * nu * t.numpy()[..., None]) * z
heat = w * np.exp(-np.cos(np.pi * y) / (2.0 * np.pi * nu))
exact = -(np.sin(np.pi * y) * heat).sum(-1) / heat.sum(-1)
error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
plt.imshow(found.T[::-1], extent=(0.0, 1.0, -1.0, 1.0), aspect="auto", cmap="RdBu")
plt.plot(at["t"], at["x"], "k.", markersize=0.7)
plt.gca().set(xlabel="t", ylabel="x", title=f"u, error {error:.1e}, and the points")
save("burgers")
assert error < 0.02, error
