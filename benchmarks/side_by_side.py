"""The same nets and equations in all libraries: make bench-side-by-side.

Gradients by all parameters and inputs of nets, and loss and gradient of equations'
residuals: native Paddle (eager, nested ``paddle.grad``), ``paddle.jit.to_static``, this
package, PyTorch (eager, ``torch.compile``, ``torch.func``), JAX compiled, and the
derivatives of DeepXDE and PaddleScience on Paddle. In turn in one process, one thread
each, of the same numbers, all compared with native Paddle before. Prints Markdown,
leaves JSON and a picture in output/. What is not installed, or can't do a row, is left
out, and the JSON says why.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("DDE_BACKEND", "paddle")
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import matplotlib as mpl
import numpy as np
import paddle
from tqdm import tqdm

import peers
from equations import STEPS, Step
from machine import OUTPUT, SETTLED, save
from nets import NETS
from paddle_chainrules import stateless
from paddle_chainrules.testing.timings import interleave, timer
from programs import program_of

mpl.use("Agg")
import matplotlib.pyplot as plt

QUICK = "QUICK" in os.environ
ROUNDS = 8 if QUICK else 40
BURST = 0.02
"""Seconds that a side's calls take in a turn, as far as one call is shorter."""

BATCH = 64
ROWS = (
    *("MLP 3-64-64-64-1", "MLP with LayerNorm", "convolutional net"),
    *("Transformer encoder layer", "PirateNet, two blocks", "DeepONet"),
)
EQUATIONS = ("Poisson, MLP 3x64", "Burgers, MLP 5x64")
STYLE = {
    "to_static": ("C7", "v"),
    "ours": ("C0", "o"),
    "PyTorch": ("C3", "^"),
    "torch.compile": ("C3", "D"),
    "torch.func": ("C3", "<"),
    "JAX jit": ("C6", "s"),
    "DeepXDE": ("C2", "P"),
    "PaddleScience": ("C1", "X"),
}

Side = Callable[[], list[Any]]


def of_net(name: str) -> dict[str, Callable[[], Side]]:
    """Makers of the sides' calls; each call gives all gradients."""
    paddle.seed(0)
    make, shape = NETS[name]
    layer = make()
    net, params, _ = stateless(layer, jit=True)
    x = paddle.randn([BATCH, *shape])
    cotangent = paddle.randn(layer(x).shape)
    leaf = x.clone()
    leaf.stop_gradient = False

    def native(forward: Any = layer) -> Side:
        leaves = [*layer.parameters(), leaf]
        return lambda: paddle.grad([forward(leaf)], leaves, [cotangent])

    def ours() -> Side:
        def call() -> list[Any]:
            grads, (by_x,) = net.pullback(params, x)[1](cotangent)
            return [*grads.values(), by_x]

        return call

    def given() -> Any:
        program, values = program_of(stateless(layer, jit=False)[0], params, x)
        return program, [*values, x.numpy()], cotangent.numpy()

    return {
        "native": native,
        "to_static": lambda: native(
            paddle.jit.to_static(layer.forward, full_graph=True)
        ),
        "ours": ours,
        "PyTorch": lambda: peers.gradients_in_torch(*given()),
        "torch.compile": lambda: peers.gradients_in_torch(*given(), way="compile"),
        "torch.func": lambda: peers.gradients_in_torch(*given(), way="func"),
        "JAX jit": lambda: peers.gradients_in_jax(*given()),
    }


def of_equation(name: str) -> dict[str, Callable[[], Side]]:
    """Makers of the sides' calls; each call gives the loss and all gradients."""
    step = Step(name)
    return {
        "native": lambda: step.native,
        "to_static": lambda: static(step),
        "ours": step.ours,
        "PyTorch": lambda: in_torch(step, ""),
        "torch.compile": lambda: in_torch(step, "compile"),
        "torch.func": lambda: in_torch(step, "func"),
        "JAX jit": step.in_jax,
        "DeepXDE": lambda: in_deepxde(step),
        "PaddleScience": lambda: in_science(step),
    }


