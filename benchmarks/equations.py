"""Steps of differential equations: loss and gradient, against PaddleScience's way.

``make bench-equations``: native Paddle with first derivatives by one gradient and
higher ones by gradients of it, as PaddleScience's ``jacobian`` and ``hessian`` have
them, ``derivatives`` of this package, and JAX where it is installed (compiled, forward
mode within forward mode); in turn in one process, one thread each. Then time and
memory a point against the number of points. Prints Markdown, leaves JSON and a picture
in output/.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import matplotlib as mpl
import numpy as np
import paddle
from paddle import nn
from tqdm import tqdm

import peers
from machine import OUTPUT, SETTLED, save
from memory import peak
from nets import ModifiedMLP, PirateNet, chain
from paddle_chainrules import derivatives, jit, stateless, value_and_grad
from paddle_chainrules.testing.timings import interleave, timer
from programs import program_of

mpl.use("Agg")
import matplotlib.pyplot as plt

QUICK = "QUICK" in os.environ
ROUNDS = 10 if QUICK else 40
MOST = 30_000 if QUICK else 300_000

Index = tuple[int, ...]
Equation = tuple[tuple[Index, ...], Callable[..., Any]]
"""The derivatives by (t, x), or by (x, y), and the residual of them."""

BURGERS: Equation = (
    ((0, 0), (1, 0), (0, 1), (0, 2)),
    lambda u, u_t, u_x, u_xx: u_t + u * u_x - 0.01 * u_xx,
)
BEAM: Equation = (((0, 0), (0, 4)), lambda u, u_xxxx: u_xxxx + u)
BIHARMONIC: Equation = (
    ((4, 0), (2, 2), (0, 4)),
    lambda u_xxxx, u_xxyy, u_yyyy: u_xxxx + 2.0 * u_xxyy + u_yyyy - 1.0,
)

POISSON: Equation = (((2, 0), (0, 2)), lambda u_xx, u_yy: u_xx + u_yy + 1.0)

STEPS: dict[str, tuple[Equation, Callable[[], nn.Layer], int]] = {
    "Poisson, MLP 3x64": (POISSON, lambda: chain([2, *[64] * 3, 1]), 1000),
    "Burgers, MLP 3x16": (BURGERS, lambda: chain([2, *[16] * 3, 1]), 100),
    "Burgers, MLP 5x64": (BURGERS, lambda: chain([2, *[64] * 5, 1]), 1000),
    "Burgers, MLP 5x64, silu": (
        BURGERS,
        lambda: chain([2, *[64] * 5, 1], nn.Silu),
        1000,
    ),
    "Burgers, modified MLP 5x64": (BURGERS, lambda: ModifiedMLP(2, 1, 5), 1000),
    "Burgers, PirateNet, two blocks": (BURGERS, lambda: PirateNet(2, 1), 1000),
    "beam, MLP 3x32": (BEAM, lambda: chain([2, *[32] * 3, 1]), 1000),
    "biharmonic, MLP 3x32": (BIHARMONIC, lambda: chain([2, *[32] * 3, 1]), 1000),
}
MANY = "Burgers, MLP 5x64"
"""Whose cost a point is drawn."""


class Step:
    """One step on all sides, as calls that give the loss and the gradients."""

    def __init__(self, name: str, points: int | None = None) -> None:
        paddle.seed(0)
        (self.indices, self.residual), make, count = STEPS[name]
        self.layer = make()
        self.x = paddle.rand([points or count, 2])
        self.net, self.params, _ = stateless(self.layer)

    def native(self) -> list[Any]:
        x = self.x.detach()
        x.stop_gradient = False
        made: dict[Index, Any] = {(0, 0): self.layer(x)}

        def derivative(index: Index) -> Any:
            """Both first derivatives of whatever is differentiated come at once."""
            if index not in made:
                below = (index[0] - 1, index[1]) if index[0] else (0, index[1] - 1)
                slopes = paddle.grad(derivative(below), x, create_graph=True)[0]
                for i, more in enumerate(((1, 0), (0, 1))):
                    above = below[0] + more[0], below[1] + more[1]
                    made.setdefault(above, slopes[:, i : i + 1])
            return made[index]

        loss = (self.residual(*map(derivative, self.indices)) ** 2).mean()
        leaves = self.layer.parameters()
        return [loss, *paddle.grad(loss, leaves, allow_unused=True)]

    def loss(self, params: Any) -> Any:
        found = derivatives(self.net, params, self.x, self.indices)
        return (self.residual(*found) ** 2).mean()

    def ours(self) -> Callable[[], list[Any]]:
        step = jit(value_and_grad(self.loss))

        def call() -> list[Any]:
            value, grads = step(self.params)
            return [value, *grads.values()]

        return call

    def loss_in_jax(self, params: Any) -> tuple[Callable[..., Any], list[Any], Any]:
        """The loss of leaves and points, these leaves of the parameters, and points."""
        import jax
        from jax import numpy as jnp

        program, values = program_of(self.net, params, self.x)
        net = peers.with_table(program, peers.jax_table(), jnp.asarray)

        def along(u: Any, axis: int) -> Any:
            def slope(x: Any) -> Any:
                return jax.jvp(u, (x,), (jnp.zeros_like(x).at[:, axis].set(1),))[1]

            return slope

        def loss(leaves: Any, x: Any) -> Any:
            def derivative(index: Index) -> Any:
                u = lambda x: net(*leaves, x)[0]  # noqa: E731
                for axis, times in enumerate(index):
                    for _ in range(times):
                        u = along(u, axis)
                return u(x)

            return (self.residual(*map(derivative, self.indices)) ** 2).mean()

        return loss, [*map(jnp.asarray, values)], jnp.asarray(self.x.numpy())

    def in_jax(self) -> Callable[[], list[Any]]:
        import jax

        loss, leaves, x = self.loss_in_jax(self.params)
        step = jax.jit(jax.value_and_grad(loss))

        def call() -> list[Any]:
            value, grads = jax.block_until_ready(step(leaves, x))
            return [value, *grads]

        return call

    def sides(self) -> dict[str, Callable[[], list[Any]]]:
        found = {"native": self.native, "ours": self.ours()}
        return found | ({"JAX jit": self.in_jax()} if find_spec("jax") else {})


def furthest(found: list[Any], expected: list[Any]) -> float:
    """The largest difference, relative to the largest entry of its tensor."""
    far = 0.0
    for a, b in zip(found, expected, strict=True):
        if b is not None:
            like = b.numpy()
            far = max(
                far, float(np.abs(np.asarray(a) - like).max() / np.abs(like).max())
            )
    return far


def compared(name: str) -> dict[str, Any]:
    step = Step(name)
    sides = step.sides()
    expected = sides["native"]()
    first, errors = {}, {}
    for side, call in sides.items():
        start = time.perf_counter()
        found = call()
        first[side] = time.perf_counter() - start
        for _ in range(SETTLED):
            found = call()
        errors[side] = furthest(found, expected)
        assert errors[side] < 1e-3, (name, side, errors[side])
    start = time.perf_counter()
    sides["native"]()
    calls = max(1, int(0.02 / (time.perf_counter() - start)))
    us = interleave({k: timer(call) for k, call in sides.items()}, ROUNDS, calls)
    memory = {side: peak(call) for side, call in sides.items()}
    return {"us": us, "first": first, "errors": errors, "bytes": memory}


def of_points(counts: list[int]) -> list[dict[str, Any]]:
    """Time and memory a point; native Paddle as far as its memory allows."""
    rows = []
    for n in tqdm(counts, unit="points"):
        step = Step(MANY, n)
        sides = step.sides()
        if n > 30_000:
            sides = {"ours": sides["ours"]}
        for call in sides.values():
            call()
        timers = {side: timer(call) for side, call in sides.items()}
        rounds = max(2, min(ROUNDS, 400_000 // n))
        memory = {side: peak(call) for side, call in sides.items()}
        rows.append({"points": n, "us": interleave(timers, rounds, 1), "bytes": memory})
    return rows


def table(rows: dict[str, Any]) -> str:
    head = ["float32", "points", "native, us", "ours", "JAX jit", "ours / JAX"]
    head += ["memory / native", "first call, ms"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, row in rows.items():
        us, jax = row["us"], "JAX jit"
        cells = [name, str(STEPS[name][2]), f"{us['native']['min']:.0f}"]
        for side in ("ours", jax):
            low, mean = (
                us[side][k] / us["native"][k] if side in us else float("nan")
                for k in ("min", "mean")
            )
            cells.append(f"**{low:.2f}** ({mean:.2f})")
        both = us["ours"]["min"] / us[jax]["min"] if jax in us else float("nan")
        memory = row["bytes"]["ours"] / max(row["bytes"]["native"], 1)
        cells += [f"{both:.2f}", f"{memory:.2f}", f"{1e3 * row['first']['ours']:.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table_of_points(rows: list[dict[str, Any]]) -> str:
    sides = [*rows[0]["us"]]
    head = ["points", *(f"{s}, us a point" for s in sides)]
    head += [f"{s}, bytes a point" for s in sides]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        n = row["points"]
        cells = [f"{n:,}"]
        us, size = row["us"], row["bytes"]
        cells += [f"{us[s]['min'] / n:.2f}" if s in us else "" for s in sides]
        cells += [f"{size[s] / n:,.0f}" if s in size else "" for s in sides]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(rows: list[dict[str, Any]]) -> None:
    figure, panels = plt.subplots(1, 2, figsize=(10, 4))
    for side in rows[0]["us"]:
        of = [row for row in rows if side in row["us"]]
        n = [row["points"] for row in of]
        us = [row["us"][side]["min"] / row["points"] for row in of]
        size = [max(row["bytes"][side], 1) / row["points"] / 1e3 for row in of]
        panels[0].plot(n, us, marker="o", label=side)
        panels[1].plot(n, size, marker="o", label=side)
    for panel, label in zip(panels, ("us a point", "kB a point"), strict=True):
        panel.set(xscale="log", xlabel="points", ylabel=label, title=MANY)
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        panel.legend()
    figure.tight_layout()
    figure.savefig(OUTPUT / "equations.png", dpi=110)


def main() -> None:
    rows = {name: compared(name) for name in tqdm(STEPS, unit="step")}
    print(table(rows), end="\n\n")
    counts = [n for n in (1_000, 3_000, 10_000, 30_000, 300_000) if n <= MOST]
    points = of_points(counts)
    print(table_of_points(points))
    save("equations", {"steps": rows, "points": points})
    picture(points)


if __name__ == "__main__":
    main()
