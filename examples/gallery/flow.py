"""A normalizing flow: the density of two moons, from samples alone.

Dinh, Sohl-Dickstein, Bengio, "Density estimation using Real NVP", 2017. Each layer
scales and shifts one coordinate by nets of the other.
"""

import math

import paddle
from pictures import plt, save

from paddle_chainrules import FCNet, jit, optimizers, scan, value_and_grad

paddle.seed(0)
net, adam = FCNet((1, 32, 32, 2), "tanh"), optimizers.adam(2e-3)
LAYERS = 8


def moons(count):
    turn = math.pi * paddle.rand([count, 1])
    upper = paddle.concat([turn.cos() - 0.5, turn.sin() - 0.25], 1)
    side = 2.0 * (paddle.rand([count, 1]) > 0.5).astype("float32") - 1.0
    return side * upper + 0.07 * paddle.randn([count, 2])


def log_density(params, x):
    """Of points of shape [n, 2], by the change of variables."""
    first, second, logs = x[:, :1], x[:, 1:], 0.0
    for k in range(LAYERS):
        scale, shift = paddle.split(net(params[k], first), 2, 1)
        second = second * paddle.exp(paddle.tanh(scale)) + shift
        logs = logs + paddle.tanh(scale)
        first, second = second, first
    squares = first**2 + second**2
    return (logs - 0.5 * squares - math.log(2.0 * math.pi)).squeeze(-1)


@jit
def step(carry, x):
    params, state = carry
    value, grads = value_and_grad(lambda p: -log_density(p, x).mean())(params)
    updates, state = adam.update(grads, state, params)
    return (optimizers.apply_updates(params, updates), state), value


params = [net.init(seed) for seed in range(LAYERS)]
carry = params, adam.init(params)
for _ in range(15):
    carry, losses = scan(step, carry, moons(25_600).reshape([100, 256, 2]))

side = paddle.linspace(-2.0, 2.0, 200)
grid = paddle.stack(paddle.meshgrid(side, side), -1).reshape([-1, 2])
density = log_density(carry[0], grid).exp().reshape([200, 200])
plt.figure(figsize=(4.0, 4.0))
plt.imshow(density.T, origin="lower", extent=(-2, 2, -2, 2), cmap="viridis")
plt.plot(*moons(300).T, "w.", markersize=2)
save("flow")
total = float(density.sum()) * (4.0 / 199.0) ** 2
assert abs(total - 1.0) < 0.05, total
assert float(losses[-20:].mean()) < 1.2, losses[-20:].mean()
