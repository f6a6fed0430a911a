"""Draw the table of ode.f90 beside the true equation: python plot.py FOLDER.

The picture goes to FOLDER/ode-fortran.png.
"""

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from save import MU, SPAN, trajectory

mpl.use("Agg")
import matplotlib.pyplot as plt

FAR = 0.03
"""The largest distance between the two curves in the plane of states, by its size."""


def distance(found, exact):
    """Return the largest distance of a state found from the true curve."""
    apart = (found[:, None] - exact) / (2 * SPAN)
    return np.linalg.norm(apart, axis=-1).min(1).max()


def draw(path, ticks, found, exact):
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(11, 4.2), width_ratios=(1.6, 1), layout="constrained"
    )
    for axes, x, k in ((left, ticks, 0), (right, None, 1)):
        for states, style in (
            (exact, {"color": "0.7", "linewidth": 5, "label": "true equation"}),
            (found, {"color": "tab:blue", "label": "learned net, called from Fortran"}),
        ):
            axes.plot(states[:, 0] if x is None else x, states[:, k], **style)
        axes.grid(alpha=0.3)
    left.set(xlabel="time", ylabel="position", title="Position over time")
    right.set(xlabel="position", ylabel="velocity", title="Limit cycle")
    left.set_ylim(-2.4, 3.4)
    left.legend(loc="upper right", ncols=2)
    figure.suptitle(
        f"Van der Pol's oscillator, $\\mu$ = {MU:g}, by implicit midpoint steps"
    )
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("give the folder of ode.txt: python examples/libraries/plot.py FOLDER")
    folder = Path(sys.argv[1])
    ticks, *states = np.loadtxt(folder / "ode.txt", unpack=True)
    found = np.stack(states, axis=-1)
    exact = trajectory(found[0], ticks)
    draw(folder / "ode-fortran.png", ticks, found, exact)
    far = distance(found, exact)
    print(f"the curves differ by {far:.1%} of the plane's size at most")
    assert far < FAR
