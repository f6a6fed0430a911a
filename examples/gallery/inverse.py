"""An inverse problem: how well a rod conducts, from its temperature at twelve places.

``(k u')' = -1`` with ``u = 0`` at both ends. Two nets stand for ``u`` and ``k``, and
Levenberg-Marquardt makes equation and data fit.
"""

import paddle
from pictures import plt, save

from paddle_chainrules import FCNet, derivatives
from paddle_chainrules.optimizers import levenberg_marquardt

paddle.seed(0)
paddle.set_default_dtype("float64")
net = FCNet((1, 16, 1), "tanh", dtype="float64")


def conductivity(x):
    return 1.0 + 0.5 * paddle.sin(6.0 * x)


# The exact solution: k u' = c - x, integrated on a fine grid.
grid = paddle.linspace(0.0, 1.0, 10_001)
weights = 1.0 / conductivity(grid)
c = (grid * weights).sum() / weights.sum()
exact = paddle.cumulative_trapezoid((c - grid) * weights, grid)
places = paddle.arange(1, 13) * 750
x, u = grid[places].unsqueeze(-1), exact[places - 1].unsqueeze(-1)
u = u + 1e-5 * paddle.randn(u.shape)


def rod(params, at):
    x = at["x"]
    return {
        "u": x * (1.0 - x) * net(params["u"], x),
        "k": 1.0 + net(params["k"], x),
    }


points = {"x": paddle.linspace(0.0, 1.0, 60).unsqueeze(-1)}
wanted = {"k": ("k",), "k_x": ("k", "x"), "u_x": ("u", "x"), "u_xx": ("u", "x", "x")}


def residuals(params):
    d = derivatives(rod, params, points, wanted)
    equation = d["k_x"] * d["u_x"] + d["k"] * d["u_xx"] + 1.0
    return {"equation": equation, "data": 100.0 * (rod(params, {"x": x})["u"] - u)}


start = {"u": net.init(0), "k": net.init(1)}
fit = levenberg_marquardt(residuals, start, steps=300, scaled=False, geodesic=True)

at = grid[::50].unsqueeze(-1)
found, truth = rod(fit.params, {"x": at})["k"], conductivity(at)
plt.plot(at, truth, "k:", label="conductivity")
plt.plot(at, found, label="found")
plt.plot(x, 10.0 * u, "k.", label="temperature, times ten: the data")
save("inverse")
assert (found - truth).abs().max() < 0.2, (found - truth).abs().max()
