"""Attention in blocks of rows beside scores as a whole, native Paddle and PyTorch.

``python benchmarks/attention.py``, with one thread for all libraries: value and
gradients, and the value alone, by the processor's time of the thread, all sides in
turn, in another order each time. PyTorch's heads lie before the steps in memory, as is
best for it. Prints Markdown: minima, and means in parentheses, in milliseconds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import paddle
import torch

from paddle_chainrules import make_program, vjp
from paddle_chainrules.paddle_side.workspace import empty_cache
from paddle_chainrules.programs import Program
from paddle_chainrules.programs.codegen.fused_kernels import tile_fusion

QUICK = "QUICK" in os.environ
SECONDS = 0.5 if QUICK else 2.5
LEAST = 3
STEPS = (32, 128, 256, 512, 1024, 2048)
KINDS = ((1, 4), (1, 8), (2, 8))
"""Samples, and heads."""

WIDTH = 64
attention = paddle.nn.functional.scaled_dot_product_attention
in_torch = torch.nn.functional.scaled_dot_product_attention


def slopes(q: Any, k: Any, v: Any, c: Any) -> list[Any]:
    """The value, and gradients for a cotangent."""
    out, back = vjp(attention, q, k, v)
    return [out, *back(c)]


def program(given: list[Any], large: int) -> Program:
    """Of the value, or with gradients, in blocks where that saves so many bytes."""
    before, tile_fusion.MIN_SAVED_BYTES = tile_fusion.MIN_SAVED_BYTES, large
    try:
        return make_program(slopes if len(given) > 3 else attention)(*given).with_loops
    finally:
        tile_fusion.MIN_SAVED_BYTES = before


def native(given: list[Any]) -> Any:
    """By Paddle's tape."""
    if len(given) == 3:
        with paddle.no_grad():
            return attention(*given)
    leaves = [t.detach() for t in given[:3]]
    for t in leaves:
        t.stop_gradient = False
    return paddle.grad(attention(*leaves), leaves, [given[3]])


def by_torch(given: list[Any]) -> Callable[[], Any]:
    """By PyTorch's."""
    q, k, v, *c = (
        torch.from_numpy(t.numpy()).transpose(1, 2).contiguous() for t in given
    )
    if not c:
        return lambda: in_torch(q, k, v)
    leaves = [t.requires_grad_() for t in (q, k, v)]
    return lambda: torch.autograd.grad(in_torch(*leaves), leaves, c)


def row(b: int, n: int, heads: int, count: int) -> str:
    """A row of the table."""
    given = [paddle.randn([b, n, heads, WIDTH]) for _ in range(count)]
    whole, blocks = program(given, 1 << 60), program(given, tile_fusion.MIN_SAVED_BYTES)
    sides: dict[str, Callable[[], Any]] = {
        "native": lambda: native(given),
        "PyTorch": by_torch(given),
        "whole": lambda: whole.function(*given),
        "blocks": lambda: blocks.function(*given),
    }
    found = times(sides)
    ratios = (pick(found["blocks"]) / pick(found["native"]) for pick in (min, mean))
    cells = [f"{min(t) * 1e3:.3g} ({mean(t) * 1e3:.3g})" for t in found.values()]
    cells.append("**{:.2f}** ({:.2f})".format(*ratios))
    cells.append(", ".join(f"{p.peak_bytes / 2**20:.1f}" for p in (whole, blocks)))
    return f"| {b}, {n:,}, {heads} | " + " | ".join(cells) + " |"


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def times(sides: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Of each side, in turn."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for call in sides.values():
        call()
    names, start = [*sides], time.perf_counter()
    while time.perf_counter() - start < SECONDS or len(found[names[0]]) < LEAST:
        for name in names:
            before = time.thread_time()
            sides[name]()
            found[name].append(time.thread_time() - before)
        names = [names[-1], *names[:-1]] if len(found[names[0]]) % 2 else names[::-1]
    return found


def main() -> None:
    torch.set_num_threads(1)
    for count, title in ((4, "value and gradients"), (3, "value")):
        print(
            f"| {title}: samples, steps, heads | native | PyTorch | as a whole ", end=""
        )
        print("| in blocks | of native | memory as a whole, in blocks, MB |")
        print("|---" * 7 + "|")
        for b, heads in KINDS:
            for n in STEPS:
                if b * n < 4096:
                    print(row(b, n, heads, count), flush=True)
                    empty_cache()
        print()


if __name__ == "__main__":
    main()