def static(step: Step) -> Side:
    """The step of native Paddle as a function that ``to_static`` takes."""

    def native() -> list[Any]:
        return step.native()

    return paddle.jit.to_static(native, full_graph=True)


def in_torch(step: Step, way: str) -> Side:
    """Nested ``autograd.grad``, or forward mode within forward mode by torch.func."""
    import torch

    torch.set_num_threads(1)
    program, values = program_of(step.net, step.params, step.x)
    net = peers.with_table(program, peers.torch_table(), torch.tensor)
    points = torch.tensor(step.x.numpy())

    def along(u: Any, axis: int) -> Any:
        direction = torch.zeros_like(points)
        direction[:, axis] = 1
        return lambda x: torch.func.jvp(u, (x,), (direction,))[1]

    def loss(*leaves: Any) -> Any:
        def derivative(index: tuple[int, ...]) -> Any:
            u = lambda x: net(*leaves, x)[0]  # noqa: E731
            for axis, times in enumerate(index):
                for _ in range(times):
                    u = along(u, axis)
            return u(points)

        return (step.residual(*map(derivative, step.indices)) ** 2).mean()

    if way:
        leaves = [torch.tensor(value) for value in values]
        every = tuple(range(len(leaves)))
        both = torch.func.grad_and_value(loss, argnums=every)
        both = torch.compile(both) if way == "compile" else both

        def call() -> list[Any]:
            grads, value = both(*leaves)
            return [value, *grads]

        return call
    leaves = [torch.tensor(value, requires_grad=True) for value in values]

    def nested() -> list[Any]:
        x = points.clone().requires_grad_()
        made = {(0, 0): net(*leaves, x)[0]}

        def derivative(index: tuple[int, int]) -> Any:
            if index not in made:
                below = (index[0] - 1, index[1]) if index[0] else (0, index[1] - 1)
                value = derivative(below).sum()
                slopes = torch.autograd.grad(value, x, create_graph=True)[0]
                for i, more in enumerate(((1, 0), (0, 1))):
                    above = below[0] + more[0], below[1] + more[1]
                    made.setdefault(above, slopes[:, i : i + 1])
            return made[index]

        value = (step.residual(*map(derivative, step.indices)) ** 2).mean()
        return [value, *torch.autograd.grad(value, leaves, allow_unused=True)]

    return nested


def in_deepxde(step: Step) -> Side:
    """DeepXDE's derivatives on Paddle, of the same layer."""
    import deepxde as dde

    def derivative(u: Any, x: Any, index: tuple[int, int]) -> Any:
        axes = [0] * index[0] + [1] * index[1]
        if not axes:
            return u
        if len(axes) == 1:
            return dde.grad.jacobian(u, x, i=0, j=axes[0])
        return dde.grad.hessian(u, x, component=0, i=axes[0], j=axes[1])

    def call() -> list[Any]:
        x = step.x.detach()
        x.stop_gradient = False
        u = step.layer(x)
        found = [derivative(u, x, index) for index in step.indices]
        loss = (step.residual(*found) ** 2).mean()
        dde.grad.clear()
        leaves = step.layer.parameters()
        return [loss, *paddle.grad(loss, leaves, allow_unused=True)]

    return call


def in_science(step: Step) -> Side:
    """PaddleScience's derivatives, whose coordinates are tensors of their own."""
    from ppsci.autodiff import clear, hessian, jacobian

    def derivative(u: Any, coords: list[Any], index: tuple[int, int]) -> Any:
        axes = [0] * index[0] + [1] * index[1]
        if not axes:
            return u
        if len(axes) == 1:
            return jacobian(u, coords[axes[0]])
        assert axes[0] == axes[1]
        return hessian(u, coords[axes[0]])

    def call() -> list[Any]:
        coords = [step.x[:, i : i + 1].detach() for i in range(2)]
        for coord in coords:
            coord.stop_gradient = False
        u = step.layer(paddle.concat(coords, axis=1))
        found = [derivative(u, coords, index) for index in step.indices]
        loss = (step.residual(*found) ** 2).mean()
        clear()
        leaves = step.layer.parameters()
        return [loss, *paddle.grad(loss, leaves, allow_unused=True)]

    return call


