"""The page and the pictures of problems that were solved."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from .problem import Judge
from .sides import (
    BY_HAND,
    IN_FLOAT64,
    IN_JULIA,
    IN_SPANS,
    NATIVE,
    OURS,
    PROBLEMS,
    SIDES,
)

mpl.use("Agg")
from matplotlib import pyplot as plt

MARKS = (1e-2, 1e-3, 1e-4)
MINUTE = 60.0
TIMES = MINUTE, 5 * MINUTE, 15 * MINUTE
THEIRS = ("PaddleScience", "DeepXDE, Paddle")
SAME = "ours, scan"
"""The side that has the same optimizer as theirs."""
LIBRARIES = tuple(side for side in SIDES if side.startswith("DeepXDE, P"))
LIBRARIES += ("PaddleScience", *IN_FLOAT64)
LATER_COLOURS = "darkkhaki", "deepskyblue", "magenta", "blue", "black"
LATER_COLOURS += "saddlebrown", "teal", "gold", "navy"
"""Of sides after the tenth."""
ALL = NATIVE, *SIDES, *IN_FLOAT64, *IN_SPANS, *IN_JULIA
Run = dict[str, Any]


def collected(folder: Path) -> list[Run]:
    """What all runs found, in the order of problems, sides and seeds, longest first."""
    runs = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    names, sides = [*PROBLEMS], [*ALL]
    known = [r for r in runs if r["problem"] in names and r["side"] in sides]

    def order(run: Run) -> tuple[float, ...]:
        place = names.index(run["problem"]), sides.index(run["side"])
        return *place, run["seed"], -run["limit"]

    return sorted(known, key=order)


def short(runs: list[Run]) -> list[Run]:
    """Without what no page needs, numbers to five digits, a line for each curve."""
    kept = ("problem", "side", "seed", "limit", "failed")
    return [
        {name: run[name] for name in kept if name in run}
        | {"curve": " ".join(f"{x:.5g}" for look in run["curve"] for x in look)}
        for run in runs
    ]


def read(runs: list[Run]) -> list[Run]:
    """Runs of which :func:`short` has made these."""

    def looks(curve: str) -> list[list[float]]:
        numbers = [*map(float, curve.split())]
        return [numbers[i : i + 3] for i in range(0, len(numbers), 3)]

    return [{**run, "curve": looks(run["curve"])} for run in runs]


def seconds_to(run: Run, error: float) -> float:
    """When the error was first at most this; infinite where it never was."""
    return next((s for s, _, e in run["curve"] if e <= error), float("inf"))


def with_time(runs: list[Run], seconds: float) -> list[Run]:
    """Of each seed the shortest run that had so much time, if there is one.

    The shortest, since some methods come after another for a part of a run's time.
    """
    found: dict[int, Run] = {}
    for run in sorted(runs, key=lambda run: run["limit"]):
        if run["limit"] >= seconds:
            found.setdefault(run["seed"], run)
    return [*found.values()]


def after(run: Run, seconds: float) -> float:
    """The error at the last look before."""
    seen = [e for s, _, e in run["curve"] if s <= 1.02 * seconds]
    return seen[-1] if seen else float("nan")


def least(run: Run, seconds: float) -> float:
    """The least error until then."""
    seen = (e for s, _, e in run["curve"] if s <= 1.02 * seconds)
    return min(seen, default=float("nan"))


def of(runs: list[Run], problem: str) -> dict[str, list[Run]]:
    """A problem's runs by side, without those that failed."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if run["problem"] == problem and run["curve"]:
            found.setdefault(run["side"], []).append(run)
    return found


def failures(runs: list[Run], problem: str) -> str:
    """A sentence on sides that raised an error, each with it."""
    why: dict[str, list[str]] = {}
    for run in runs:
        if run["problem"] == problem and "failed" in run:
            error = run["failed"].partition(" (at ")[0].replace("`", "'")
            sides = why.setdefault(error, [])
            sides += [run["side"]] * (run["side"] not in sides)
    return "".join(f" Fails in {', '.join(w)}: `{e}`." for e, w in why.items())


