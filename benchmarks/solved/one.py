"""One training in a process of its own: problem, side, seed, seconds, and a file."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from machine import machine

from .clock import Clock
from .problem import Judge
from .sides import PROBLEMS, sides_of


def main(
    name: str, side: str, seed: int, limit: float, path: Path, train: Any = None
) -> None:
    """Train, and write down what was found.

    Args:
        train: how, where no module of Python's says it.
    """
    problem, who = PROBLEMS[name](), sides_of(name)[side]
    clock = Clock(Judge(problem), limit)
    if train is None:
        train = getattr(import_module(f"solved.{who.module}"), who.function)
    note = train(problem, seed, clock) or ""
    found = {
        **{"problem": name, "side": side, "seed": seed, "limit": limit},
        **{"curve": clock.curve, "note": note, "machine": machine()},
    }
    np.save(path.with_suffix(".npy"), np.asarray(clock.field, "float32"))
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps(found) + "\n")
    unfinished.rename(path)


if __name__ == "__main__":
    name, side, seed, limit, path = sys.argv[1:]
    main(name, side, int(seed), float(limit), Path(path))
