"""Recipes of docs/recipes.md on the problems of their papers: make bench-recipes.

Each is trained twice, with the recipe and without it, as long as the other: by
self-scaled Broyden in float64 or, as in its paper, by Adam. Prints Markdown: the
relative L2 error, the paper's, and seconds of the processor's time. ``QUICK=1`` takes a
tenth of the steps.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import paddle
from tqdm import tqdm

from machine import machine
from paddle_chainrules import FCNet, derivatives, jit, optimizers, scan, value_and_grad
from paddle_chainrules.optimizers import bfgs
from solved.evolving import burgers
from solved.problem import Judge

TENTH = "QUICK" in os.environ


class Recipe(NamedTuple):
    """A recipe, the problem it is tried on, and the error that its paper tells."""

    name: str
    problem: str
    told: float
    run: Callable[[bool], float]


def points_where_the_residual_is_large(is_used: bool) -> float:
    """Draw points anew after every thousand steps, or never."""
    paddle.seed(0)
    judge, count = Judge(burgers()), 2_000
    net = FCNet((2, 20, 20, 20, 1), "tanh", "float64")
    params = net.init(0)
    terms = {"u": ("u",), "u_t": ("u", "t"), "u_x": ("u", "x"), "u_xx": ("u", "x", "x")}

    def u(params: Any, at: Any) -> dict[str, Any]:
        t, x = at["t"], at["x"]
        inner = net(params, paddle.concat([x, t], -1))
        return {"u": t * (1.0 - x * x) * inner - (math.pi * x).sin()}

    @jit
    def residual(params: Any, at: Any) -> Any:
        d = derivatives(u, params, at, terms)
        return d["u_t"] + d["u"] * d["u_x"] - 0.01 / math.pi * d["u_xx"]

    def drawn(size: int) -> dict[str, Any]:
        t, x = (paddle.rand([size, 1], "float64") for _ in range(2))
        return {"t": t, "x": 2.0 * x - 1.0}

    at = drawn(count)
    loss = jit(lambda params: (residual(params, at) ** 2).mean())
    for _ in range(2 if TENTH else 14):
        found = bfgs(
            loss, params, steps=1_000, tolerance_grad=0.0, tolerance_change=0.0
        )
        params = found.params
        if is_used:
            pool = drawn(50_000)
            size = residual(params, pool).abs().flatten()
            rows = paddle.multinomial(size / size.mean() + 1.0, count)
            for name in at:
                paddle.assign(paddle.gather(pool[name], rows), at[name])
    seen = dict(zip("tx", paddle.to_tensor(judge.points).split(2, 1), strict=True))
    return judge.error(u(params, seen)["u"].numpy())


def fourier_features(is_used: bool) -> float:
    """Give a net waves of two scales, or the coordinate itself."""
    paddle.seed(0)
    waves = [scale * paddle.randn([1, 50]) for scale in (1.0, 10.0)]
    net = FCNet((100 if is_used else 1, 100, 100), "tanh")
    last = FCNet((200 if is_used else 100, 1), "tanh")
    ends = paddle.to_tensor([[0.0], [1.0]])

    def exact(x: Any) -> Any:
        return (2.0 * math.pi * x).sin() + 0.1 * (50.0 * math.pi * x).sin()

    def u(params: Any, x: Any) -> Any:
        z = (x - 0.5) / 0.2887  # of mean zero and deviation one, as in the paper
        turns = [z @ wave for wave in waves]
        inputs = [paddle.concat([a.cos(), a.sin()], -1) for a in turns]
        parts = [
            net(params["net"], each).tanh() for each in (inputs if is_used else [z])
        ]
        return last(params["last"], paddle.concat(parts, -1))

    def loss(params: Any, x: Any) -> Any:
        (u_xx,) = derivatives(u, params, x, [(2,)])
        fine = 0.1 * (50.0 * math.pi) ** 2 * (50.0 * math.pi * x).sin()
        source = (2.0 * math.pi) ** 2 * (2.0 * math.pi * x).sin() + fine
        return ((u_xx + source) ** 2).mean() + (u(params, ends) ** 2).mean()

    rate = optimizers.schedules.exponential_decay(1e-3, 0.9**1e-3)
    adam = optimizers.adam(rate)

    @jit
    def step(carry: Any, x: Any) -> Any:
        params, state = carry
        value, grads = value_and_grad(loss)(params, x)
        updates, state = adam.update(grads, state, params)
        return (optimizers.apply_updates(params, updates), state), value

    params = {"net": net.init(0), "last": last.init(1)}
    carry = params, adam.init(params)
    for _ in range(4 if TENTH else 40):
        carry, _ = scan(step, carry, paddle.rand([1_000, 128, 1]))
    x = paddle.linspace(0.0, 1.0, 1_000).unsqueeze(1)
    return float((u(carry[0], x) - exact(x)).norm() / exact(x).norm())


RECIPES = (
    Recipe(
        "[points where the residual is large](#points-where-the-residual-is-large)",
        "Burgers, 2,000 points",
        2e-4,
        points_where_the_residual_is_large,
    ),
    Recipe(
        "[Fourier features](#exact-conditions-periods-fourier-features)",
        "Poisson of two scales, sin 2πx + 0.1 sin 50πx",
        1.36e-3,
        fourier_features,
    ),
)


def main() -> None:
    lines = [
        "| recipe | problem | paper | with it | without | seconds |",
        "|---" * 6 + "|",
    ]
    for recipe in tqdm(RECIPES, unit="recipe"):
        errors, begun = [], time.process_time()
        for is_used in (True, False):
            errors.append(recipe.run(is_used))
            if is_used:
                seconds = time.process_time() - begun
        cells = f"{recipe.told:.1e} | **{errors[0]:.1e}** | {errors[1]:.1e}"
        lines.append(f"| {recipe.name} | {recipe.problem} | {cells} | {seconds:.0f} |")
    print("\n".join(lines))
    print(machine())


if __name__ == "__main__":
    main()
