"""Training steps of DeepXDE and PaddleScience, as ever and in Taylor mode.

``make bench-adapters``: equations as unchanged scripts of their library, each trained
by two models in one process, one thread each: one as ever, with nothing of this package
in its way, and one within ``taylor_mode()``, in turn in short bursts. What is timed is
the library's whole step: points, losses, ``backward``, optimizer. The calls that are
made once, to see what is asked for and to make programs, come before. Prints Markdown,
leaves JSON and a picture in output/. ``QUICK=1`` for less, ``ONLY=heat,Science`` for
problems with these words in their or their library's names, and ``OPTIMIZER=1`` for a
third side, in Taylor mode with the optimizer's step as ever, and the processor's time
on all of them, since what that saves is less than what other processes do to a clock.
"""

from __future__ import annotations

import importlib
import os
import statistics
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest.mock import patch

import matplotlib as mpl
from tqdm import tqdm

from machine import OUTPUT, save
from paddle_chainrules.adapters.taylor_mode import TaylorMode
from paddle_chainrules.testing.timings import WARM_UP_CALLS, Timer, interleave

mpl.use("Agg")
import matplotlib.pyplot as plt

QUICK = "QUICK" in os.environ
ONLY = [word for word in os.environ.get("ONLY", "").split(",") if word]
OPTIMIZER = "OPTIMIZER" in os.environ
CLOCK = time.process_time if OPTIMIZER else time.perf_counter
ROUNDS = 8 if QUICK else 30
BURST = 0.03 if QUICK else 0.06
"""Seconds of a burst, as far as one step is shorter."""

FIRST = 4
"""Steps before any is timed: one as ever, one that makes programs, and two to warm."""

LIBRARIES = {"adapters_deepxde": "deepxde", "adapters_science": "ppsci"}
COLOURS = {"DeepXDE": "#4477aa", "PaddleScience": "#ee8866"}

ABSENT = object()
Row = dict[str, Any]


