"""Steps of Paddle's optimizers alone, as ever and within a context of the adapters.

``python benchmarks/optimizer_steps.py``: microseconds of ``step()`` of the processor's
time, minima and means, for the 12 parameters of a net 2-20-20-20-20-20-1 and for one of
a million numbers, in turn in one process. ``QUICK=1`` for less.
"""

from __future__ import annotations

import os
import time
from itertools import pairwise
from typing import Any

import paddle
from paddle import optimizer

from paddle_chainrules.adapters.taylor_mode import TaylorMode

WIDTHS = [2, *[20] * 5, 1]
SHAPES = {
    "12 parameters": [shape for i, o in pairwise(WIDTHS) for shape in ([i, o], [o])],
    "a million numbers": [[1000, 1000]],
}
NAMES = ["SGD", "Momentum", "Adagrad", "Adadelta", "RMSProp", "Adam", "AdamW", "Adamax"]
ROUNDS = 20 if "QUICK" in os.environ else 100


def microseconds(step: Any) -> float:
    start = time.process_time()
    for _ in range(3):
        step()
    return (time.process_time() - start) / 3e-6


def main() -> None:
    print(
        "| optimizer | parameters | dtype | native, us | program, us |\n" + "|---" * 5
    )
    for what, shapes in SHAPES.items():
        for name in NAMES:
            for dtype in ("float32", "float64"):
                params = [paddle.create_parameter(s, dtype) for s in shapes]
                for p in params:
                    p.grad = paddle.rand(p.shape, dtype)
                made = getattr(optimizer, name)(learning_rate=1e-3, parameters=params)
                times: tuple[list[float], list[float]] = [], []
                made.step()
                for _ in range(ROUNDS):
                    times[0].append(microseconds(made.step))
                    with TaylorMode("this") as mode:
                        made.step()
                        made.step()
                        times[1].append(microseconds(made.step))
                    assert mode.steps.programs == 4
                cells = [f"{min(t):.0f} ({sum(t) / ROUNDS:.0f})" for t in times]
                print(f"| {name} | {what} | {dtype} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
