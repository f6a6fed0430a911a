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

This page compares programs with native Paddle on Paddle's own models and layers, on
PaddleScience's and DeepXDE's architectures, and on nets for equations.

```sh
make bench-real-nets   # makes this page
python -m paddle_chainrules bench model.py:make --input 64x3   # for a layer of yours
```

Every net is taken as it is. Paddle runs it (forward, and the gradients with respect to
all parameters and floating-point inputs), and so does a program
(`stateless(layer, jit=True)`) with the same seed. Results are compared element by
element, in evaluation, and in training where that differs.

- **ulp:** the distance, in units of the last place of a tensor's largest entry.
- **rounding alone:** a gradient that is zero except for rounding, such as that of a
  bias before a normalization. It may be as far off as Paddle's own gradient moves when
  every value moves by its last place.
- **explained:** no program. The net runs as in Paddle, and `explain` says why.
- **not run by Paddle:** native Paddle fails.
- **skipped:** a package or a file is missing.

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
