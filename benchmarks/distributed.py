"""Steps of one, two and four processes, and what of them the reduction takes.

``make bench-distributed``: a fixed number of samples a process; one thread each, gloo
on this machine. A digits net (64-64-10, 64 samples) and a PDE loss with second
derivatives (2-64-64-64-1, 1000 points), float32. Then latency and bandwidth of
``all_reduce``, and what a ring of more ranks would take by them. Prints Markdown,
leaves JSON in output/.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from machine import save
from paddle_chainrules.testing.timings import interleave, timer

ROUNDS = 20 if "QUICK" in os.environ else 200
SMALL, LARGE = 4, 64 * 2**20  # bytes


def work(folder: Path) -> None:
    """What each process does."""
    import paddle
    import paddle.nn.functional as F

    import paddle_chainrules as pc
    from paddle_chainrules import distributed

    distributed.start()
    r = distributed.rank()
    paddle.seed(r)
    digits = pc.FCNet((64, 64, 10), "relu")
    pixels, labels = paddle.rand([64, 64]), paddle.randint(0, 10, [64])

    def entropy(p: Any, x: Any, y: Any) -> Any:
        return F.cross_entropy(digits.forward(p, x), y)

    equation = pc.FCNet((2, 64, 64, 64, 1), "tanh")
    points = paddle.rand([1000, 2])

    def residual(p: Any, x: Any) -> Any:
        return ((pc.laplacian(equation, p, x) - 1) ** 2).mean()

    found: dict[str, Any] = {}
    for name, net, loss, batch in (
        ("digits", digits, entropy, (pixels, labels)),
        ("PDE", equation, residual, (points,)),
    ):
        params = distributed.broadcast(net.init(0))
        local = pc.jit(pc.value_and_grad(loss))
        alone = partial(local, params, *batch)

        def step(alone: Callable[[], Any] = alone, samples: int = len(batch[0])) -> Any:
            return distributed.average(alone(), samples)

        sides = {"step": timer(step), "alone": timer(alone)}
        found[name] = interleave(sides, ROUNDS, 1)
        found[name]["parameters"] = sum(p.size for p in params.values())
    for size in (SMALL, LARGE):
        vector = paddle.ones([size // 4])
        if distributed.size() > 1:
            rounds = ROUNDS if size == SMALL else 10
            side = partial(paddle.distributed.all_reduce, vector)
            found[str(size)] = interleave({"": timer(side)}, rounds, 1)[""]
    if r == 0:
        (folder / "found.json").write_text(json.dumps(found))


def measured(n: int) -> dict[str, Any]:
    """Of n processes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "-m", "paddle.distributed.launch"]
        command += ["--nproc_per_node", str(n), "--log_dir", f"{folder}/log", __file__]
        subprocess.run([*command, folder], check=True, capture_output=True)
        return json.loads((Path(folder) / "found.json").read_text())


def table(by_size: dict[str, Any]) -> str:
    """What the steps took."""
    lines = [
        "| loss | processes | step, ms: minimum (mean) | alone | reduction's share |",
        "|---|---|---|---|---|",
    ]
    for name in ("digits", "PDE"):
        for n, found in by_size.items():
            step, alone = found[name]["step"], found[name]["alone"]["min"]
            share = max(0.0, 1 - alone / step["min"])
            lines.append(
                f"| {name} | {n} | {step['min'] / 1e3:.2f} ({step['mean'] / 1e3:.2f}) "
                f"| {alone / 1e3:.2f} | {share:.0%} |"
            )
    return "\n".join(lines)


def line(by_size: dict[str, Any]) -> tuple[float, float]:
    """Latency in us, and bandwidth in bytes a us, between two processes."""
    two = by_size["2"]
    latency, whole = two[str(SMALL)]["min"], two[str(LARGE)]["min"]
    # A ring of two sends as much as the vector.
    return latency, LARGE / (whole - latency)


def on_paper(by_size: dict[str, Any]) -> str:
    """What a ring of more ranks would take."""
    latency, bandwidth = line(by_size)
    lines = ["| loss | ranks | ring, ms | beside the step alone |", "|---|---|---|---|"]
    for name in ("digits", "PDE"):
        alone = by_size["1"][name]["alone"]["min"]
        size = 4 * by_size["1"][name]["parameters"]
        for n in (64, 1024):
            ring = latency / 2 * 2 * (n - 1) + 2 * (n - 1) / n * size / bandwidth
            lines.append(f"| {name} | {n:,} | {ring / 1e3:.1f} | {ring / alone:.1f} |")
    return "\n".join(lines)


def main() -> None:
    sizes = tqdm((1, 2, 4), unit="run")
    by_size = {str(n): measured(n) for n in sizes}
    latency, bandwidth = line(by_size)
    print(table(by_size))
    print(f"\nLatency {latency:.0f} us, {bandwidth / 1e3:.2f} GB/s between two.\n")
    print(on_paper(by_size))
    save("distributed", {"processes": by_size})


if __name__ == "__main__":
    work(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
