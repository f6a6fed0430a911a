"""A layer of one's own beside native Paddle: eager, to_static, and this package."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import paddle

from ..nets.description import aligned
from ..nets.layers.of_layer import stateless
from ..paddle_side.dtypes import dtype_name, is_differentiable
from ..paddle_side.process import log_level
from ..testing.checks import check_vjp
from ..testing.timings import SCATTER, interleave, scatter, timer
from ..transforms.containers.tree import flatten_tree
from .layers import short_message

FORWARD, GRADIENTS = "forward", "forward and gradients"
TURN_SECONDS = 0.05
"""Seconds that the calls of a side take in one of its turns."""

Calls = dict[str, Callable[[], Any]]


def bench_layer(
    layer: paddle.nn.Layer, inputs: tuple[Any, ...], rounds: int = 30
) -> dict[str, Any]:
    """Compare first, then time the sides in turn, on one thread where that was asked.

    Args:
        layer: the layer, in the mode in which it is to run.
        inputs: its positional arguments.
        rounds: turns of each side.

    Returns:
        For each task microseconds a call by side, the largest error of this package's
        gradients relative to native ones, and why a side is missing.

    Raises:
        AssertionError: the gradients of this package differ; the message is a table.
    """
    leaves, _ = flatten_tree(inputs)
    dtypes = {_name(x) for x in leaves if is_differentiable(x)} or {"float32"}
    report = check_vjp(layer, None, inputs, dtypes=sorted(dtypes))
    results: dict[str, Any] = {
        "error": max(row.error for row in report.rows if row.oracle == "native"),
        "missing": {},
        "us": {},
    }
    for task in (FORWARD, GRADIENTS):
        sides: Calls = {}
        for name, make in _sides(layer, inputs, task):
            try:
                with log_level.silenced():  # to_static says that its executor runs
                    call = make()
                    for _ in range(5):  # later calls run as programs
                        call()
            except Exception as error:  # of Paddle's to_static: whatever it meets
                if not name.startswith("paddle.jit"):
                    raise
                results["missing"][name] = short_message(error)
            else:
                sides[name] = call
        start = time.perf_counter()
        sides["native Paddle"]()
        count = max(1, min(1000, int(TURN_SECONDS / (time.perf_counter() - start))))
        timers = {name: timer(call) for name, call in sides.items()}
        results["us"][task] = interleave(timers, rounds, count, task)
    return results


def table(result: dict[str, Any]) -> str:
    """Return the results of :func:`bench_layer` as a table."""
    head = ("", "side", "us, min", "us, mean", "ratio to native")
    rows = [head]
    for task, sides in result["us"].items():
        native = sides["native Paddle"]["min"]
        for side, us in sides.items():
            ratio = three_digits(us["min"] / native)
            rows.append((task, side, f"{us['min']:.1f}", f"{us['mean']:.1f}", ratio))
            task = ""
    lines = [aligned(rows)]
    lines += [f"Without {side}: {reason}" for side, reason in result["missing"].items()]
    lines.append(
        "Gradients beside native ones: at most "
        f"{result['error']:.0e} of a tensor's largest entry apart."
    )
    apart = scatter(us for sides in result["us"].values() for us in sides.values())
    if apart > SCATTER:
        lines.append(
            f"The rounds scatter: a median is {apart:.1f} times the minimum, since the "
            "machine does other work; close other programs, or give more --rounds."
        )
    return "\n".join(lines)


def three_digits(ratio: float) -> str:
    """Return a ratio with three significant digits."""
    decimals = 2 - math.floor(math.log10(ratio)) if ratio > 0 else 2
    return f"{ratio:.{min(max(decimals, 0), 9)}f}"


def figure_type() -> Any:
    """Return matplotlib's class of figures.

    Raises:
        ModuleNotFoundError: matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a picture needs matplotlib; install it with pip install matplotlib",
            name="matplotlib",
        ) from error
    return Figure


def draw(result: dict[str, Any], path: str) -> None:
    """Draw the ratios as bars, one a side; see :func:`figure_type`."""
    figure = figure_type()(figsize=(8, 3.6), layout="constrained")
    panels = figure.subplots(1, len(result["us"]), sharey=True)
    for axes, (task, sides) in zip(panels, result["us"].items(), strict=True):
        native = sides["native Paddle"]["min"]
        ratios = [us["min"] / native for us in sides.values()]
        colors = ["C0" if side.startswith("stateless") else "C7" for side in sides]
        bars = axes.barh([*sides], ratios, color=colors)
        axes.bar_label(bars, [*map(three_digits, ratios)], padding=3)
        axes.axvline(1, color="black", linewidth=1)
        axes.set(title=task, xlabel="time / native Paddle", xlim=(0, 1.2 * max(ratios)))
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].invert_yaxis()
    figure.savefig(path, dpi=110)


def _sides(
    layer: paddle.nn.Layer, inputs: tuple[Any, ...], task: str
) -> Iterator[tuple[str, Callable[[], Callable[[], Any]]]]:
    leaves, structure = flatten_tree(inputs)
    leaves = [x.detach() if isinstance(x, paddle.Tensor) else x for x in leaves]
    native_inputs: Any = structure.unflatten(leaves)
    differentiated = [p for p in layer.parameters() if not p.stop_gradient]
    if task == GRADIENTS:
        for leaf in filter(is_differentiable, leaves):
            leaf.stop_gradient = False
            differentiated.append(leaf)
    outputs, output_structure = flatten_tree(layer(*native_inputs))
    differentiable = [is_differentiable(y) for y in outputs]
    seeds = [
        paddle.randn(y.shape).astype(y.dtype) if is_differentiable_output else None
        for y, is_differentiable_output in zip(outputs, differentiable, strict=True)
    ]
    used = [seed for seed in seeds if seed is not None]

    def native(layer: Any) -> Callable[[], Any]:
        if task == FORWARD:
            return lambda: layer(*native_inputs)

        def call() -> Any:
            ys = flatten_tree(layer(*native_inputs))[0]
            outputs_used = [
                y
                for y, is_differentiable_output in zip(ys, differentiable, strict=True)
                if is_differentiable_output
            ]
            return paddle.grad(outputs_used, differentiated, used, allow_unused=True)

        return call

    def static() -> Callable[[], Any]:
        return native(paddle.jit.to_static(layer.forward, full_graph=True))

    def ours(jit: bool | None) -> Callable[[], Any]:
        net, params, _ = stateless(layer, jit=jit)
        our_inputs: Any = structure.unflatten(
            [x.detach() if isinstance(x, paddle.Tensor) else x for x in leaves]
        )
        if task == FORWARD:
            return lambda: net.forward(params, *our_inputs)
        cotangent: Any = output_structure.unflatten(seeds)
        return lambda: net.pullback(params, *our_inputs)[1](cotangent)

    yield "native Paddle", lambda: native(layer)
    yield "paddle.jit.to_static", static
    yield "stateless(layer)", lambda: ours(None)
    yield "stateless(layer, jit=True)", lambda: ours(True)


def _name(x: Any) -> str:
    return dtype_name(x.dtype)
