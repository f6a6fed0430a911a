"""Values and all gradients on one core and on all of them, ours and native Paddle's.

``make bench-cores``: each number of threads has processes of its own, in turn, with
``OMP_NUM_THREADS`` alone set. Prints Markdown and leaves output/cores.json;
``QUICK=1`` does fewer rounds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tqdm import tqdm

from machine import save

ROUNDS = 2 if "QUICK" in os.environ else 5
SECONDS = 1.0
"""For each side, in each process."""

ROWS = (1_000, 10_000, 100_000)
SIZES = (31, 64, 64, 64)


def sides(kind: str, rows: int) -> dict[str, Callable[[], Any]]:
    """Ours and native Paddle's."""
    import paddle

    from paddle_chainrules import jit, value_and_grad

    paddle.seed(3)
    params = [
        (paddle.randn([a, b]) / a**0.5, paddle.randn([b])) for a, b in pairwise(SIZES)
    ]
    flat = [each for pair in params for each in pair]
    for each in flat:
        each.stop_gradient = False
    x = paddle.randn([rows, SIZES[0]])

    def loss(params: Any, x: Any) -> Any:
        for weight, bias in params:
            x = paddle.tanh(x @ weight + bias)
            if kind == "MLP with LayerNorm":
                x = paddle.nn.functional.layer_norm(x, x.shape[-1:])
        return (x * x).mean()

    step = jit(value_and_grad(loss))
    return {
        "native": lambda: paddle.grad(loss(params, x), flat),
        "ours": lambda: step(params, x),
    }


KINDS = ("MLP", "MLP with LayerNorm")


def measure(kind: str, rows: int) -> dict[str, float]:
    """The least seconds of each side, in turn."""
    calls = sides(kind, rows)
    for _ in range(3):
        calls["ours"]()
    found = dict.fromkeys(calls, float("inf"))
    end = time.perf_counter() + SECONDS * len(calls)
    while time.perf_counter() < end:
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def apart(threads: int, kind: str, rows: int) -> dict[str, float]:
    """The same in a process with so many threads."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = {k: v for k, v in os.environ.items() if k not in names}
    environment["OMP_NUM_THREADS"] = str(threads)
    environment["PADDLE_CHAINRULES_LOOPS"] = "first"
    command = [sys.executable, "-W", "ignore", __file__, kind, str(rows)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    cores = os.cpu_count() or 1
    jobs = [
        (threads, kind, rows)
        for _ in range(ROUNDS)
        for kind in KINDS
        for rows in ROWS
        for threads in dict.fromkeys((1, cores))
    ]
    least: dict[tuple[Any, ...], float] = {}
    for threads, kind, rows in tqdm(jobs, unit="process"):
        for side, seconds in apart(threads, kind, rows).items():
            key = kind, rows, side, threads
            least[key] = min(seconds, least.get(key, seconds))
    found = [
        {"kind": k, "rows": r, "side": s, "threads": t, "seconds": v}
        for (k, r, s, t), v in least.items()
    ]
    print(table(found), f"JSON: {save('cores', {'rows': found})}", sep="\n\n")


def table(found: list[dict[str, Any]]) -> str:
    """Milliseconds with one thread, and what part of it all of them take."""
    cores = max(row["threads"] for row in found)
    least = {
        (r["kind"], r["rows"], r["side"], r["threads"]): r["seconds"] for r in found
    }
    head = ["net", "native, ms", f"with {cores} threads", "ours, ms"]
    head.append(f"with {cores} threads")
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for kind, rows in dict.fromkeys(key[:2] for key in least):
        cells = [f"{kind}, {rows:,} samples"]
        for side in ("native", "ours"):
            one, all_ = (least[kind, rows, side, n] for n in (1, cores))
            cells += [f"{1e3 * one:.2f}", f"{all_ / one:.2f} of it"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
    else:
        main()
