"""Small nets from Julia beside SimpleChains, Lux and Flux: make bench-small-nets.

Runs small_nets_julia.jl with the Julia on the PATH and this Python. Prints Markdown,
leaves JSON in output/. ``QUICK=1`` for less.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from machine import save
from paddle_chainrules import julia

VALUE, GRADIENT, STEP = "value", "gradient", "step"
HEADS = {
    VALUE: ("forward!", "net(x, ps)", "SimpleChains", "Lux", "Flux"),
    GRADIENT: ("value_and_gradient!", "Zygote", "SimpleChains", "Lux", "Flux"),
    STEP: ("train!", "SimpleChains"),
}
"""The columns of each task's table."""

Row = dict[str, Any]


def measured() -> tuple[list[Row], dict[str, str]]:
    """Return microseconds of each task, net and side, and the libraries' versions."""
    found = julia.environment("Optimisers", "Zygote", "SimpleChains?", "Lux?", "Flux?")
    script = Path(__file__).resolve().with_suffix(".jl")
    rows: dict[tuple[str, str], Row] = {}
    versions = {}
    with subprocess.Popen(
        found.command(script), env=found.variables(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            task, *rest = line.rstrip("\n").split("\t")
            if task == "version":
                versions[rest[0]] = rest[1]
                continue
            net, side, least, mean = rest
            row = rows.setdefault((task, net), {"task": task, "net": net, "us": {}})
            row["us"][side] = {"min": float(least), "mean": float(mean)}
    if process.returncode:
        raise SystemExit(process.returncode)
    return [*rows.values()], versions


def table(rows: list[Row], task: str) -> str:
    """Return microseconds of the first side, then ratios of all others to it."""
    first, *others = HEADS[task]
    there = [side for side in others if any(side in row["us"] for row in rows)]
    lines = [
        f"| net, samples | {first}, us | {' | '.join(there)} |",
        "|---" * (2 + len(there)) + "|",
    ]
    for row in rows:
        if row["task"] != task:
            continue
        ours, *rest = (row["us"].get(side) for side in (first, *there))
        cells = [
            f"{ours['min']:.3g} ({ours['mean']:.3g})",
            *(_ratio(x, ours) for x in rest),
        ]
        lines.append(f"| {row['net']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _ratio(side: dict[str, float] | None, ours: dict[str, float]) -> str:
    if side is None:
        return ""
    least, mean = (side[k] / ours[k] for k in ("min", "mean"))
    return f"**{least:.2f}** ({mean:.2f})"


def about(results: dict[str, Any]) -> str:
    """Return the libraries and their versions."""
    return ", ".join(f"{name} {v}" for name, v in results["libraries"].items())


def main() -> None:
    rows, versions = measured()
    for task in HEADS:
        print(table(rows, task), end="\n\n")
    save("small_nets_julia", {"rows": rows, "libraries": versions}, versions["Julia"])


if __name__ == "__main__":
    main()
