"""What all pictures of the gallery share: their size, and where they go."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

OUTPUT = Path(__file__).resolve().parents[2] / "output" / "gallery"
plt.rcParams |= {"figure.figsize": (5.2, 3.6), "legend.fontsize": 8}
plt.rcParams |= {"axes.spines.top": False, "axes.spines.right": False}


def save(name: str, x: Any = None, y: Any = None) -> None:
    """Draw points over what is drawn, write ``output/gallery/NAME.png``, and say so."""
    if x is not None:
        plt.plot(x, y, "k.", label="data")
    if plt.gca().get_legend_handles_labels()[1]:
        plt.legend()
    OUTPUT.mkdir(parents=True, exist_ok=True)
    plt.tight_layout()
    plt.savefig(OUTPUT / f"{name}.png", dpi=130)
    plt.close("all")
    print(f"output/gallery/{name}.png")