def compared(makers: dict[str, Callable[[], Side]]) -> dict[str, Any]:
    """Times of the sides that can, and why others can't."""
    calls: dict[str, Side] = {}
    missing, errors = {}, {}
    expected: list[Any] = []
    for name, make in makers.items():
        try:
            call = make()
            for _ in range(SETTLED):
                found = call()
        except Exception as error:  # of compilers and libraries, whatever it is
            if name in ("native", "ours"):
                raise
            last = (str(error).strip().splitlines() or [""])[-1]
            missing[name] = f"{type(error).__name__}: {last[:300]}"
            continue
        expected = expected or found
        errors[name] = furthest(found, expected)
        assert errors[name] < 1e-3, (name, errors[name])
        calls[name] = call
    once = timer(calls["native"])(3) / 3
    count = max(1, int(BURST / once))
    us = interleave({k: timer(c) for k, c in calls.items()}, ROUNDS, count)
    return {"us": us, "errors": errors, "missing": missing}


def furthest(found: Any, expected: Any) -> float:
    """The largest difference, relative to the largest entry of all."""

    def array(value: Any) -> Any:
        return np.asarray(value.detach() if hasattr(value, "detach") else value)

    pairs = [
        (array(a), array(b))
        for a, b in zip(found, expected, strict=True)
        if a is not None and b is not None
    ]
    largest = max(float(np.abs(b).max()) for _, b in pairs)
    return max(float(np.abs(a - b).max()) for a, b in pairs) / largest


def picture(rows: dict[str, Any], path: Path) -> None:
    """Ratios of minima, a line a row."""
    figure, axes = plt.subplots(figsize=(9, 5.2), layout="constrained")
    names = [*rows]
    axes.axvline(1, color="black", linewidth=1)
    for side, (color, marker) in STYLE.items():
        pairs = [
            (us[side]["min"] / us["native"]["min"], i)
            for i, name in enumerate(names)
            if side in (us := rows[name]["us"])
        ]
        if pairs:
            size = 90 if side == "ours" else 45
            points = zip(*pairs, strict=True)
            axes.scatter(*points, c=color, marker=marker, s=size, label=side)
    axes.set_xscale("log")
    ticks = [0.1, 0.2, 0.5, 1, 2, 5]
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(alpha=0.3)
    axes.set_xlabel("time / native Paddle (left is faster)")
    axes.set_title("Values and all gradients, one thread, the same numbers")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def table(rows: dict[str, Any]) -> str:
    """Ratios of the minima to native Paddle."""
    head = ["net or equation", "native, us", *STYLE]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name, row in rows.items():
        native = row["us"]["native"]["min"]
        cells = [name, f"{native:.0f}"]
        for side in STYLE:
            us = row["us"].get(side)
            ratio = f"{us['min'] / native:.2f}" if us else ""
            cells.append(f"**{ratio}**" if side == "ours" else ratio)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def why_not(rows: dict[str, Any]) -> str:
    """Sides that were there and could not do a row."""
    told: dict[str, list[str]] = {}
    for name, row in rows.items():
        for side, why in row["missing"].items():
            if "ModuleNotFoundError" not in why:
                told.setdefault(side, []).append(name.partition(",")[0])
    return "; ".join(f"{side}: {', '.join(names)}" for side, names in told.items())


def main() -> None:
    warnings.simplefilter("ignore")
    rows = {}
    bar = tqdm([*ROWS, *EQUATIONS], unit="row")
    for name in bar:
        bar.set_postfix_str(name)
        if name in NETS:
            rows[f"{name}, {BATCH} samples"] = compared(of_net(name))
        else:
            label = f"{name}, {STEPS[name][2]} points"
            rows[label] = compared(of_equation(name))
    save("side_by_side", {"rows": rows})
    picture(rows, OUTPUT / "side_by_side.png")
    print(table(rows), why_not(rows), sep="\n\n")


if __name__ == "__main__":
    main()