def shown(seconds: float) -> str:
    return "" if seconds == float("inf") else f"{seconds:.3g}"


def typical(values: Iterable[float]) -> float:
    """The median of those that are numbers."""
    known = [value for value in values if value == value]
    return statistics.median(known) if known else float("nan")


def spread(errors: list[float]) -> str:
    """The median of those that are numbers, and the least and the largest of them."""
    known = [error for error in errors if error == error]
    if not known:
        return ""
    ends = f" ({min(known):.1e}\u2013{max(known):.1e})" if len(known) > 1 else ""
    return f"{statistics.median(known):.1e}{ends}"


def typical_seconds(runs: list[Run], error: float) -> float:
    """Of each seed the least, and the median of these.

    Past the shorter limits of seeds that of those that had longest.
    """

    def median(runs: list[Run]) -> float:
        first: dict[int, float] = {}
        for run in runs:
            seed, seconds = run["seed"], seconds_to(run, error)
            first[seed] = min(seconds, first.get(seed, seconds))
        return statistics.median(first.values())

    if (found := median(runs)) < float("inf"):
        return found
    longest = max(run["limit"] for run in runs)
    seeds = {run["seed"] for run in runs if run["limit"] == longest}
    return median([run for run in runs if run["seed"] in seeds])


def table(sides: dict[str, list[Run]]) -> str:
    """Seconds to errors, and errors after a time, in the median of seeds."""
    limit = max(run["limit"] for runs in sides.values() for run in runs)
    times = [time for time in TIMES if time <= limit] or [limit]
    head = ["seconds to", *(f"{mark:.0e}" for mark in MARKS)]
    head += [f"error, {time:.0f} s" for time in times] + ["steps/s"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for side, runs in sides.items():
        cells = [f"**{side}**" if side in OURS else side]
        cells += [shown(typical_seconds(runs, mark)) for mark in MARKS]
        cells += [
            spread([after(run, time) for run in with_time(runs, time)])
            for time in times
        ]
        cells.append(f"{statistics.median(map(rate, runs)):,.0f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def pairs(sides: dict[str, list[Run]], theirs: str) -> list[tuple[Run, Run]]:
    """Their runs and ours with the same optimizer, seed by seed."""
    ours = {run["seed"]: run for run in with_time(sides.get(SAME, []), 0.0)}
    runs = with_time(sides.get(theirs, []), 0.0)
    return [(run, ours[run["seed"]]) for run in runs if run["seed"] in ours]


def sooner(sides: dict[str, list[Run]], theirs: str) -> float:
    """Their seconds by ours, to the error that they end with, in the median of seeds.

    Not a number where that is more than half of what they began with, or that of zero.
    """
    found = []
    for run, own in pairs(sides, theirs):
        ends = run["curve"][-1][2]
        if ends < min(0.9, 0.5 * run["curve"][0][2]):
            found.append(seconds_to(run, ends) / seconds_to(own, ends))
    return typical(found)


def more_steps(sides: dict[str, list[Run]], theirs: str) -> float:
    """Our steps a second by theirs, in the median of seeds."""
    return typical(rate(own) / rate(run) for run, own in pairs(sides, theirs))


def rate(run: Run) -> float:
    """Steps a second, of all of its time."""
    seconds, steps, _ = run["curve"][-1]
    return steps / seconds


def best(sides: dict[str, list[Run]], names: Any, seconds: float) -> float:
    """The least error of these sides until then, of each in the median of seeds.

    Of the seeds of which a run had so much time, or the most of their side.
    """
    errors = []
    for side, runs in sides.items():
        enough = min(seconds, max(run["limit"] for run in runs))
        if side in names:
            seeds = {run["seed"] for run in with_time(runs, enough)}
            each = (
                min(least(run, seconds) for run in runs if run["seed"] == seed)
                for seed in seeds
            )
            errors.append(statistics.median(each))
    return min(errors, default=float("nan"))


def gain_by_hand(sides: dict[str, list[Run]]) -> float:
    """How many times smaller ours is in a minute than that of JAX and PyTorch.

    Not a number where they have no second-order method.
    """
    if BY_HAND[0] not in sides:
        return float("nan")
    return best(sides, BY_HAND, MINUTE) / best(sides, OURS, MINUTE)


def gains(sides: dict[str, list[Run]]) -> tuple[float, float]:
    """How many times smaller the least error of ours is than the libraries'.

    In a minute, and in the most time that they had; nothing where they had none.
    """
    theirs = [run["limit"] for name in LIBRARIES for run in sides.get(name, [])]
    most = max(theirs, default=MINUTE)
    first, last = (
        best(sides, LIBRARIES, seconds) / best(sides, OURS, seconds)
        for seconds in (min(MINUTE, most), most)
    )
    return first, last


def summary(runs: list[Run]) -> str:
    """A line for each problem."""
    head = [
        "problem",
        *(f"faster than {name}" for name in THEIRS),
        "smaller error in a minute",
        "in the most time",
        "in a minute, than JAX and PyTorch",
    ]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name in PROBLEMS:
        if sides := of(runs, name):
            cells = [pace(sides, theirs) for theirs in THEIRS]
            found = *gains(sides), gain_by_hand(sides)
            cells += [times(gain) for gain in found]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def times(gain: float) -> str:
    """Return a ratio without digits that mean nothing."""
    if gain != gain:
        return ""
    return f"{gain:,.0f}" if gain >= 10 else f"{gain:.2g}"


def pace(sides: dict[str, list[Run]], theirs: str) -> str:
    """Return how many times faster, or, in brackets, the ratio of steps per second."""
    soon, steps = sooner(sides, theirs), more_steps(sides, theirs)
    if soon == soon:
        return f"{soon:.1f}" if soon else "never"
    return f"({steps:.1f})" if steps == steps else ""


def goals(runs: list[Run]) -> str:
    """On how many problems what was hoped for is there."""
    by_problem = [sides for name in PROBLEMS if (sides := of(runs, name))]
    compared = [sides for sides in by_problem if THEIRS[0] in sides]
    soon, fast = (
        sum(min(by(s, theirs) for theirs in THEIRS) >= 5 for s in compared)
        for by in (sooner, more_steps)
    )
    both = [found for s in by_problem if (found := gains(s)) and found[1] == found[1]]
    minute, most = (sum(found[i] >= 100 for found in both) for i in (0, 1))
    return (
        f"`scan` is at least 5 times faster than PaddleScience and DeepXDE on {soon} "
        f"of the {len(compared)} problems that both train, and takes at least 5 times "
        f"the steps a second on {fast}. Our smallest error is at least 100 times "
        f"smaller than theirs on {minute} of {len(both)} problems after a minute, and "
        f"on {most} after their longest runs"
    )


def in_the_median(runs: list[Run]) -> str:
    """How many times smaller our least error is after a minute, over all problems."""
    solved = [sides for name in PROBLEMS if (sides := of(runs, name))]
    known = [gain for sides in solved if (gain := gains(sides)[0]) == gain]
    by_hand = [gain for sides in solved if (gain := gain_by_hand(sides)) == gain]
    ahead = sum(gain >= 1.1 for gain in by_hand)
    return (
        f"{statistics.median(known):.0f} times smaller than the best of PaddleScience "
        f"and DeepXDE, in the median of {len(known)} problems, and "
        f"{times(statistics.median(by_hand))} times smaller than the best of JAX and "
        f"PyTorch with second-order methods (smaller on {ahead} of {len(by_hand)})"
    )


def told(runs: list[Run]) -> str:
    """How long runs were, and how many, without those that failed."""
    runs = [run for run in runs if run["curve"]]
    limits = sorted({run["limit"] for run in runs})
    seeds = len({run["seed"] for run in runs})
    each = " or ".join(f"{limit:.0f}" for limit in limits)
    return f"{len(runs)} runs of {each} seconds, {seeds} seed{'s' * (seeds > 1)}"


def problems(runs: list[Run], pictures: bool = True) -> str:
    """A heading, a sentence, a table and a picture for each problem."""
    parts = []
    for name, make in PROBLEMS.items():
        if sides := of(runs, name):
            problem = make()
            net = "-".join(map(str, problem.widths()))
            said = f"{problem.source}. Net {net}.{failures(runs, name)}"
            parts += [f"## {name}", said, table(sides)]
            if pictures:
                path = f"solved/{file_of(name, '.png')}"
                parts.append(f"![{name}: errors against seconds]({path})")
    return "\n\n".join(parts)


def tables(runs: list[Run]) -> str:
    """The summary, then a table for each problem."""
    return f"{summary(runs)}\n\n{problems(runs, pictures=False)}"


def picture(name: str, sides: dict[str, list[Run]], field: Any, path: Path) -> None:
    """Errors against seconds, the solution, and where the best of ours is off.

    Args:
        field: gives the outputs that a run ended with, None where they are not kept.
    """
    judge = Judge(PROBLEMS[name]())
    flat = len(judge.shape) == 2
    figure = plt.figure(figsize=(13 if flat else 9, 3.8), layout="constrained")
    left, *panels = (
        figure.subplots(1, 3, width_ratios=(1.5, 1, 1))
        if flat
        else (figure.subplots(1, 2, width_ratios=(1.5, 1)))
    )
    curves(left, sides)
    left.set_title(name)
    ours = [run for side, runs in sides.items() if side in OURS for run in runs]
    kept = [run for run in ours if field(run) is not None]
    nearest = min(kept, key=lambda run: run["curve"][-1][2], default=None)
    if nearest is not None:
        solution = judge.solution[:, 0]
        off = np.abs(field(nearest)[:, 0] - solution)
        title = f"off by, {nearest['side']}"
        if flat:
            mapped(panels[0], judge, solution, "solution", "viridis")
            mapped(panels[1], judge, off, title, "magma")
        else:
            panels[0].plot(judge.points[:, 0], off, ".", markersize=2)
            panels[0].set(title=title, xlabel=judge.problem.inputs[0])
    figure.savefig(path, dpi=72, pil_kwargs={"optimize": True})
    plt.close(figure)


def curves(axes: Any, sides: dict[str, list[Run]]) -> None:
    """Errors against seconds; ours are whole lines."""
    colours = dict(
        zip(
            ALL,
            (*plt.get_cmap("tab10").colors, *LATER_COLOURS),
            strict=True,
        )
    )
    for side, runs in sides.items():
        for i, run in enumerate(runs):
            seconds, _, errors = zip(*run["curve"], strict=True)
            axes.loglog(
                np.maximum(seconds, 1e-2),
                errors,
                color=colours[side],
                linestyle="-" if side in OURS else "--",
                alpha=1.0 if i == 0 else 0.35,
                label=side if i == 0 else None,
            )
    axes.set(xlabel="seconds on one core", ylabel="relative L2 error")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, frameon=False)


def mapped(axes: Any, judge: Judge, values: Any, title: str, colours: str) -> None:
    """Values at the points of a grid, the first coordinate to the right."""
    low, high = judge.points.min(0), judge.points.max(0)
    image = axes.imshow(
        values.reshape(judge.shape).T,
        origin="lower",
        aspect="auto",
        extent=(low[0], high[0], low[1], high[1]),
        cmap=colours,
    )
    axes.set(title=title, xlabel=judge.problem.inputs[0])
    axes.set_ylabel(judge.problem.inputs[1])
    axes.figure.colorbar(image, ax=axes)


def file_of(*parts: Any) -> str:
    """A name of a file for a problem or one of its runs; the last part is its end."""
    *parts, end = parts
    name = "-".join(map(str, parts))
    return "".join(c if c.isalnum() else "-" for c in name) + end


def run_of(run: Run) -> tuple[Any, ...]:
    """What tells a run from all others, for :func:`file_of`."""
    return run["problem"], run["side"], run["seed"], f"{run['limit']:g}"


def pictures(runs: list[Run], folder: Path) -> None:
    """One for each problem, beside its runs' files."""

    def field(run: Run) -> Any:
        path = folder / file_of(*run_of(run), ".npy")
        return np.load(path) if path.exists() else None

    for name in PROBLEMS:
        if sides := of(runs, name):
            picture(name, sides, field, folder / file_of(name, ".png"))
