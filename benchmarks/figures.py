"""Write the figures of README and docs from the benchmarks' JSON: make figures.

What stands between ``<!-- figure NAME -->`` and ``<!-- / -->`` on a page is what the
entry NAME of :data:`FIGURES` makes of ``benchmarks/results``. ``make figures`` takes
what whole runs of benchmarks (without ``QUICK=1`` and the like) have left in output/
over into results/ and docs/, then writes the pages. ``--check``, which the tests run,
says which are stale.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import adapters
import batches
import cores
import distributed
import equations
import example_errors
import first_calls
import front
import laplacians
import libraries
import loops
import lowered
import programs
import ranks
import real_nets
import real_page
import recurrent
import run
import side_by_side
import small_nets
import small_nets_julia
import solved.page
import training
import transforms
from machine import OUTPUT

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"(<!-- figure ([\w.]+) -->)(.*?)(<!-- / -->)", re.DOTALL)
NUMBERS = {1: "one core", 2: "two cores", 4: "four cores"}
NAMES = {"paddlepaddle": "paddlepaddle", "torch": "PyTorch", "jax": "JAX"}
NAMES |= {"onnxruntime": "ONNX Runtime"}
NAMES |= {"deepxde": "DeepXDE", "paddlesci": "PaddleScience", "julia": "Julia"}
COMPARED = ("torch", "jax", "onnxruntime", "deepxde", "paddlesci")
"""Libraries that only some benchmarks compare with."""

Results = dict[str, Any]
PICTURES = {
    "bench": ("bench.png", "bench-scaling.png"),
    "side_by_side": ("side_by_side.png",),
    "programs": ("programs.png",),
    "equations": ("equations.png",),
    "laplacians": ("laplacians.png",),
    "adapters": ("adapters.png",),
    "example_errors": ("example_errors.png",),
    "solved": tuple(
        f"solved/{solved.page.file_of(name, '.png')}" for name in solved.page.PROBLEMS
    ),
}


def about(results: Results) -> str:
    """Return when, where and with which libraries the results were measured.

    A library that is neither on all sides nor named in the results is left out.
    """
    machine = results["machine"]
    cores = NUMBERS.get(machine["cores"], f"{machine['cores']} cores")
    cpu = re.sub(r" \d+-Core Processor|\(R\)| CPU| @.*", "", machine["cpu"])
    rest = json.dumps({k: v for k, v in results.items() if k != "machine"})
    versions = [
        f"{NAMES[k]} {v}"
        for k, v in machine.items()
        if k in NAMES and v and (k not in COMPARED or NAMES[k] in rest)
    ]
    versions.insert(0, f"Python {machine['python']}")
    if kernels := machine.get("MKL_DEBUG_CPU_TYPE"):
        cpu += f" with MKL_DEBUG_CPU_TYPE={kernels}"
    return f"{machine['date']}, {cores} of an {cpu}, {', '.join(versions)}"


def by_batch(task: str, batches: tuple[int, ...] = run.BATCHES) -> Any:
    """A table of :mod:`run`: microseconds and ratios of the minima."""

    def figure(results: Results) -> str:
        rows = [
            row
            for row in results["tables"]["report"]
            if row["task"] == task and row["batch"] in batches
        ]
        return least(rows, f"{task}, batch", lambda row: str(row["batch"]))

    return figure


def least(rows: list[Any], first: str, name: Callable[[Any], str]) -> str:
    """Minima in microseconds, and their ratios to the first side's."""
    sides = list(dict.fromkeys(side for row in rows for side in row["us"]))
    lines = [f"| {first} | {' | '.join(sides)} |", "|---" * (len(sides) + 1) + "|"]
    for row in rows:
        native = row["us"][sides[0]]["min"]
        cells = [f"{native:.1f}"]
        for side in sides[1:]:
            us = row["us"].get(side)
            cells.append(f"{us['min']:.1f} **{us['min'] / native:.2f}**" if us else "")
        lines.append(f"| {name(row)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def layers(results: Results) -> str:
    """Ratios of layers of other kinds than chains."""
    rows = [r for r in results["tables"]["general"] if r["task"] == run.PULLBACK]
    sides = [side for side in rows[0]["us"] if side != "native Paddle"]
    lines = [
        f"| {run.PULLBACK}, ratio to native | {' | '.join(sides)} |",
        "|---" * (len(sides) + 1) + "|",
    ]
    for row in rows:
        native = row["us"]["native Paddle"]["min"]
        cells = [f"**{row['us'][side]['min'] / native:.2f}**" for side in sides]
        lines.append(f"| {row['layer']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def poisson(results: Results) -> str:
    """A step of Poisson's equation beside pure Julia's."""
    rows = [
        {
            **row,
            "us": {"pure Julia, differences": row["us"]["pure Julia, differences"]}
            | row["us"],
        }
        for row in results["tables"]["poisson"]
    ]
    return least(rows, "Poisson step, width", lambda row: str(row["width"]))


def crossing(results: Results) -> str:
    """One tensor, there and back."""
    us = results["tables"]["crossing"]["us"]
    return ", ".join(f"{name} {value['min']:.1f} us" for name, value in us.items())


def steady(results: Results) -> str:
    """Means by minima of many calls."""
    sides = results["tables"]["steady"]["sides"].values()
    ratios = sorted(side["mean"] / side["min"] for side in sides)
    return f"{ratios[0]:.1f} to {ratios[-1]:.1f}"


def first(results: Results) -> str:
    """Seconds to the first gradient in a fresh process."""
    found = results["tables"]["first"]
    return ", ".join(f"{step} {seconds:.1f} s" for step, seconds in found.items())


def of_iteration(results: Results) -> str:
    """Of DeepXDE's iteration, what steps of ours take."""
    rows = results["tables"]["poisson"]
    parts = []
    for name in ("Laplacian, Python", "Laplacian, Julia", "lowered, Julia"):
        ratios = [
            row["us"][f"ours, {name}"]["min"] / row["us"]["DeepXDE"]["min"]
            for row in rows
        ]
        parts.append(f"{name} {', '.join(f'{r:.2f}' for r in ratios)}")
    return "; ".join(parts)


def missed(results: Results) -> str:
    """How far finite differences are off."""
    rows = results["tables"]["poisson"]
    return f"{max(row['error of differences'] for row in rows):.0e}"


def most(results: Results) -> str:
    """Of a point among the most, in those of a thousand."""
    rows = results["points"]
    each = [row["us"]["ours"]["min"] / row["points"] for row in rows]
    return f"{each[-1] / each[0]:.2f}"


def gain(side: str) -> Callable[[Results], str]:
    """How many times faster than native Paddle one sample's gradients are."""

    def figure(results: Results) -> str:
        (us,) = (
            row["us"]
            for row in results["tables"]["report"]
            if row["task"] == run.PULLBACK and row["batch"] == 1
        )
        ratio = us["native Paddle"]["min"] / us[side]["min"]
        digits = 10 ** max(math.floor(math.log10(ratio)), 0)
        return f"{round(ratio / digits) * digits} times"

    return figure


def real_median(results: Results) -> str:
    """Of real nets that are programs, the ratio to native Paddle in the median."""
    return f"{statistics.median(map(real_nets.ratio, as_programs(results))):.2f}"


def as_programs(results: Results) -> list[Any]:
    """The real nets that are programs."""
    return [r for r in results["rows"] if "us" in r and r["captured"]]


FIGURES: dict[str, Callable[[Results], str]] = {
    "bench.forward": by_batch(run.FORWARD),
    "bench.gradients": by_batch(run.PULLBACK),
    "bench.few": by_batch(run.PULLBACK, (1, 64)),
    "bench.python_gain": gain("ours, Python"),
    "bench.zygote_gain": gain("ours, Zygote"),
    "bench.layers": layers,
    "bench.crossing": crossing,
    "bench.steady": steady,
    "bench.first": first,
    "bench.poisson": poisson,
    "bench.iteration": of_iteration,
    "bench.missed": missed,
    "side_by_side.table": lambda results: side_by_side.table(results["rows"]),
    "side_by_side.missing": lambda results: side_by_side.why_not(results["rows"]),
    "libraries.shipped": lambda results: libraries.shipped(results),
    "libraries.table": lambda results: libraries.table(results["rows"]),
    "small_nets.table": lambda results: small_nets.table(results["rows"]),
    **{
        f"small_nets_julia.{task}": lambda results, task=task: small_nets_julia.table(
            results["rows"], task
        )
        for task in small_nets_julia.HEADS
    },
    "small_nets_julia.libraries": small_nets_julia.about,
    "programs.nets": lambda results: programs.table_of_nets(results["nets"]),
    "programs.equations": lambda r: programs.table_of_equations(r["equations"]),
    "programs_as_it_is.table": programs.short_table,
    "equations.steps": lambda results: equations.table(results["steps"]),
    "recurrent.table": lambda results: recurrent.table(results["rows"]),
    "training.steps": lambda results: training.table(results["trainings"]),
    "equations.points": lambda results: equations.table_of_points(results["points"]),
    "equations.most": most,
    "laplacians.table": lambda results: laplacians.table(results["rows"]),
    "batches.table": lambda results: batches.table(results["rows"]),
    "loops.line": lambda results: loops.line(results["us"]),
    "transforms.table": lambda results: transforms.table(results["rows"]),
    "first_calls.table": lambda results: first_calls.table(results["rows"]),
    "lowered.table": lambda results: lowered.table(results["rows"]),
    "distributed.table": lambda r: distributed.table(r["processes"]),
    "distributed.paper": lambda r: distributed.on_paper(r["processes"]),
    "distributed.latency": lambda r: f"{distributed.line(r['processes'])[0]:.0f} us",
    "distributed.bandwidth": lambda r: (
        f"{distributed.line(r['processes'])[1] / 1e3:.1f} GB/s"
    ),
    "ranks.table": lambda results: ranks.table(results["ranks"]),
    "adapters.table": lambda results: adapters.table(results["rows"], False),
    "adapters.median": lambda results: f"{adapters.median(results['rows']):.2f}",
    "example_errors.table": lambda results: example_errors.table(results["rows"]),
    "example_errors.then": lambda results: example_errors.then(results["then"]),
    "example_errors.told": lambda results: example_errors.told(results["rows"]),
    "adapters.told": lambda results: adapters.told(results["rows"]),
    "real_nets.median": real_median,
    "real_nets.count": lambda results: str(len(as_programs(results))),
    "cores.table": lambda results: cores.table(results["rows"]),
    "solved.summary": lambda r: solved.page.summary(solved.page.read(r["runs"])),
    "solved.median": lambda r: solved.page.in_the_median(solved.page.read(r["runs"])),
    "solved.goals": lambda r: solved.page.goals(solved.page.read(r["runs"])),
    "solved.told": lambda r: solved.page.told(solved.page.read(r["runs"])),
    "solved.problems": lambda r: solved.page.problems(solved.page.read(r["runs"])),
}
"""By name what a page shows: of the results whose name stands before the dot."""


def figure(name: str) -> str:
    """What stands in a block.

    Raises:
        KeyError: no such figure.
        FileNotFoundError: its benchmark has left no results.
    """
    source, _, what = name.partition(".")
    results = json.loads((RESULTS / f"{source}.json").read_text())
    text = about(results) if what == "about" else FIGURES[name](results)
    return f"\n\n{text}\n\n" if text[0] in "|#" else text


def written(page: str) -> str:
    """A page with the figures that belong there."""
    return BLOCK.sub(lambda found: f"{found[1]}{figure(found[2])}{found[4]}", page)


def expected(page: Path) -> str:
    """A page's whole text, by the results at hand."""
    if page.name == "real-nets.md":
        return real_page.page(json.loads((RESULTS / "real_nets.json").read_text()))
    return written(page.read_text())


def take_over() -> None:
    """Copy what whole runs of benchmarks have left, as far as it is newer."""
    RESULTS.mkdir(exist_ok=True)
    names = {name.partition(".")[0] for name in FIGURES}
    for name in sorted(names):
        found, kept = OUTPUT / f"{name}.json", RESULTS / f"{name}.json"
        if found.exists() and (
            not kept.exists() or found.stat().st_mtime > kept.stat().st_mtime
        ):
            if less := json.loads(found.read_text())["machine"].get("less"):
                print(f"{found.relative_to(ROOT)} stays there: run with {less}")
                continue
            shutil.copy2(found, kept)
            for picture in PICTURES.get(name, ()):
                path = ROOT / "docs" / picture
                path.parent.mkdir(exist_ok=True)
                shutil.copy2(OUTPUT / picture, path)
            if name == "real_nets":
                rows = json.loads(kept.read_text())["rows"]
                real_page.picture(rows, ROOT / "docs" / "real-nets.png")
            print(kept.relative_to(ROOT))


def main(check: bool) -> int:
    """Write the pages, or say which of them are stale: exit status 1 where one is."""
    if not check:
        take_over()
    stale = [page for page in PAGES if page.read_text() != expected(page)]
    pictures = front.stale(RESULTS, ROOT / "docs")
    for path in stale + pictures:
        print(f"{path.relative_to(ROOT)}{': run make figures' * check}")
    if not check:
        for page in stale:
            page.write_text(expected(page))
        if pictures:
            front.write(RESULTS, ROOT / "docs")
    return int(check and bool(stale + pictures))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
