"""Lowered nets beside wrapped ones and nets by hand: ``make bench-lowered``.

Runs lowered.jl with the Julia on the PATH and this Python. Prints Markdown, leaves JSON
in output/.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from tqdm import tqdm

from machine import save
from paddle_chainrules import julia

SIDES = ("lowered", "wrapped", "by hand")
ROWS = 12


def measured() -> list[dict[str, Any]]:
    """Microseconds of each net, task and side."""
    found = julia.environment("Zygote")
    script = Path(__file__).resolve().with_suffix(".jl")
    rows = []
    with (
        subprocess.Popen(
            found.command(script),
            env=found.variables(),
            stdout=subprocess.PIPE,
            text=True,
        ) as process,
        tqdm(total=ROWS, unit="row") as bar,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            net, task, *numbers = line.rstrip("\n").split("\t")
            us = [float(number) for number in numbers]
            pairs = zip(SIDES, us[:3], us[3:], strict=True)
            sides = {side: {"min": low, "mean": mean} for side, low, mean in pairs}
            rows.append({"net": net, "task": task, "us": sides})
            bar.update()
    if process.returncode:
        raise SystemExit(process.returncode)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Ratios of the minima, and of the means, to nets by hand."""
    head = ["net", "points", "call", "by hand, us", "lowered", "wrapped"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        by_hand = row["us"]["by hand"]
        cells = [
            " ".join(
                f"{row['us'][side][k] / by_hand[k]:.2f}"
                if k == "min"
                else f"({row['us'][side][k] / by_hand[k]:.2f})"
                for k in ("min", "mean")
            )
            for side in SIDES[:2]
        ]
        net, points = row["net"].removesuffix(" points").split(", ")
        about = f"{net} | {points} | {row['task']} | {by_hand['min']:.0f}"
        lines.append(f"| {about} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    rows = measured()
    print(table(rows))
    save("lowered", {"rows": rows})


if __name__ == "__main__":
    main()
