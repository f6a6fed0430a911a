"""Steps of equations whose sums of derivatives go through the layers as one, or apart.

``python benchmarks/collapsed_sums.py``: steps of Adam in ``scan`` of the problems of
docs/solved.md, in float32: matrix products in the program of a loss and its gradients,
milliseconds of a step of the processor's time, minima and means, in turn in one
process. ``QUICK=1`` for less, ``ONLY=Burgers,wave`` for problems with these words.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from paddle_chainrules import jit, optimizers, scan, value_and_grad
from paddle_chainrules.programs import Program
from paddle_chainrules.programs.compiling.collapsing import collapsed
from solved.by_functions import Posed
from solved.sides import PROBLEMS

ROUNDS = 3 if "QUICK" in os.environ else 20
ONLY = os.environ.get("ONLY", "").split(",")
Pass = Callable[[Program], Program]
WAYS: dict[str, Pass] = {"apart": lambda program: program, "as one": collapsed}


def products(program: Program) -> int:
    return sum(op.operator.name in ("matmul", "linear") for op in program.ops)


def stepping(posed: Posed, way: Pass) -> tuple[int, Callable[[int], None]]:
    """The products of a program, and what takes so many steps by it."""
    counts = []

    def noted(program: Program) -> Program:
        made = way(program)
        counts.append(products(made))
        return made

    adam = optimizers.adam(1e-3)

    @jit
    def step(carry: Any, _: Any) -> Any:
        params, state = carry
        value, grads = value_and_grad(posed.loss)(params)
        updates, state = adam.update(grads, state, params)
        return (optimizers.apply_updates(params, updates), state), value

    carry = [(posed.params, adam.init(posed.params))]

    def steps(count: int) -> None:
        carry[0], _ = scan(step, carry[0], length=count)

    with patch("paddle_chainrules.programs.capturing.collapse_sums", noted):
        steps(3)
    return max(counts), steps


def milliseconds(steps: Callable[[int], None]) -> float:
    start = time.process_time()
    steps(10)
    return (time.process_time() - start) * 100


def main() -> None:
    print("| problem | products | ms of a step | products | ms, as one | sooner |")
    print("|---" * 6 + "|")
    for name, make in PROBLEMS.items():
        if name == "neural ODE" or not any(word in name for word in ONLY):
            continue
        posed = Posed(make(), 0, "float32")
        made = [stepping(posed, way) for way in WAYS.values()]
        times: list[list[float]] = [[], []]
        for _ in range(ROUNDS):
            for found, (_, steps) in zip(times, made, strict=True):
                found.append(milliseconds(steps))
        cells = [name]
        for found, (count, _) in zip(times, made, strict=True):
            cells += [str(count), f"{min(found):.2f} ({sum(found) / ROUNDS:.2f})"]
        cells.append(f"{min(times[0]) / min(times[1]):.2f}")
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
