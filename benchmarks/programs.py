"""Native Paddle, the tape, programs and other libraries on nets as people build them.

``make bench-programs``: forward and all gradients, in turn in one process, one thread
each; microseconds of native Paddle, and ratios to it. Prints Markdown, leaves JSON and
a picture in output/. PyTorch and JAX take part where they are installed. ``--as-it-is``
is for a run without MKL_DEBUG_CPU_TYPE, whose JSON has another name.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import matplotlib as mpl
import numpy as np
import paddle
from paddle.base import core
from tqdm import tqdm

import peers
from machine import OUTPUT, SETTLED, save
from nets import NETS, Named
from paddle_chainrules import grad, jit, make_program, stateless, value_and_grad
from paddle_chainrules.paddle_side.workspace import empty_cache
from paddle_chainrules.programs.codegen.matrix_products.blas import library
from paddle_chainrules.testing.timings import interleave, timer

mpl.use("Agg")
import matplotlib.pyplot as plt

QUICK = "QUICK" in os.environ
ROUNDS = 10 if QUICK else 40
BATCHES = (1, 64)
SIDES = ("to_static", "tape", "program", "PyTorch", "JAX jit")

Calls = dict[str, Callable[[], Any]]


def distance(found: Any, expected: Any) -> float:
    """Of the furthest tensor, in units of the last place of its largest entry.

    Without those that are zero but for rounding, as a bias before a norm is.
    """
    far = 0.0
    every = [float(np.abs(b.numpy()).max(initial=0)) for b in expected if b is not None]
    for a, b in zip(found, expected, strict=True):
        if a is None or b is None:
            assert a is b
            continue
        x, y = _array(a), b.numpy()
        if np.abs(y).max(initial=0) < 1e-5 * max(every):
            continue
        unit = np.spacing(np.abs(y).max(initial=0))
        far = max(far, float(np.abs(x - y).max(initial=0) / unit))
    return far


def _array(tensor: Any) -> Any:
    return np.asarray(tensor.detach() if hasattr(tensor, "detach") else tensor)


def sides_of(name: str, batch: int) -> tuple[Calls, float]:
    """Calls that give all gradients, and the seconds of the first two of programs."""
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
    static = paddle.jit.to_static(make(), full_graph=True)
    static.set_state_dict(layer.state_dict())

    def native() -> Any:
        return paddle.grad([layer(leaf)], leaves, [cotangent])

    def to_static() -> Any:
        return paddle.grad([static(leaf)], [*static.parameters(), leaf], [cotangent])

    def of(net: Any) -> Callable[[], Any]:
        def call() -> Any:
            grads, (by_x,) = net.pullback(params, x)[1](cotangent)
            return [*grads.values(), by_x]

        return call

    calls = {"native": native, "to_static": to_static}
    calls |= {"tape": of(tape), "program": of(net)}
    start = time.perf_counter()
    calls["program"]()
    calls["program"]()
    first = time.perf_counter() - start
    program, values = program_of(tape, params, x)
    given = program, [*values, x.numpy()], cotangent.numpy()
    return calls | others(
        peers.gradients_in_torch, peers.gradients_in_jax, *given
    ), first


def others(in_torch: Any, in_jax: Any, *given: Any) -> Calls:
    """The sides of other libraries that are installed."""
    found = {}
    if find_spec("torch"):
        found["PyTorch"] = in_torch(*given)
    if find_spec("jax"):
        found["JAX jit"] = in_jax(*given)
    return found


def program_of(net: Any, params: Any, x: Any) -> tuple[Any, list[np.ndarray]]:
    """The forward pass as a program of a list of parameters and x, and these."""

    def forward(values: Any, x: Any) -> Any:
        return net.forward(dict(zip(params, values, strict=True)), x)

    values = [*params.values()]
    return make_program(forward)(values, x), [value.numpy() for value in values]


def equation(width: int, points: int, dtype: str) -> Calls:
    """A step with two second derivatives: eager, as programs, in other libraries."""
    paddle.seed(0)
    layer = Named([2, width, width, 1]).to(dtype=dtype)
    net, params, _ = stateless(layer)
    x = paddle.rand([points, 2], dtype)

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
        loss, grads = program(params, x)
        return [loss, *grads.values()]

    calls = {
        "native": lambda: eager(x),
        "jit(value_and_grad(loss))": with_ours,
        "jit(eager step)": lambda: step(x),
    }
    given = *program_of(net, params, x), x.numpy()
    return calls | others(peers.equation_in_torch, peers.equation_in_jax, *given)


def measured(calls: Calls) -> dict[str, dict[str, float]]:
    start = time.perf_counter()
    calls["native"]()
    count = max(1, int(0.01 / (time.perf_counter() - start)))
    return interleave({k: timer(c) for k, c in calls.items()}, ROUNDS, count)


def peak(call: Callable[[], Any]) -> int:
    """Bytes of tensors at most at a time, beyond those that there are before."""
    empty_cache()
    before = core.host_memory_stat_current_value("Allocated", 0)
    core.host_memory_stat_reset_peak_value("Allocated", 0)
    call()
    return int(core.host_memory_stat_peak_value("Allocated", 0)) - before


def compared(calls: Calls) -> dict[str, Any]:
    """Times, distances from native Paddle, and memory."""
    native = calls["native"]()
    largest = max(float(g.abs().max()) for g in native if g is not None)
    far = {}
    by = library()
    is_mkl = by is not None and by.names.get("float32") == "mkl"
    others = ("PyTorch", "JAX jit", *([] if is_mkl else ["program"]))
    for name, call in calls.items():
        for _ in range(SETTLED):
            found = call()
        far[name] = distance(found, native)
        for a, b in zip(found, native, strict=True):
            if a is not None:
                # Sines of large numbers, as in a SIREN, differ by others' sums.
                most = 1e-3 if name in others else 1e-4
                assert np.abs(_array(a) - b.numpy()).max() < most * largest, name
    return {
        "times": measured(calls),
        "ulp": far,
        "bytes": {k: peak(calls[k]) for k in calls if k not in ("PyTorch", "JAX jit")},
    }


def ratio(found: dict[str, Any], side: str) -> str:
    if side not in found["times"]:
        return "-"
    base = found["times"]["native"]
    low, mean = (found["times"][side][k] / base[k] for k in ("min", "mean"))
    return f"**{low:.2f}** ({mean:.2f})"


def table(
    rows: dict[str, Any], labels: list[str], sides: tuple[str, ...], last: str
) -> str:
    """Write a row for each label, whose parts at commas fill the first columns."""
    head = [*labels, "native, us", *sides, "ulp apart", "memory / native"]
    first = any("first" in found for found in rows.values())
    head += ["first two calls, ms"] if first else []
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for label, found in rows.items():
        cells = label.rsplit(", ", len(labels) - 1)
        cells += [f"{found['times']['native']['min']:.0f}"]
        cells += [ratio(found, side) for side in sides]
        memory = found["bytes"]
        cells += [f"{found['ulp'][last]:.0f}", f"{memory[last] / memory['native']:.2f}"]
        cells += [f"{1e3 * found['first']:.0f}"] if first else []
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def table_of_nets(rows: dict[str, Any]) -> str:
    return table(rows, ["net", "batch"], SIDES, "program")


def short_table(results: dict[str, Any]) -> str:
    """Nets of 64 samples and equations, with what is compiled alone."""
    sides = ("program", "PyTorch", "JAX jit")
    head = ["net or equation", "native, us", *sides]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    nets = results["nets"].items()
    rows = {k.removesuffix(", 64"): v for k, v in nets if k.endswith(", 64")}
    for label, found in (rows | results["equations"]).items():
        ours = "program" if "program" in found["times"] else "jit(eager step)"
        native = f"{found['times']['native']['min']:.0f}"
        cells = [ratio(found, side) for side in (ours, *sides[1:])]
        lines.append(f"| {' | '.join([label, native, *cells])} |")
    return "\n".join(lines)


def table_of_equations(steps: dict[str, Any]) -> str:
    both = "jit(value_and_grad(loss))", "jit(eager step)"
    labels = ["net", "points", "dtype"]
    steps = {name.replace(" points", ""): found for name, found in steps.items()}
    return table(steps, labels, (*both, "PyTorch", "JAX jit"), both[1])


def picture(rows: dict[str, Any]) -> None:
    """Ratios of minima, a panel for each batch, in docs/programs.png."""
    figure, panels = plt.subplots(1, len(BATCHES), figsize=(11, 6.5), sharey=True)
    names = [*NETS]
    marks = {
        "to_static": "v",
        "tape": "s",
        "program": "o",
        "PyTorch": "^",
        "JAX jit": "D",
    }
    for panel, batch in zip(panels, BATCHES, strict=True):
        panel.axvline(1, color="black", linewidth=1)
        for side, mark in marks.items():
            pairs = [
                (times[side]["min"] / times["native"]["min"], i)
                for i, name in enumerate(names)
                if side in (times := rows[f"{name}, {batch}"]["times"])
            ]
            if pairs:
                size = 60 if side == "program" else 32
                panel.scatter(
                    *zip(*pairs, strict=True), marker=mark, s=size, label=side
                )
        panel.set(xscale="log", title=f"batch {batch}", xlabel="time / native Paddle")
        ticks = [0.05, 0.1, 0.2, 0.5, 1, 2]
        panel.set_xticks(ticks, [str(t) for t in ticks])
        panel.minorticks_off()
        panel.set_yticks(range(len(names)), names)
        panel.grid(alpha=0.3)
    panels[0].invert_yaxis()
    figure.suptitle("Forward and all gradients, one thread; left is faster")
    labels = panels[0].get_legend_handles_labels()
    figure.legend(*labels, loc="lower center", ncols=len(marks))
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    OUTPUT.mkdir(exist_ok=True)
    figure.savefig(OUTPUT / "programs.png", dpi=110)


def main(as_it_is: bool) -> None:
    if as_it_is and "MKL_DEBUG_CPU_TYPE" in os.environ:
        raise SystemExit("unset MKL_DEBUG_CPU_TYPE, which --as-it-is does without")
    rows = {}
    for name in tqdm(NETS, unit="net"):
        for batch in BATCHES:
            calls, first = sides_of(name, batch)
            rows[f"{name}, {batch}"] = {**compared(calls), "first": first}
    print(table_of_nets(rows), end="\n\n")
    steps = {}
    cases = ((16, 100, "float32"), (64, 1000, "float32"), (64, 1000, "float64"))
    for width, points, dtype in tqdm(cases, unit="equation"):
        label = f"2 x {width}, {points} points, {dtype}"
        steps[label] = compared(equation(width, points, dtype))
    print(table_of_equations(steps))
    save(
        "programs_as_it_is" if as_it_is else "programs",
        {"nets": rows, "equations": steps},
    )
    if not as_it_is:
        picture(rows)


if __name__ == "__main__":
    main("--as-it-is" in sys.argv)
