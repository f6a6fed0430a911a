"""Many samples at once by ``vmap``, against loops and PyTorch's ``vmap``.

``make bench-batches``: gradients of each of 64 samples of an MLP, and an ensemble of 32
such nets; float32, one thread each, sides in turn. Loops are of functions in ``jit``.
Prints Markdown.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import paddle

from paddle_chainrules import FCNet, grad, jit, stack_params, vmap
from sides import interleave, timer

ROUNDS = 10 if "QUICK" in os.environ else 100
SIZES = (8, 64, 64, 1)
SAMPLES, NETS, POINTS = 64, 32, 100

Sides = dict[str, Callable[[], Any]]


def gradients() -> Sides:
    """Of each sample by all parameters."""
    net = FCNet(SIZES, "tanh")
    params, x = net.init(0), paddle.rand([SAMPLES, SIZES[0]])
    of_one = grad(lambda p, x: (net(p, x) ** 2).sum())
    every, one = jit(vmap(of_one, (None, 0))), jit(of_one)
    rows = paddle.unbind(x)
    sides: Sides = {
        "vmap": lambda: every(params, x),
        "loop": lambda: [one(params, row) for row in rows],
    }
    if find_spec("torch"):
        import torch

        theirs, at = in_torch(torch, params), torch.tensor(x.numpy())
        of_row = torch.func.grad(lambda p, x: (forward(torch, p, x) ** 2).sum())
        many = torch.func.vmap(of_row, in_dims=(None, 0))
        sides["PyTorch"] = lambda: many(theirs, at)
    return sides


def ensemble() -> Sides:
    """Of nets at the same points."""
    net = FCNet(SIZES, "tanh")
    params = [net.init(seed) for seed in range(NETS)]
    stacked, x = stack_params(params), paddle.rand([POINTS, SIZES[0]])
    every, one = jit(vmap(net, (0, None))), jit(net)
    sides: Sides = {
        "vmap": lambda: every(stacked, x),
        "loop": lambda: [one(p, x) for p in params],
    }
    if find_spec("torch"):
        import torch

        theirs, at = in_torch(torch, stacked), torch.tensor(x.numpy())
        many = torch.func.vmap(lambda p, x: forward(torch, p, x), in_dims=(0, None))
        sides["PyTorch"] = lambda: many(theirs, at)
    return sides


def forward(torch: Any, params: dict[str, Any], x: Any) -> Any:
    layers = len(SIZES) - 1
    for i in range(layers):
        x = x @ params[f"{i}.weight"] + params[f"{i}.bias"]
        x = torch.tanh(x) if i < layers - 1 else x
    return x


def in_torch(torch: Any, params: dict[str, Any]) -> dict[str, Any]:
    return {name: torch.tensor(p.numpy()) for name, p in params.items()}


def main() -> None:
    if find_spec("torch"):
        import torch

        torch.set_num_threads(1)
    print(
        "| float32 | vmap, us | loop / vmap | PyTorch's vmap / vmap |\n"
        "|---|---|---|---|"
    )
    tasks = {
        f"gradients of {SAMPLES} samples": gradients,
        f"ensemble of {NETS} nets, {POINTS} points": ensemble,
    }
    for name, sides_of in tasks.items():
        sides = sides_of()
        for call in sides.values():
            call()
            call()
        us = interleave({s: timer(call) for s, call in sides.items()}, ROUNDS, 1)
        ours = us["vmap"]
        cells = [
            f"**{us[s]['min'] / ours['min']:.1f}** ({us[s]['mean'] / ours['mean']:.1f})"
            if s in us
            else ""
            for s in ("loop", "PyTorch")
        ]
        print(f"| {name} | {ours['min']:.0f} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
