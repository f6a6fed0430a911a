"""The page and the picture of real nets, of the rows that a whole run gives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

from real_nets import cells, ratio, short, summary

mpl.use("Agg")
from matplotlib import pyplot as plt

Row = dict[str, Any]

HEAD = """# Real nets as programs

This page compares programs with native Paddle on real architectures: time, and results
element by element.

```sh
make bench-real-nets   # makes this page
python -m paddle_chainrules bench model.py:make --input 64x3   # for a layer of yours
```

Each net runs unchanged, in Paddle and as `stateless(layer, jit=True)`, with the same
seed: forward, and all gradients with respect to parameters and floating-point inputs.

{summary}

![Time of a program by that of native Paddle, for every net](real-nets.png)

In the tables, times are minima, and ratios to native Paddle are of minima (and of
means). First calls are those of native Paddle and of the program. **ulp** is the
distance from Paddle in units of the last place of a tensor's largest entry. **Noise**
counts gradients that are zero except for rounding, such as that of a bias before a
normalization. They do not count in ulp.

Measured: {about}.

{tables}

## Nets that do not run as programs

`explained` nets run as in Paddle, and `explain` gives the reason.

{others}
"""

FAMILIES = {
    "vision": "Models of paddle.vision",
    "nn": "Layers of paddle.nn",
    "small": "Small nets",
    "ppsci": "PaddleScience",
    "deepxde": "DeepXDE",
}
HEADINGS = ["native, ms", "ratio", "first calls, ms", "forward, ulp", "gradients, ulp"]
FAILS = "not run by Paddle"

COLORS = {
    "vision": "tab:blue",
    "nn": "tab:orange",
    "ppsci": "tab:green",
    "deepxde": "tab:red",
    "small": "tab:purple",
}


def page(results: dict[str, Any]) -> str:
    """Return ``docs/real-nets.md``."""
    machine, rows = results["machine"], results["rows"]
    others = [row for row in rows if row["status"] != "captured"]
    return HEAD.format(
        about=", ".join(f"{k} {v}" for k, v in machine.items() if v is not None),
        tables="\n\n".join(tables(rows)),
        summary=summary(rows),
        others=table_of_others(others),
    )


def split_name(row: Row) -> tuple[str, str]:
    """Split a net's name into its family and the rest."""
    family, _, name = row["net"].partition(": ")
    return family, name


def tables(rows: list[Row]) -> Iterator[str]:
    """Write a heading and a table for the programs of each family."""
    head = ["net", "mode", *HEADINGS, "noise"]
    for family, title in FAMILIES.items():
        lines = [f"## {title}", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
        for row in rows:
            of, name = split_name(row)
            if row["status"] == "captured" and of == family:
                noise = str(len(row.get("rounding") or []) or "")
                said = [name, row["mode"], *cells(row), noise]
                lines.append(f"| {' | '.join(said)} |")
        yield "\n".join(lines)


def table_of_others(rows: list[Row]) -> str:
    """Write a table of the nets that are not programs, one row for each reason."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for row in rows:
        status = "Paddle fails" if row["status"] == FAILS else row["status"]
        why = short(row["why"]).replace("|", "\\|")
        key = row["mode"], status, *cells(row)[:2], why
        groups.setdefault(key, []).append(row["net"])
    head = ["nets", "mode", "result", "native, ms", "ratio", "reason"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for key, nets in groups.items():
        lines.append(f"| {' | '.join(['; '.join(nets), *key])} |")
    return "\n".join(lines)


def picture(rows: list[Row], path: Path) -> None:
    """``docs/real-nets.png``."""
    figure, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    families: dict[str, list[Row]] = {}
    for row in rows:
        if "us" in row and row["captured"]:
            family = row["net"].partition(":")[0]
            families.setdefault(family, []).append(row)
    for family, found in families.items():
        times = [row["us"]["native"]["min"] / 1e3 for row in found]
        axes.scatter(
            times,
            [*map(ratio, found)],
            s=18,
            label=f"{family} ({len(found)})",
            color=COLORS.get(family),
            alpha=0.8,
        )
    axes.axhline(1.0, color="gray", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("native Paddle, forward and all gradients, ms")
    axes.set_ylabel("program / native")
    axes.set_ylim(bottom=0.0)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)
    plt.close(figure)
