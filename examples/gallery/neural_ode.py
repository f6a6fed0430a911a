"""A neural ODE: a net for the right side of an equation, from a track of its solution.

Chen, Rubanova, Bettencourt, Duvenaud, "Neural ordinary differential equations", 2018.
"""

import paddle
from pictures import plt, save

from paddle_chainrules import FCNet, grad, jit, optimizers, scan

paddle.seed(0)
net = FCNet((2, 32, 32, 2), "tanh")
adam = optimizers.adam(optimizers.schedules.cosine_annealing(1e-2, 1_500))


def solved(slope, start, count=120, h=0.05):
    """Solve ``y' = slope(y)`` for many starts at once; shape [count, n, 2]."""

    def runge_kutta(y, _):
        k1 = slope(y)
        k2 = slope(y + h / 2.0 * k1)
        k3 = slope(y + h / 2.0 * k2)
        k4 = slope(y + h * k3)
        y = y + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        return y, y

    return scan(runge_kutta, start, None, count)[1]


def hunters_and_prey(y):
    prey, hunters = y[:, :1], y[:, 1:]
    return paddle.concat([prey * (1.5 - hunters), hunters * (prey - 3.0)], 1) * 0.5


starts = paddle.to_tensor([[2.0, 1.0], [3.0, 1.1], [2.5, 1.5]])
track = solved(hunters_and_prey, starts)


def loss(params):
    return ((solved(lambda y: net(params, y), starts) - track) ** 2).mean()


@jit
def step(carry, _):
    params, state = carry
    updates, state = adam.update(grad(loss)(params), state, params)
    return (optimizers.apply_updates(params, updates), state), None


carry = (params := net.init(0)), adam.init(params)
(params, _), _ = scan(step, carry, None, 1_500)
new = paddle.to_tensor([[2.3, 1.2]]), 240
found = solved(lambda y: net(params, y), *new)[:, 0]
exact = solved(hunters_and_prey, *new)[:, 0]
plt.plot(*track.reshape([-1, 2]).T, ".", color="0.8", label="learnt from")
plt.plot(*exact.T, "k:", label="a new start, exact")
plt.plot(*found.T, label="by the net, twice as long")
plt.gca().set(xlabel="prey", ylabel="hunters")
save("neural_ode")
assert (found - exact).abs().mean() < 0.2, (found - exact).abs().mean()
