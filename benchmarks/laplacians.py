"""Laplacians against the dimension: exact, estimated, and by nested gradients.

A net d-64-64-1 at 10 points, float32: the Laplacian, and the gradient by parameters of
its mean square. Prints Markdown, leaves JSON and a picture in output/.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import paddle
from tqdm import tqdm

from machine import OUTPUT, save
from memory import peak
from nets import chain
from paddle_chainrules import jit, laplacian, stateless, value_and_grad
from paddle_chainrules.testing.timings import interleave, timer

mpl.use("Agg")
import matplotlib.pyplot as plt

QUICK = "QUICK" in os.environ
DIMENSIONS = (1, 10, 100) if QUICK else (1, 10, 100, 1_000, 10_000)
POINTS, PROBES = 10, 16
NATIVE_UP_TO = 100


def sides_of(d: int) -> dict[str, Callable[[], Any]]:
    paddle.seed(0)
    layer = chain([d, 64, 64, 1])
    net, params, _ = stateless(layer)
    x = paddle.rand([POINTS, d])

    def native() -> Any:
        at = x.detach()
        at.stop_gradient = False
        slopes = paddle.grad(layer(at), at, create_graph=True)[0]
        total = 0.0
        for i in range(d):
            second = paddle.grad(slopes[:, i], at, create_graph=True)[0]
            total = total + second[:, i]
        leaves = layer.parameters()
        return paddle.grad((total**2).mean(), leaves, allow_unused=True)

    def ours(**how: Any) -> Callable[[], Any]:
        def loss(params: Any) -> Any:
            return (laplacian(net, params, x, **how) ** 2).mean()

        step = value_and_grad(loss) if how else jit(value_and_grad(loss))
        return lambda: step(params)

    found = {"exact": ours()}
    if d >= PROBES:
        for name in ("hutchinson", "stde"):
            how = {"estimator": name, "probes": PROBES, "seed": 0}
            found[f"{name}, {PROBES} probes"] = ours(**how)
    return found | ({"nested paddle.grad": native} if d <= NATIVE_UP_TO else {})


def sides_in(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(side for row in rows for side in row["us"]))


def table(rows: list[dict[str, Any]]) -> str:
    sides = sides_in(rows)
    head = ["d", *(f"{s}, ms" for s in sides), *(f"{s}, MB" for s in sides)]
    lines = [f"| {' | '.join(head)} |", f"{'|---' * len(head)}|"]
    for row in rows:
        ms = {side: us["min"] / 1e3 for side, us in row["us"].items()}
        mb = {side: size / 1e6 for side, size in row["bytes"].items()}
        cells = [f"{f[s]:.3g}" if s in f else "" for f in (ms, mb) for s in sides]
        lines.append(f"| {row['d']:,} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    rows = []
    for d in tqdm(DIMENSIONS, unit="dimension"):
        sides = sides_of(d)
        for call in sides.values():
            call()
        timers = {side: timer(call) for side, call in sides.items()}
        rounds = max(1, min(20, 2_000 // d))
        us = interleave(timers, rounds, 1)
        memory = {side: max(peak(call), 1) for side, call in sides.items()}
        rows.append({"d": d, "us": us, "bytes": memory})
    print(table(rows))
    sides = sides_in(rows)
    save("laplacians", {"rows": rows})
    figure, panels = plt.subplots(1, 2, figsize=(10, 4))
    for side in sides:
        of = [row for row in rows if side in row["us"]]
        d = [row["d"] for row in of]
        panels[0].loglog(
            d, [r["us"][side]["min"] / 1e6 for r in of], marker="o", label=side
        )
        panels[1].loglog(
            d, [r["bytes"][side] / 1e6 for r in of], marker="o", label=side
        )
    for panel, label in zip(panels, ("seconds", "MB"), strict=True):
        panel.set(xlabel="dimension", ylabel=label)
        panel.grid(alpha=0.3)
        panel.legend()
    figure.suptitle("Gradient of the mean square of a Laplacian, d-64-64-1, 10 points")
    figure.tight_layout()
    figure.savefig(OUTPUT / "laplacians.png", dpi=110)


if __name__ == "__main__":
    main()
