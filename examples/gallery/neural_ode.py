"""A neural ODE: a net for the right side of an equation, from a track of its solution.

Chen, Rubanova, Bettencourt, Duvenaud, "Neural ordinary differential equations", 2018.
The derivative goes through every step of the method of Runge and Kutta.
"""

import paddle
from pictures import plt, save

from paddle_chainrules import FCNet, jit, optimizers, scan, value_and_grad

paddle.seed(0)
net, steps = FCNet((2, 32, 32, 2), "tanh"), 1_500
adam = optimizers.adam(optimizers.schedules.cosine_annealing(1e-2, steps))
step_size, count = 0.05, 120


def solved(slope, start, count):
    """Solve ``y' = slope(y)`` for many starts at once; shape [count, n, 2]."""

    def runge_kutta(y, _):
        k1 = slope(y)
        k2 = slope(y + 0.5 * step_size * k1)
        k3 = slope(y + 0.5 * step_size * k2)
        k4 = slope(y + step_size * k3)
        y = y + step_size / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        return y, y

    return scan(runge_kutta, start, None, count)[1]


def hunters_and_prey(y):
    prey, hunters = y[:, :1], y[:, 1:]
    return paddle.concat([prey * (1.5 - hunters), hunters * (prey - 3.0)], 1) * 0.5


starts = paddle.to_tensor([[2.0, 1.0], [3.0, 1.1], [2.5, 1.5]])
track = solved(hunters_and_prey, starts, count)


def loss(params):
    return ((solved(lambda y: net(params, y), starts, count) - track) ** 2).mean()


@jit
def step(carry, _):
    params, state = carry
    value, grads = value_and_grad(loss)(params)
    updates, state = adam.update(grads, state, params)
    return (optimizers.apply_updates(params, updates), state), value


params = net.init(0)
(params, _), losses = scan(step, (params, adam.init(params)), None, steps)

new = paddle.to_tensor([[2.3, 1.2]])
found = solved(lambda y: net(params, y), new, 2 * count)[:, 0]
exact = solved(hunters_and_prey, new, 2 * count)[:, 0]
plt.plot(*track.reshape([-1, 2]).T, ".", color="0.8", label="learnt from")
plt.plot(*exact.T, "k:", label="a new start, exact")
plt.plot(*found.T, label="by the net, twice as long")
plt.xlabel("prey")
plt.ylabel("hunters")
save("neural_ode")
assert (found - exact).abs().mean() < 0.2, (found - exact).abs().mean()
