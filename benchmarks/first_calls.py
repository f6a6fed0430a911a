"""The import and first calls, each in fresh processes: ``make bench-first-calls``.

``import paddle`` and native Paddle's first step, forward and back, come before the
clock starts, which is that of the processor's time. "compiled" is the first call where
it compiles machine code, with ``PADDLE_CHAINRULES_LOOPS=first``. Prints Markdown,
leaves JSON in output/. ``TIMES=3`` has fewer processes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from itertools import pairwise
from typing import Any

from tqdm import tqdm

from machine import save
from paddle_chainrules.settings import CODE, LOOPS

TIMES = 10

BEFORE = """
import json, time
import paddle
layer = paddle.nn.Sequential(paddle.nn.Linear(3, 5), paddle.nn.Tanh())
x = paddle.rand([7, 3])
layer(x).sum().backward()
net = paddle.nn.Sequential(
    *(paddle.nn.Linear(2, 32), paddle.nn.Tanh(), paddle.nn.Linear(32, 32)),
    *(paddle.nn.Tanh(), paddle.nn.Linear(32, 1)),
)
points = paddle.rand([1000, 2])
times = [time.process_time()]
import paddle_chainrules
times.append(time.process_time())
"""

AFTER = """
times.append(time.process_time())
for _ in range(3):
    call()
    times.append(time.process_time())
print(json.dumps(times))
"""

CASES = {
    "stateless(layer), forward, pullback": """
from paddle_chainrules import stateless
def call():
    net, params, _ = stateless(layer)
    net.forward(params, x)
    y, pullback = net.pullback(params, x)
    pullback(y)
""",
    "FCNet, init, forward": """
from paddle_chainrules import FCNet
def call():
    net = FCNet((3, 5, 2))
    net.forward(net.init(0), x)
""",
    "jit(value_and_grad(f))": """
from paddle_chainrules import jit, value_and_grad
step = jit(value_and_grad(lambda w: (w.tanh() * w).sum()))
def call():
    step(x)
""",
    "PINN step, laplacian, 1,000 points": """
from paddle_chainrules import jit, laplacian, stateless, value_and_grad
net, params, _ = stateless(net)
step = jit(value_and_grad(lambda p: (laplacian(net, p, points) ** 2).mean()))
def call():
    step(params)
""",
    "step of Adam, 3-64-64-64-1, 64 samples": """
from paddle_chainrules import FCNet, jit, optimizers, value_and_grad
net = FCNet((3, 64, 64, 64, 1))
rows, rule, params = paddle.rand([64, 3]), optimizers.adam(0.1), net.init(0)
state = rule.init(params)
@jit
def step(params, state, rows):
    grads = value_and_grad(lambda p: (net(p, rows) ** 2).mean())(params)[1]
    return rule.update(grads, state, params)
def call():
    step(params, state, rows)
""",
    "optimizers.adam": """
def call():
    paddle_chainrules.optimizers.adam(0.1).init({"w": x})
""",
}
PARTS = ("import", "names", "first call", "second", "third")
SHOWN = ("import", "names", "first call", "total", "third", "compiled")


def milliseconds(case: str, loops: str | None = None) -> list[float]:
    """Of each part, in one process, with machine code as this setting has it."""
    command = [sys.executable, "-W", "ignore", "-c", BEFORE + CASES[case] + AFTER]
    environment = os.environ.copy()
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.pop(CODE, None)
    environment |= {LOOPS: loops} if loops else {}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    )
    times = json.loads(done.stdout)
    return [1e3 * (end - start) for start, end in pairwise(times)]


def measured(times: int) -> list[dict[str, Any]]:
    """Minima and means of every case, which take turns."""
    found: dict[str, list[list[float]]] = {case: [] for case in CASES}
    for case in CASES:
        milliseconds(case)  # writes what is compiled of Python's
    with tqdm(total=times * len(CASES), unit="process", disable=None) as bar:
        for _ in range(times):
            for case, runs in found.items():
                run = milliseconds(case)
                compiled = milliseconds(case, "first")[PARTS.index("first call")]
                runs.append([*run, sum(run[:3]), compiled])
                bar.update()
    return [
        {
            "case": case,
            "ms": {
                part: {"min": min(row), "mean": statistics.mean(row)}
                for part, row in zip(
                    (*PARTS, "total", "compiled"), zip(*runs, strict=True), strict=True
                )
            },
        }
        for case, runs in found.items()
    ]


def table(rows: list[dict[str, Any]]) -> str:
    """Milliseconds, minima and, in brackets, means."""
    lines = [f"| ms | {' | '.join(SHOWN)} |", "|---" * (len(SHOWN) + 1) + "|"]
    for row in rows:
        cells = [
            f"{row['ms'][p]['min']:.3g} ({row['ms'][p]['mean']:.3g})" for p in SHOWN
        ]
        lines.append(f"| {row['case']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    rows = measured(int(os.environ.get("TIMES", TIMES)))
    print(table(rows))
    save("first_calls", {"rows": rows})


if __name__ == "__main__":
    main()
