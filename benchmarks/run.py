"""Compare native Paddle, this package, and what else is installed: make bench.

One run, all sides in turn, one thread each. Hosted by Julia where Julia and its
packages are there (julia_sides.jl), by Python alone otherwise. Prints Markdown; leaves
JSON and pictures in output/.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from tqdm import tqdm

from machine import OUTPUT, machine
from memory import peak
from paddle_chainrules import julia
from paddle_chainrules.testing.timings import interleave
from sides import (
    FORWARD,
    GENERAL,
    PULLBACK,
    TASKS,
    Case,
    Poisson,
    general_timers,
)

# One thread on every side: OMP_NUM_THREADS and the like come from the Makefile.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)
mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
SMALL = (8, 64, 4)
BATCHES = (1, 8, 16, 32, 64)
WIDTHS = (8, 16, 32)
POINTS = (100, 1_000, 10_000, 100_000)
OPTIONAL = {
    "ours, Julia": "Julia with PaddleChainRules",
    "PyTorch": "pip install torch",
    "JAX jit": "pip install jax",
    "DeepXDE": "pip install deepxde",
}

SCALES = {
    "width": [((n, n, n), 64) for n in (8, 32, 128, 512, 2048)],
    "depth": [((64,) * (n + 1), 64) for n in (1, 2, 4, 8, 16)],
    "batch": [((8, 64, 4), n) for n in (1, 16, 256, 4096, 65536)],
}


def measure(quick: bool, in_julia: Mapping[str, Callable[..., Any]]) -> dict:
    """All tables, as rows of microseconds per side."""
    # Enough rounds that a garbage collection does not fall into every one of a side.
    rounds, calls = (40, 20) if quick else (60, 50)
    scales = {} if quick else SCALES
    steps = len(BATCHES) * len(TASKS) + len(GENERAL) * len(TASKS)
    steps += sum(map(len, scales.values())) * len(TASKS)
    steps += ("crossing" in in_julia) + ("steady" in in_julia) + len(WIDTHS)
    steps += 0 if quick else len(POINTS)
    with tqdm(total=steps, desc="measuring", unit="row") as bar:

        def row(key: dict, timers: dict, rounds: int, calls: int) -> dict:
            gc.collect()
            bar.set_postfix_str(" ".join(str(value) for value in key.values()))
            found = {**key, "us": interleave(timers, rounds, calls)}
            bar.update()
            return found

        def sides(case: Case, task: str, peers: bool) -> dict:
            timers = case.timers(task, peers)
            if "report" in in_julia:
                timers |= dict(in_julia["report"](case, task))
            return timers

        report = [
            row({"task": t, "batch": n}, sides(Case(SMALL, n), t, True), rounds, calls)
            for n in BATCHES
            for t in TASKS
        ]
        general = [
            row(
                {"task": t, "layer": name},
                general_timers(name, t, in_julia.get("general")),
                rounds,
                calls // 5,
            )
            for name in GENERAL
            for t in TASKS
        ]

        again = None
        if "steady" in in_julia:
            bar.set_postfix_str("again and again")
            timed, grown = (2_000, 10_000) if quick else (10_000, 100_000)
            found = {
                k: dict(v) for k, v in dict(in_julia["steady"](timed, grown)).items()
            }
            again = {"timed": timed, "calls": grown, "sides": found}
            bar.update()
        exchange = None
        if "crossing" in in_julia:
            timers = dict(in_julia["crossing"]())
            exchange = row({"tensor": "8 x 64"}, timers, rounds, 200)

        def poisson_sides(case: Poisson, peers: bool) -> tuple[dict, dict]:
            timers, about = case.timers(peers), {}
            if "poisson" in in_julia:
                found, error = in_julia["poisson"](case)
                timers |= dict(found)
                about["error of differences"] = float(error)
            return timers, about

        poisson = []
        for width in WIDTHS:
            timers, about = poisson_sides(Poisson(width), True)
            found = row({"width": width}, timers, rounds, max(5, calls // 5))
            poisson.append(found | about)
        scaling = []
        for what, cases in scales.items():
            for sizes, batch in cases:
                case = Case(sizes, batch)
                few = max(1, min(50, int(2e8 / (case.flops + 1e6))))
                for t in TASKS:
                    key = {"task": t, "sweep": what, "sizes": sizes, "batch": batch}
                    key |= {"flops": case.flops * (1 if t == FORWARD else 3)}
                    key |= {"parameters": case.net.spec.size}
                    scaling.append(row(key, sides(case, t, False), 7, few))
        # Last, since it leaves a large heap.
        points = []
        for n in () if quick else POINTS:
            timers, _ = poisson_sides(Poisson(16, n), False)
            timers.pop("ours, stencil, Julia", None)
            few = max(1, 10_000 // n)
            found = row({"points": n}, timers, 10 if n < 100_000 else 2, few)
            found["bytes"] = {}
            for side, seconds in timers.items():
                in_julia.get("collect", gc.collect)()
                found["bytes"][side] = peak(lambda seconds=seconds: seconds(1))
            points.append(found)
    return {
        "report": report,
        "general": general,
        "crossing": exchange,
        "steady": again,
        "poisson": poisson,
        "points": points,
        "scaling": scaling,
    }


def table(
    rows: list[dict], keys: tuple[str, ...], reference: str = "native Paddle"
) -> str:
    """Markdown: microseconds a call, minimum (mean), and the ratio to a reference."""
    sides = list(dict.fromkeys(side for row in rows for side in row["us"]))
    head = [*keys, *sides]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in rows:
        cells = [str(row[key]) for key in keys]
        native = row["us"].get(reference)
        for side in sides:
            us = row["us"].get(side)
            if us is None:
                cells.append("")
                continue
            cell = f"{us['min']:.1f} ({us['mean']:.1f})"
            if native and side != reference:
                cell += f" **{us['min'] / native['min']:.2f}**"
            cells.append(cell)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def bytes_table(rows: list[dict]) -> str:
    """Markdown: bytes a point by side, where there are enough points to tell."""
    sides = list(rows[0]["bytes"])
    lines = ["| points | " + " | ".join(sides) + " |", "|---" * (len(sides) + 1) + "|"]
    for row in rows:
        n = row["points"]
        if n >= 10_000:
            cells = [f"{row['bytes'][side] / n:.0f}" for side in sides]
            lines.append(f"| {n} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text(results: dict) -> str:
    """The whole report in Markdown."""
    about, tables = results["machine"], results["tables"]
    facts = ", ".join(f"{k} {v}" for k, v in about.items() if v is not None)
    rows = [*tables["report"], *tables["poisson"]]
    sides = {side for row in rows for side in row["us"]}
    missing = [f"{s} ({how})" for s, how in OPTIONAL.items() if s not in sides]
    net = "-".join(map(str, SMALL))
    parts = [
        "Microseconds a call, minimum (mean), **ratio of the minima to native**. "
        f"{facts}.",
        f"Missing columns: {', '.join(missing)}." if missing else "",
        f"Net {net}, ReLU, float32; gradients of parameters and input:",
    ]
    for task in TASKS:
        rows = [row for row in tables["report"] if row["task"] == task]
        parts.append(table(rows, ("task", "batch")))
    parts += ["Any layer:", table(tables["general"], ("layer", "task"))]
    parts += [
        "A Poisson step, net 2-h-h-1, sigmoid, float64, 100 points inside and 40 on "
        "the boundary:",
        table(tables["poisson"], ("width",), "pure Julia, differences"),
    ]
    errors = [
        row["error of differences"]
        for row in tables["poisson"]
        if "error of differences" in row
    ]
    if errors:
        parts.append(
            f"Differences miss the Laplacian by {max(errors):.0e} of its largest "
            "entry, the others by rounding."
        )
    if all("DeepXDE" in row["us"] for row in tables["poisson"]):
        parts.append(
            "The same, **ratio to an iteration of DeepXDE on Paddle**, its step of "
            "Adam included:"
        )
        parts.append(table(tables["poisson"], ("width",), "DeepXDE"))
    if points := tables["points"]:
        parts += [
            "The same at more points, net 2-16-16-1:",
            table(points, ("points",), "pure Julia, differences"),
            "Memory of a step, bytes a point:",
            bytes_table(points),
        ]
    if tables["crossing"]:
        us = tables["crossing"]["us"]
        lines = ["| one tensor of 8 x 64, float32 | us |", "|---|---|"]
        lines += [f"| {k} | {v['min']:.2f} ({v['mean']:.2f}) |" for k, v in us.items()]
        parts += ["The crossing alone:", "\n".join(lines)]
    if again := tables["steady"]:
        lines = [
            f"| net 8-64-4, batch 64, from Julia | us, min of {again['timed']} calls "
            f"| mean | mean / min | MB grown in {again['calls']} calls |",
            "|---" * 5 + "|",
        ]
        lines += [
            f"| {name} | {v['min']:.1f} | {v['mean']:.1f} | {v['mean'] / v['min']:.2f} "
            f"| {v['growth']:.1f} |"
            for name, v in again["sides"].items()
        ]
        parts += ["Again and again:", "\n".join(lines)]
    if first := tables.get("first"):
        lines = ["| in a fresh process, from Julia | seconds |", "|---|---|"]
        lines += [f"| {step} | {seconds:.2f} |" for step, seconds in first.items()]
        parts += ["The first gradient:", "\n".join(lines)]
    return "\n\n".join(part for part in parts if part)


STYLE = {
    "native Paddle": ("C7", "o"),
    "ours, Python": ("C0", "s"),
    "ours, Julia": ("C1", "D"),
    "ours, Zygote": ("C4", "d"),
    "pure Julia": ("C2", "^"),
    "PyTorch": ("C3", "v"),
    "torch.func": ("C5", "<"),
    "JAX jit": ("C6", ">"),
}


def drawn(rows: list[dict]) -> list[str]:
    """The sides that have a style, the others stand in the tables only."""
    return [side for side in STYLE if side in rows[0]["us"]]


def draw_report(rows: list[dict], path: Path) -> None:
    """Time against batch size, one panel a task."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for axes, task in zip(panels, TASKS, strict=True):
        mine = [row for row in rows if row["task"] == task]
        for side in drawn(mine):
            color, marker = STYLE[side]
            axes.plot(
                [row["batch"] for row in mine],
                [row["us"][side]["min"] for row in mine],
                color=color,
                marker=marker,
                linewidth=2.4 if side.startswith("ours") else 1.3,
                label=side,
            )
        axes.set(title=f"Net 8-64-4, {task}", xlabel="batch size")
        axes.set_ylabel("microseconds a call (less is better)")
        axes.set_xscale("log", base=2)
        axes.set_xticks(BATCHES, [str(n) for n in BATCHES])
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    panels[1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_scaling(rows: list[dict], path: Path) -> None:
    """Time against the size of the net, and against flops, where overhead ends."""
    figure, grid = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    *panels, last = grid.flat
    fixed = {
        "width": "2 layers, batch 64",
        "depth": "width 64, batch 64",
        "batch": "net 8-64-4",
    }
    for axes, sweep in zip(panels, SCALES, strict=True):
        mine = [r for r in rows if r["sweep"] == sweep and r["task"] == PULLBACK]
        swept = {
            "width": [row["sizes"][0] for row in mine],
            "depth": [len(row["sizes"]) - 1 for row in mine],
            "batch": [row["batch"] for row in mine],
        }[sweep]
        for side in drawn(mine):
            color, marker = STYLE[side]
            axes.loglog(
                swept,
                [row["us"][side]["min"] for row in mine],
                color=color,
                marker=marker,
                label=side,
            )
        axes.set_xticks(swept, [str(n) for n in swept])
        axes.minorticks_off()
        axes.set(title=f"Forward and gradients, {fixed[sweep]}", xlabel=sweep)
        axes.grid(alpha=0.3)
        axes.set_ylabel("microseconds a call (less is better)")
    panels[0].legend()
    mine = [r for r in rows if r["task"] == PULLBACK]
    for side in drawn(mine)[1:]:
        color, marker = STYLE[side]
        last.semilogx(
            [r["flops"] for r in mine],
            [r["us"][side]["min"] / r["us"]["native Paddle"]["min"] for r in mine],
            linestyle="",
            color=color,
            marker=marker,
        )
    last.axhline(1, color=STYLE["native Paddle"][0])
    last.set(
        title="All of these: where overhead ends",
        xlabel="floating-point operations a call",
        ylabel="time, native Paddle = 1",
        ylim=(0, None),
    )
    last.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_points(rows: list[dict], path: Path) -> None:
    """Time and memory of a Poisson step a point, against the number of points."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
    for color, side in enumerate(rows[0]["us"]):
        style = {
            "color": f"C{color}",
            "marker": "osD^v<>"[color],
            "linewidth": 2.4 if side.startswith("ours") else 1.3,
            "label": side,
        }
        n = [row["points"] for row in rows]
        us = [row["us"][side]["min"] / row["points"] for row in rows]
        panels[0].loglog(n, us, **style)
        many = [row for row in rows if row["points"] >= 10_000]
        size = [row["bytes"][side] / row["points"] / 1e3 for row in many]
        panels[1].semilogx([row["points"] for row in many], size, **style)
    panels[0].set_ylabel("microseconds a point (less is better)")
    panels[1].set_ylabel("kilobytes a point at the peak (less is better)")
    panels[1].set_ylim(bottom=0)
    for axes in panels:
        axes.set(title="Poisson step, net 2-16-16-1, float64", xlabel="points")
        axes.grid(alpha=0.3)
    panels[1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(
    args: Any,
    in_julia: Mapping[str, Callable[..., Any]] | None = None,
    julia_version: str | None = None,
) -> None:
    """Measure and write the JSON file that args name; ``quick`` as second argument.

    ``in_julia`` holds Julia's sides, by table: "report", "general", "crossing",
    "steady" and "poisson".
    """
    out, *rest = [str(arg) for arg in args]
    results = {
        "machine": machine(julia_version),
        "tables": measure("quick" in rest, in_julia or {}),
    }
    Path(out).write_text(json.dumps(results, indent=1) + "\n")


def first_gradient(found: julia.Environment, times: int) -> dict[str, float]:
    """Seconds of each step to the first gradient, the least of several processes."""
    runs = []
    for _ in tqdm(range(times), desc="first gradient", unit="process"):
        done = subprocess.run(
            found.command(HERE / "first_gradient.jl"),
            env=found.variables(),
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        lines = [line.split("\t") for line in done.stdout.splitlines()]
        runs.append({step: float(seconds) for step, seconds in lines})
    return {step: min(each[step] for each in runs) for step in runs[0]}


def run(quick: bool) -> dict:
    """The results, hosted by Julia where that can be."""
    OUTPUT.mkdir(exist_ok=True)
    out = OUTPUT / "bench.json"
    args = [str(out), *(["quick"] if quick else [])]
    try:
        found = julia.environment("ChainRulesCore", "Zygote")
    except FileNotFoundError as why:
        print(f"Without Julia: {why}")
        main(args)
    else:
        command = found.command(HERE / "julia_sides.jl", *args)
        subprocess.run(command, env=found.variables(), check=True)
        results = json.loads(out.read_text())
        results["tables"]["first"] = first_gradient(found, 1 if quick else 3)
        out.write_text(json.dumps(results, indent=1) + "\n")
    return json.loads(out.read_text())


if __name__ == "__main__":
    results = run(quick=bool(os.environ.get("QUICK")))
    print(text(results))
    draw_report(results["tables"]["report"], OUTPUT / "bench.png")
    if results["tables"]["scaling"]:
        draw_scaling(results["tables"]["scaling"], OUTPUT / "bench-scaling.png")
    if results["tables"]["points"]:
        draw_points(results["tables"]["points"], OUTPUT / "bench-points.png")
    print(f"\nJSON and pictures: {OUTPUT}/bench*")
