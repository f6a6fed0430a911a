"""The page and the picture of real nets, of the rows that a whole run gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl

from real_nets import ratio, summary, table

mpl.use("Agg")
from matplotlib import pyplot as plt

Row = dict[str, Any]

HEAD = """# Real nets as programs

Made by `make bench-real-nets`, which goes over Paddle's own models and layers,
PaddleScience's and DeepXDE's architectures and nets for equations, untouched: every
one is made, run by Paddle (forward and the gradients by all parameters and floating
inputs) and as a program (`stateless(layer, jit=True)`), and compared element by
element, in evaluation and in training where that differs, with the same seed. How far
they are apart is in units of the last place of a tensor's largest entry. Where a
gradient is zero but for rounding, such as that of a bias before a normalization, that
unit means nothing: it may be as far off as Paddle's own gradient moves when every
number is moved by its last place ("rounding alone").

{about}.

{summary}

![Time of a program by that of native Paddle, for every net](real-nets.png)

{table}
"""

COLORS = {
    "vision": "tab:blue",
    "nn": "tab:orange",
    "ppsci": "tab:green",
    "deepxde": "tab:red",
    "small": "tab:purple",
}


def page(results: dict[str, Any]) -> str:
    """``docs/real-nets.md``."""
    machine, rows = results["machine"], results["rows"]
    return HEAD.format(
        about=", ".join(f"{k} {v}" for k, v in machine.items() if v is not None),
        table=table(rows),
        summary=summary(rows),
    )


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
