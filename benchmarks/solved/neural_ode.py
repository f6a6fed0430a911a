"""A vector field learnt from a trajectory: the spiral of Chen et al. 2018.

A net of cubes, 2-50-2, is integrated by Runge's and Kutta's fourth order from a hundred
observed states over ten steps each, and compared with what was observed there. The
error is that of the whole trajectory from the first state.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

from .clock import DECAY, RATE, Clock, Found, train
from .problem import Array, Problem, glorot

COUNT, LENGTH, END = 1000, 10, 25.0
STEP = END / COUNT
WIDTHS = 2, 50, 2
TURN = np.array([[-0.1, 2.0], [-2.0, -0.1]])


@cache
def trajectory() -> Array:
    """The true states [COUNT + 1, 2]."""
    times = np.linspace(0.0, END, COUNT + 1)
    exact = {"method": "DOP853", "rtol": 1e-11, "atol": 1e-12}
    found = solve_ivp(
        lambda _, y: y**3 @ TURN, (0.0, END), [2.0, 0.0], t_eval=times, **exact
    )
    return found.y.T


def neural_ode() -> Problem:
    times = np.linspace(0.0, END, COUNT + 1)[:, None]
    return Problem(
        "Chen et al. 2018, a spiral: net of cubes, segments of ten steps",
        ("t",),
        ("x", "y"),
        WIDTHS[1:-1],
        (),
        lambda points: trajectory(),
        lambda: (times, (COUNT + 1,)),
        compared=2,
    )


def rk4(f: Callable[[Any], Any], y: Any) -> Any:
    """A step of Runge and Kutta."""
    a = f(y)
    b = f(y + STEP / 2 * a)
    c = f(y + STEP / 2 * b)
    d = f(y + STEP * c)
    return y + STEP / 6 * (a + 2 * b + 2 * c + d)


def segments() -> tuple[Array, Array]:
    """States that are begun from [100, 2], and those after [LENGTH, 100, 2]."""
    states = trajectory().astype("float32")
    starts = np.arange(0, COUNT, LENGTH)
    return states[starts], np.stack([states[starts + k + 1] for k in range(LENGTH)])


def found(weights: list[Array]) -> Found:
    """The whole trajectory that a net gives."""
    first, bias, second, last = [w.astype("float64") for w in weights]
    y, states = np.array([2.0, 0.0]), [np.array([2.0, 0.0])]
    for _ in range(COUNT):
        y = rk4(lambda y: np.tanh(y**3 @ first + bias) @ second + last, y)
        y = np.clip(np.nan_to_num(y), -1e3, 1e3)
        states.append(y)
    return np.stack(states), {}


def missed(f: Callable[[Any], Any], y: Any, after: Any) -> Any:
    """The mean square of all differences."""
    total = 0.0
    for k in range(LENGTH):
        y = rk4(f, y)
        total = total + ((y - after[k]) ** 2).mean()
    return total / LENGTH


def native(problem: Problem, seed: int, clock: Clock) -> str:
    """Paddle as it is."""
    import paddle
    from paddle import nn

    net = nn.Sequential(nn.Linear(2, WIDTHS[1]), nn.Tanh(), nn.Linear(WIDTHS[1], 2))
    values = [value for pair in glorot(WIDTHS, seed) for value in pair]
    for parameter, value in zip(net.parameters(), values, strict=True):
        parameter.set_value(value)
    begun, after = map(paddle.to_tensor, segments())
    rate = paddle.optimizer.lr.InverseTimeDecay(RATE, DECAY)
    optimizer = paddle.optimizer.Adam(rate, parameters=net.parameters())

    def steps(count: int) -> int:
        for _ in range(count):
            missed(lambda y: net(y**3), begun, after).backward()
            optimizer.step()
            optimizer.clear_grad()
            rate.step()
        return count

    clock.start()
    train(clock, steps, lambda: found([p.numpy() for p in net.parameters()]))
    return ""


def by_scan(problem: Problem, seed: int, clock: Clock) -> str:
    """This package's ``scan`` of steps of ``optimizers.adam``."""
    import paddle

    from paddle_chainrules import FCNet

    from . import by_functions

    net = FCNet(WIDTHS, "tanh")
    begun, after = map(paddle.to_tensor, segments())

    def loss(params: Any) -> Any:
        return missed(lambda y: net(params, y**3), begun, after)

    def look(params: Any) -> Found:
        return found([p.numpy() for p in params.values()])

    start = by_functions.net_of(glorot(WIDTHS, seed), "float32")
    by_functions.by_scan(loss, start, clock, look)
    return ""


def in_jax(problem: Problem, seed: int, clock: Clock) -> str:
    """JAX with optax, by hand."""
    import jax
    from jax import numpy as jnp

    from . import in_jax as by_jax

    begun, after = map(jnp.asarray, segments())

    def loss(net: Any) -> Any:
        (first, bias), (second, last) = net
        f = lambda y: jnp.tanh(y**3 @ first + bias) @ second + last  # noqa: E731

        def step(y: Any, expected: Any) -> Any:
            y = rk4(f, y)
            return y, ((y - expected) ** 2).mean()

        return jax.lax.scan(step, begun, after)[1].mean()

    def look(net: Any) -> Found:
        return found([*map(np.asarray, jax.tree.leaves(net))])

    start = jax.tree.map(jnp.asarray, glorot(WIDTHS, seed))
    by_jax.by_scan(loss, start, clock, look, 10)
    return ""
