"""Training: many steps of Adam on all sides, a step, in one run.

``make bench-training``: native Paddle with its optimizer; this package's gradients with
Paddle's optimizer; whole steps in ``jit``; ``scan``; JAX with optax in ``lax.scan`` and
PyTorch eager, where they are installed. One thread each, all sides in turn. Prints
Markdown, leaves JSON in output/.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import paddle
from tqdm import tqdm

import peers
from equations import STEPS, Step
from machine import save
from paddle_chainrules import jit, optimizers, scan, value_and_grad
from programs import program_of

QUICK = "QUICK" in os.environ
ROUNDS = 3 if QUICK else 9
RATE = 1e-3
NAMES = ("Burgers, MLP 3x16", "Poisson, MLP 3x64", "Burgers, MLP 5x64")
LENGTHS = {"Burgers, MLP 3x16": 1000, "Poisson, MLP 3x64": 100, "Burgers, MLP 5x64": 30}

Side = Callable[[], float]
"""So many steps from the same start; gives the last loss."""


class Training(Step):
    """Many steps from the same start on all sides."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.length = LENGTHS[name]
        self._start = {key: p.clone() for key, p in self.params.items()}

    def _reset(self) -> None:
        self.layer.set_state_dict(self.net.to_state_dict(self._start))

    def native_steps(self) -> float:
        self._reset()
        leaves = self.layer.parameters()
        adam = paddle.optimizer.Adam(RATE, parameters=leaves)
        loss = None
        for _ in range(self.length):
            loss, *grads = self.native()
            for p, g in zip(leaves, grads, strict=True):
                p.grad = g
            adam.step()
        return float(loss)

    def gradients_and_paddles_adam(self) -> Side:
        step = jit(value_and_grad(self.loss))

        def run() -> float:
            leaves = {name: p.clone() for name, p in self._start.items()}
            for leaf in leaves.values():
                leaf.stop_gradient = False
            adam = paddle.optimizer.Adam(RATE, parameters=[*leaves.values()])
            loss = None
            params = {name: leaf.detach() for name, leaf in leaves.items()}
            for _ in range(self.length):
                loss, grads = step(params)
                for name, leaf in leaves.items():
                    leaf.grad = grads[name]
                adam.step()
            return float(loss)

        return run

    def _step(self) -> Callable[..., Any]:
        adam = optimizers.adam(RATE)

        def step(carry: Any, _: Any) -> Any:
            params, state = carry
            loss, grads = value_and_grad(self.loss)(params)
            updates, state = adam.update(grads, state, params)
            return (optimizers.apply_updates(params, updates), state), loss

        return step

    def whole_steps(self) -> Side:
        step = jit(self._step())

        def run() -> float:
            carry, loss = (self._start, optimizers.adam(RATE).init(self._start)), None
            for _ in range(self.length):
                carry, loss = step(carry, None)
            return float(loss)

        return run

    def by_scan(self) -> Side:
        step = jit(self._step())

        def run() -> float:
            start = self._start, optimizers.adam(RATE).init(self._start)
            return float(scan(step, start, length=self.length)[1][-1])

        return run

    def by_jax(self) -> Side:
        import jax
        import optax

        loss, leaves, x = self.loss_in_jax(self._start)
        adam = optax.adam(RATE)

        def step(carry: Any, _: Any) -> Any:
            leaves, state = carry
            value, grads = jax.value_and_grad(loss)(leaves, x)
            updates, state = adam.update(grads, state)
            return (optax.apply_updates(leaves, updates), state), value

        @jax.jit
        def steps(leaves: Any) -> Any:
            start = leaves, adam.init(leaves)
            return jax.lax.scan(step, start, None, self.length)

        return lambda: float(steps(leaves)[1][-1])

    def by_torch(self) -> Side:
        import torch

        torch.set_num_threads(1)
        program, values = program_of(self.net, self._start, self.x)
        net = peers.with_table(program, peers.torch_table(), torch.as_tensor)

        def run() -> float:
            leaves = [torch.tensor(np.array(v), requires_grad=True) for v in values]
            x = torch.tensor(self.x.numpy(), requires_grad=True)
            adam = torch.optim.Adam(leaves, RATE)
            loss = None
            for _ in range(self.length):
                made = {(0, 0): net(*leaves, x)[0]}

                def derivative(index: Any, made: Any = made) -> Any:
                    if index not in made:
                        below = (
                            (index[0] - 1, index[1]) if index[0] else (0, index[1] - 1)
                        )
                        (slopes,) = torch.autograd.grad(
                            derivative(below).sum(), x, create_graph=True
                        )
                        for i, more in enumerate(((1, 0), (0, 1))):
                            above = below[0] + more[0], below[1] + more[1]
                            made.setdefault(above, slopes[:, i : i + 1])
                    return made[index]

                found = [derivative(index) for index in self.indices]
                loss = (self.residual(*found) ** 2).mean()
                adam.zero_grad()
                loss.backward(inputs=leaves)
                adam.step()
            return float(loss.detach())

        return run

    def all_sides(self) -> dict[str, Side]:
        found = {
            "native": self.native_steps,
            "gradients in jit, Paddle's Adam": self.gradients_and_paddles_adam(),
            "steps in jit": self.whole_steps(),
            "scan": self.by_scan(),
        }
        if find_spec("jax") and find_spec("optax"):
            found["JAX, optax, lax.scan"] = self.by_jax()
        if find_spec("torch"):
            found["PyTorch eager"] = self.by_torch()
        return found


def compared(name: str) -> dict[str, Any]:
    training = Training(name)
    sides = training.all_sides()
    losses, first, seconds = {}, {}, {side: [] for side in sides}
    for side, run in sides.items():
        start = time.perf_counter()
        losses[side] = run()
        first[side] = time.perf_counter() - start
    for _ in range(ROUNDS):
        for side, run in sides.items():
            start = time.perf_counter()
            losses[side] = run()
            seconds[side].append(time.perf_counter() - start)
    for loss in losses.values():
        assert abs(loss - losses["native"]) < 1e-2 * abs(losses["native"]), losses
    us = {
        side: {
            "min": 1e6 * min(row) / training.length,
            "mean": 1e6 * sum(row) / len(row) / training.length,
        }
        for side, row in seconds.items()
    }
    return {"us": us, "first": first, "losses": losses, "steps": training.length}


def table(rows: dict[str, Any]) -> str:
    sides = [*next(iter(rows.values()))["us"]]
    head = ["a step, us; ratio to native, minimum (mean)", *sides]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, row in rows.items():
        us = row["us"]
        cells = [f"{name}, {STEPS[name][2]} points, {row['steps']:,} steps"]
        for side in sides:
            low, mean = (us[side][k] / us["native"][k] for k in ("min", "mean"))
            of_native = f", **{low:.3f}** ({mean:.3f})" if side != "native" else ""
            cells.append(f"{us[side]['min']:.0f}{of_native}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    rows = {name: compared(name) for name in tqdm(NAMES, unit="net")}
    print(table(rows), end="\n\n")
    for name, row in rows.items():
        whole = {s: 1e-6 * us["min"] * row["steps"] for s, us in row["us"].items()}
        print(f"{name}: {row['steps']:,} steps in {whole['scan']:.3f} s by scan")
    save("training", {"trainings": rows})


if __name__ == "__main__":
    main()
