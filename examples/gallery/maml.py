"""MAML: a start from which a net learns a new sine of ten points in one step.

Finn, Abbeel, Levine, "Model-agnostic meta-learning", 2017: gradients of what is left of
a loss after a step of gradient descent, for 25 tasks at once.
"""

import math

import paddle
from pictures import plt, save

from paddle_chainrules import FCNet, grad, jit, optimizers, scan, value_and_grad, vmap
from paddle_chainrules.optimizers import apply_updates

net = FCNet((1, 40, 40, 1), "tanh")
adam, sgd = optimizers.adam(1e-3), optimizers.sgd(0.1)


def loss(params, x, y):
    return ((net(params, x) - y) ** 2).mean()


def learnt(params, x, y):  # a step of gradient descent
    updates, _ = sgd.update(grad(loss)(params, x, y), sgd.init(params), params)
    return apply_updates(params, updates)


def left(params, task):  # at its other ten points
    return loss(learnt(params, task[0, :10], task[1, :10]), task[0, 10:], task[1, 10:])


def new_tasks(*sizes):
    x = 10.0 * paddle.rand([*sizes, 20, 1]) - 5.0
    height, shift = 0.1 + 4.9 * paddle.rand([*sizes, 1, 1]), paddle.rand([*sizes, 1, 1])
    return paddle.stack([x, height * paddle.sin(x - math.pi * shift)], len(sizes))


@jit
def step(carry, tasks):
    params, state = carry
    every = value_and_grad(lambda p: vmap(left, (None, 0))(p, tasks).mean())
    value, grads = every(params)
    updates, state = adam.update(grads, state, params)
    return (apply_updates(params, updates), state), value


paddle.seed(0)
carry = (params := net.init(0)), adam.init(params)
for _ in range(150):
    carry, losses = scan(step, carry, new_tasks(100, 25))

x, at = (paddle.linspace(-5.0, 5.0, n)[:, None] for n in (10, 200))
y, exact, errors = 3.0 * paddle.sin(x + 1.0), 3.0 * paddle.sin(at + 1.0), {}
for name, start in (("MAML's start", carry[0]), ("any start", net.init(1))):
    found = net(learnt(start, x, y), at)
    errors[name] = float((found - exact).abs().mean())
    plt.plot(at, found, label=f"one step from {name}")
plt.plot(at, exact, "k:", label="a new sine")
save("maml", x, y)
assert errors["MAML's start"] < 0.5 * errors["any start"], errors