class Switch:
    """What a context sets on classes, to set it back for a while."""

    def __init__(self) -> None:
        self._places: list[tuple[Any, str, Any, Any]] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what contexts replace that are entered within."""
        native = TaylorMode.replace

        def replace(mode: TaylorMode, owner: Any, name: str, value: Any) -> None:
            self._places.append((owner, name, vars(owner).get(name, ABSENT), value))
            native(mode, owner, name, value)

        with patch.object(TaylorMode, "replace", replace):
            yield

    @contextmanager
    def off(self, only: str = "") -> Iterator[None]:
        """Everything as it is without the context, or what has this name alone."""
        places = [place for place in self._places if only in ("", place[1])]
        for owner, name, before, _ in places:
            if before is ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        try:
            yield
        finally:
            for owner, name, _, within in places:
                setattr(owner, name, within)


def timer(steps: Any, around: Any) -> Timer:
    def seconds(calls: int) -> float:
        with around():
            start = CLOCK()
            steps(calls)
            return CLOCK() - start

    return seconds


@contextmanager
def as_it_is() -> Iterator[None]:
    yield


def compared(name: str, problem: Any, module: Any) -> Row:
    """One problem on both sides."""
    native, ours, switch = problem.steps(), problem.steps(), Switch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # reasons come in the table
        with switch.watching(), module.taylor_mode() as mode:
            with switch.off():
                native(FIRST)
            start = time.perf_counter()
            ours(FIRST)
            first = time.perf_counter() - start
            natively = mode.natively
            ours(WARM_UP_CALLS)
            with switch.off():
                start = time.perf_counter()
                native(2)
                step = (time.perf_counter() - start) / 2
            timers = {
                "native": timer(native, switch.off),
                "Taylor mode": timer(ours, as_it_is),
            }
            if OPTIMIZER:
                third = problem.steps()
                third(FIRST + WARM_UP_CALLS)
                step_alone = partial(switch.off, "_create_optimization_pass")
                # Each after a native burst, whose garbage the next one collects.
                timers["native again"] = timers["native"]
                timers["optimizer as ever"] = timer(third, step_alone)
            us = interleave(timers, ROUNDS, max(1, int(BURST / step)))
    theirs, mine = us["native"], us["Taylor mode"]
    return {
        "problem": name,
        "library": module.LIBRARY,
        "net": problem.net,
        "points": problem.points,
        "us": us,
        "first": first,
        "min": mine["min"] / theirs["min"],
        "mean": mine["mean"] / theirs["mean"],
        "as ever": mode.natively - natively,
        "reasons": mode.reasons,
    }


def modules() -> Iterator[Any]:
    """The problems of the libraries that are installed."""
    for name, library in LIBRARIES.items():
        try:
            yield importlib.import_module(name)
        except ImportError as error:
            print(f"Problems of {library} are left out: {error}.\n")


def table(rows: list[Row], whole: bool = True) -> str:
    head = "| problem | library | net | points | native step, ms | ratio of minima "
    head += "| ratio of means |" + " first steps, s | as ever |" * whole
    lines = [head, "|---" * (head.count("|") - 1) + "|"]
    for row in rows:
        native = row["us"]["native"]["min"] / 1e3
        cells = [row["problem"], row["library"], row["net"], row["points"]]
        cells += [f"{native:.1f}", f"**{row['min']:.2f}**", f"{row['mean']:.2f}"]
        if third := row["us"].get("optimizer as ever"):
            theirs = row["us"]["native"]
            parts = zip(("min", "mean"), (-2, -1), strict=True)
            for which, k in parts:
                cells[k] += f" (optimizer as ever {third[which] / theirs[which]:.2f})"
        if whole:
            cells += [f"{row['first']:.1f}", "; ".join(row["reasons"]) or "nothing"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def told(rows: list[Row]) -> str:
    worst = max(rows, key=lambda row: row["min"])
    means = statistics.median(row["mean"] for row in rows)
    return (
        f"{len(rows)} problems, median of the ratios of minima "
        f"{median(rows):.2f} and of means {means:.2f}; the largest "
        f"{worst['min']:.2f}, {worst['problem']} in {worst['library']}."
    )


def median(rows: list[Row]) -> float:
    return statistics.median(row["min"] for row in rows)


def picture(rows: list[Row]) -> None:
    """A bar a problem, those of a library beside each other, the fastest on top."""
    order = {name: i for i, name in enumerate(COLOURS)}
    rows = sorted(rows, key=lambda row: (order[row["library"]], row["min"]))
    figure, panel = plt.subplots(figsize=(9, 1.4 + 0.3 * len(rows)))
    places, place, before = [], 0.0, ""
    for row in rows:
        colour = COLOURS[row["library"]]
        place += 1.0 if row["library"] == before else 2.2
        if row["library"] != before:
            before = row["library"]
            panel.text(
                0, place - 0.95, before, color=colour, va="center", weight="bold"
            )
        places.append(place)
        panel.barh(place, row["min"], 0.72, color=colour)
        panel.text(
            row["min"] + 0.01,
            place,
            f"{row['min']:.2f}",
            va="center",
            size=8,
            bbox={"color": "white", "pad": 0.5},
        )
    middle = median(rows)
    panel.axvline(1, color="black", linewidth=1)
    panel.axvline(middle, color="black", linewidth=1, linestyle=":", zorder=1.5)
    top = places[0] - 1.5
    panel.text(1, top, "native", ha="center", va="bottom", size=9)
    panel.text(middle, top, f"median {middle:.2f}", ha="center", va="bottom", size=9)
    names = [f"{row['problem']}  ·  {row['net']}" for row in rows]
    panel.set_yticks(places, names, size=9)
    panel.set_ylim(places[-1] + 0.7, top)
    panel.set_xlim(0, max(1.1, 1.08 * max(row["min"] for row in rows)))
    panel.set_xlabel("a training step in Taylor mode, in native steps")
    panel.grid(axis="x", alpha=0.3)
    panel.set_axisbelow(True)
    panel.tick_params(axis="y", length=0)
    panel.spines[["top", "right", "left"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(OUTPUT / "adapters.png", dpi=130)


def main() -> None:
    cases = [
        (name, problem, module)
        for module in modules()
        for name, problem in module.PROBLEMS.items()
        if not ONLY or any(word in f"{module.LIBRARY}: {name}" for word in ONLY)
    ]
    rows = [compared(*case) for case in tqdm(cases, unit="problem")]
    if not rows:
        return
    print(table(rows), told(rows), sep="\n\n")
    save("adapters", {"rows": rows})
    picture(rows)


if __name__ == "__main__":
    main()
