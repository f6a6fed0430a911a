"""Many samples at once by ``vmap``, against loops and PyTorch's ``vmap``.

``make bench-batches``: gradients of each of 64 samples of an MLP; values of an ensemble
of 32 such nets, and gradients of their losses; float32, one thread each, sides in turn.
Loops are of functions in ``jit``, and of Paddle's own layers with ``paddle.grad``.
Prints Markdown, leaves JSON in output/.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import paddle

from machine import save
from nets import chain
from paddle_chainrules import FCNet, grad, jit, stack_params, vmap
from paddle_chainrules.testing.timings import interleave, timer

ROUNDS = 10 if "QUICK" in os.environ else 100
SIZES = (8, 64, 64, 1)
SAMPLES, NETS, POINTS, FEW = 64, 32, 100, 10

Sides = dict[str, Callable[[], Any]]


def gradients() -> Sides:
    """Of each sample by all parameters."""
    net = FCNet(SIZES, "tanh")
    params, x = net.init(0), paddle.rand([SAMPLES, SIZES[0]])
    of_one = grad(lambda p, x: square(net(p, x)))
    every, one = jit(vmap(of_one, (None, 0))), jit(of_one)
    rows, layer = paddle.unbind(x), chain([*SIZES])
    sides: Sides = {
        "vmap": lambda: every(params, x),
        "loop": lambda: [one(params, row) for row in rows],
        "Paddle": lambda: [by_paddle(layer, row, square) for row in rows],
    }
    if find_spec("torch"):
        import torch

        theirs, at = in_torch(torch, params), torch.tensor(x.numpy())
        of_row = torch.func.grad(lambda p, x: square(forward(torch, p, x)))
        many = torch.func.vmap(of_row, in_dims=(None, 0))
        sides["PyTorch"] = lambda: many(theirs, at)
    return sides


def ensemble() -> Sides:
    """Of nets at the same points."""
    net = FCNet(SIZES, "tanh")
    params = [net.init(seed) for seed in range(NETS)]
    stacked, x = stack_params(params), paddle.rand([POINTS, SIZES[0]])
    every, one = jit(vmap(net, (0, None))), jit(net)
    layers = [chain([*SIZES]) for _ in range(NETS)]
    sides: Sides = {
        "vmap": lambda: every(stacked, x),
        "loop": lambda: [one(p, x) for p in params],
        "Paddle": lambda: [layer(x) for layer in layers],
    }
    if find_spec("torch"):
        import torch

        theirs, at = in_torch(torch, stacked), torch.tensor(x.numpy())
        many = torch.func.vmap(lambda p, x: forward(torch, p, x), in_dims=(0, None))
        sides["PyTorch"] = lambda: many(theirs, at)
    return sides


def trained() -> Sides:
    """Gradients of the losses of nets at the same points."""
    net = FCNet(SIZES, "tanh")
    params = [net.init(seed) for seed in range(NETS)]
    stacked, x = stack_params(params), paddle.rand([FEW, SIZES[0]])
    of_one = grad(lambda p, x: square(net(p, x)))
    every, one = jit(vmap(of_one, (0, None))), jit(of_one)
    layers = [chain([*SIZES]) for _ in range(NETS)]
    sides: Sides = {
        "vmap": lambda: every(stacked, x),
        "loop": lambda: [one(p, x) for p in params],
        "Paddle": lambda: [by_paddle(layer, x, square) for layer in layers],
    }
    if find_spec("torch"):
        import torch

        theirs, at = in_torch(torch, stacked), torch.tensor(x.numpy())
        of_net = torch.func.grad(lambda p, x: square(forward(torch, p, x)))
        many = torch.func.vmap(of_net, in_dims=(0, None))
        sides["PyTorch"] = lambda: many(theirs, at)
    return sides


def square(y: Any) -> Any:
    return (y**2).sum()


def by_paddle(layer: Any, x: Any, loss: Callable[[Any], Any]) -> Any:
    return paddle.grad(loss(layer(x)), layer.parameters())


def forward(torch: Any, params: dict[str, Any], x: Any) -> Any:
    layers = len(SIZES) - 1
    for i in range(layers):
        x = x @ params[f"{i}.weight"] + params[f"{i}.bias"]
        x = torch.tanh(x) if i < layers - 1 else x
    return x


def in_torch(torch: Any, params: dict[str, Any]) -> dict[str, Any]:
    return {name: torch.tensor(p.numpy()) for name, p in params.items()}


def ratios(us: dict[str, Any], ours: str, sides: Sequence[str]) -> list[str]:
    """How many times longer sides take, minimum and mean; nothing where one is not."""
    own = us[ours]
    return [
        f"**{us[s]['min'] / own['min']:.1f}** ({us[s]['mean'] / own['mean']:.1f})"
        if s in us
        else ""
        for s in sides
    ]


def table(rows: dict[str, Any]) -> str:
    lines = [
        "| float32 | vmap, us | loop / vmap | Paddle's loop / vmap | "
        "PyTorch's vmap / vmap |",
        "|---|---|---|---|---|",
    ]
    for name, us in rows.items():
        cells = ratios(us, "vmap", ("loop", "Paddle", "PyTorch"))
        lines.append(f"| {name} | {us['vmap']['min']:.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    if find_spec("torch"):
        import torch

        torch.set_num_threads(1)
    rows = {}
    tasks = {
        f"gradients of {SAMPLES} samples": gradients,
        f"values of {NETS} nets, {POINTS} points": ensemble,
        f"gradients of {NETS} nets, {FEW} points": trained,
    }
    for name, sides_of in tasks.items():
        sides = sides_of()
        for call in sides.values():
            call()
            call()
        timers = {s: timer(call) for s, call in sides.items()}
        rows[name] = interleave(timers, ROUNDS, 1, name)
    print(table(rows))
    save("batches", {"rows": rows})


if __name__ == "__main__":
    main()
