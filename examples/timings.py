"""Time the digits' net: native Paddle, the stateless net, and, from Julia, the wrapper.

``Sides`` gives one callable per side and task; ``measure`` calls them in turn, so that
a noisy machine hits all alike. From Julia, timings.jl adds its own side to the same
turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import paddle

from digits import ACTIVATION, SIZES
from paddle_chainrules import FCNet

BATCHES = (1, 8, 64)
TASKS = ("forward", "forward and gradients")
ROUNDS, CALLS = 40, 25


class Sides:
    """The same net, parameters, input and cotangent for every side."""

    def __init__(self, batch: int) -> None:
        self.net = FCNet(SIZES, ACTIVATION)
        self.params = self.net.init(0)
        linear = paddle.nn.Linear
        self.layer = paddle.nn.Sequential(
            linear(SIZES[0], SIZES[1]), paddle.nn.ReLU(), linear(SIZES[1], SIZES[2])
        )
        self.layer.set_state_dict(self.net.to_state_dict(self.params, like=self.layer))
        paddle.seed(0)
        self.x = paddle.rand([batch, SIZES[0]])
        self.cotangent = paddle.ones([batch, SIZES[-1]])
        self.x_native = self.x.clone()
        self.x_native.stop_gradient = False
        self.leaves = [*self.layer.parameters(), self.x_native]

    def native(self, task: str) -> None:
        """Paddle's own eager way."""
        if task == TASKS[0]:
            self.layer(self.x)
        else:
            y = self.layer(self.x_native)
            paddle.grad([y], self.leaves, [self.cotangent])

    def stateless(self, task: str) -> None:
        """The stateless net from Python."""
        if task == TASKS[0]:
            self.net.forward(self.params, self.x)
        else:
            _, pullback = self.net.pullback(self.params, self.x)
            pullback(self.cotangent)

    def seconds(self, side: str, task: str) -> float:
        """Mean seconds of one call, over CALLS calls."""
        call = getattr(self, side)
        start = time.perf_counter()
        for _ in range(CALLS):
            call(task)
        return (time.perf_counter() - start) / CALLS


def measure(
    more: Callable[[Sides, str], float] | None = None, name: str = "Julia"
) -> list[dict]:
    """Rows of minimum and mean microseconds per side; ``more`` times one side more."""
    rows = []
    for batch in BATCHES:
        sides = Sides(batch)
        for task in TASKS:
            times: dict[str, list[float]] = {"native": [], "stateless": []}
            for _ in range(ROUNDS):
                for side in ("native", "stateless"):
                    times[side].append(sides.seconds(side, task))
                if more is not None:
                    times.setdefault(name, []).append(float(more(sides, task)))
            rows.append(
                {
                    "task": task,
                    "batch": batch,
                    **{
                        side: {
                            "min": 1e6 * min(values[1:]),
                            "mean": 1e6 * sum(values[1:]) / len(values[1:]),
                        }
                        for side, values in times.items()
                    },
                }
            )
    return rows


def table(rows: list[dict]) -> str:
    """Markdown: microseconds a call, minimum (mean), and ratios of minima to native."""
    sides = [side for side in rows[0] if side not in ("task", "batch")]
    head = ["task", "batch", *sides, *(f"{side} / native" for side in sides[1:])]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows:
        cells = [row["task"], str(row["batch"])]
        cells += [f"{row[s]['min']:.1f} ({row[s]['mean']:.1f})" for s in sides]
        cells += [f"{row[s]['min'] / row['native']['min']:.2f}" for s in sides[1:]]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(measure()))
