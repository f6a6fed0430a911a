"""Native Paddle, the tape and programs on nets as people build them.

``make bench-programs``: forward and all gradients, in turn in one process, one thread
each; microseconds of native Paddle, and ratios to it. Prints Markdown.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
from tqdm import tqdm

from nets import NETS, Named
from paddle_chainrules import grad, jit, stateless, value_and_grad
from sides import interleave, timer

QUICK = "QUICK" in os.environ
ROUNDS = 10 if QUICK else 40


def distance(found: Any, expected: Any) -> float:
    """Of the furthest tensor, in units of the last place of its largest entry."""
    far = 0.0
    for a, b in zip(found, expected, strict=True):
        if a is None or b is None:
            assert a is b
            continue
        x, y = a.numpy(), b.numpy()
        unit = np.spacing(np.abs(y).max(initial=0))
        far = max(far, float(np.abs(x - y).max(initial=0) / unit))
    return far


def sides_of(name: str, batch: int) -> tuple[dict[str, Callable[[], Any]], float]:
    """Calls that give all gradients, and the seconds of the first one of programs."""
    paddle.seed(0)
    make, shape = NETS[name]
    layer = make()
    x = paddle.randn([batch, *shape])
    tape, params, _ = stateless(layer)
    net, _, _ = stateless(layer, jit=True)
    cotangent = paddle.randn(layer(x).shape)
    leaf = x.clone()
    leaf.stop_gradient = False
    leaves = [*layer.parameters(), leaf]

    def native() -> Any:
        return paddle.grad([layer(leaf)], leaves, [cotangent])

    def of(net: Any) -> Callable[[], Any]:
        def call() -> Any:
            grads, (by_x,) = net.pullback(params, x)[1](cotangent)
            return [*grads.values(), by_x]

        return call

    calls = {"native": native, "tape": of(tape), "program": of(net)}
    start = time.perf_counter()
    calls["program"]()
    calls["program"]()
    first = time.perf_counter() - start
    return calls, first


def equation(width: int, points: int, dtype: str) -> dict[str, Callable[[], Any]]:
    """A step with two second derivatives: eager, and as programs."""
    paddle.seed(0)
    layer = Named([2, width, width, 1]).to(dtype=dtype)
    net, params, _ = stateless(layer)
    points = paddle.rand([points, 2], dtype)

    def loss_of(u: Any, second: Any, x: Any) -> Any:
        residual = second(0) + second(1) + u * paddle.sin(x[:, 0:1])
        return (residual * residual).mean()

    def eager(x: Any) -> Any:
        x = x.detach()
        x.stop_gradient = False
        u = layer(x)
        first = paddle.grad(u, x, create_graph=True)[0]

        def second(i: int) -> Any:
            slope = first[:, i : i + 1]
            return paddle.grad(slope, x, create_graph=True)[0][:, i : i + 1]

        loss = loss_of(u, second, x)
        return [loss, *paddle.grad(loss, layer.parameters(), allow_unused=True)]

    def ours(params: Any, x: Any) -> Any:
        def second(i: int) -> Any:
            def slope(x: Any) -> Any:
                return grad(lambda x: net.forward(params, x).sum())(x)[:, i].sum()

            return grad(slope)(x)[:, i : i + 1]

        return loss_of(net.forward(params, x), second, x)

    program, step = jit(value_and_grad(ours)), jit(eager)

    def with_ours() -> Any:
        loss, grads = program(params, points)
        return [loss, *grads.values()]

    return {
        "native": lambda: eager(points),
        "jit(value_and_grad(loss))": with_ours,
        "jit(eager step)": lambda: step(points),
    }


def measured(calls: dict[str, Callable[[], Any]]) -> dict[str, dict[str, float]]:
    start = time.perf_counter()
    calls["native"]()
    count = max(1, int(0.01 / (time.perf_counter() - start)))
    return interleave({k: timer(c) for k, c in calls.items()}, ROUNDS, count)


def row(label: str, calls: dict[str, Callable[[], Any]], first: float = 0.0) -> str:
    native, *others = [call() for call in calls.values()]
    times = measured(calls)
    base, cells = times["native"], []
    for name in list(calls)[1:]:
        low, mean = (times[name][k] / base[k] for k in ("min", "mean"))
        cells.append(f"**{low:.2f}** ({mean:.2f})")
    far = distance(others[-1], native)
    end = f" | {1e3 * first:.0f}" if first else ""
    return f"| {label} | {base['min']:.0f} | {' | '.join(cells)} | {far:.0f}{end} |"


def main() -> None:
    batches = (1, 64)
    lines = [
        "| net, batch | native, us | tape / native | program / native | ulp apart "
        "| first two calls, ms |",
        "|---|---|---|---|---|---|",
    ]
    for name in tqdm(NETS, unit="net"):
        for batch in batches:
            lines.append(row(f"{name}, {batch}", *sides_of(name, batch)))
    print("\n".join(lines), end="\n\n")
    lines = [
        "| equation, two second derivatives | eager, us | `jit(value_and_grad(loss))` "
        "| `jit(eager step)` | ulp apart |",
        "|---|---|---|---|---|",
    ]
    cases = ((16, 100, "float32"), (64, 1000, "float32"), (64, 1000, "float64"))
    for width, points, dtype in tqdm(cases, unit="equation"):
        label = f"2 x {width}, {points} points, {dtype}"
        lines.append(row(label, equation(width, points, dtype)))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
