"""The numeric tests under settings that stand for other machines.

    python tests/matrix.py                  # every cell, a few minutes each
    python tests/matrix.py mkl-sse4.2       # cells by their names
    python tests/matrix.py 7                # a quarter of a cell, another each time

Libraries and machine code are told to use fewer instructions than this processor has.
That changes in which order sums are added, and so the last places of numbers.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from lanes import parts
from paddle_chainrules.programs.codegen.processor import level
from paddle_chainrules.settings import BLAS, CPU, LEVELS, LOOPS

ROOT = Path(__file__).resolve().parent.parent
NUMERIC = (
    *("tests/adapters", "tests/libraries", "tests/nets", "tests/optimizers"),
    *("tests/paddle_side", "tests/programs", "tests/transforms"),
    "tests/errors",
    "tests/test_differential.py",
    "tests/test_readme.py",
    "tests/test_singular_points.py",
)
SHARES = 4
"""Into how many runs a cell is divided where it is asked for by a number."""

AVX2 = {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "MKL_DEBUG_CPU_TYPE": "5"}  # on AMD, too

CELLS = {
    "mkl-sse4.2": {BLAS: "mkl", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "mkl-avx2": {BLAS: "mkl", **AVX2},
    "mkl": {BLAS: "mkl"},
    "onednn-sse4.1": {BLAS: "onednn", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "onednn-avx2": {BLAS: "onednn", "ONEDNN_MAX_CPU_ISA": "AVX2"},
    "onednn": {BLAS: "onednn"},
    "openblas-nehalem": {BLAS: "openblas", "OPENBLAS_CORETYPE": "Nehalem"},
    "openblas-haswell": {BLAS: "openblas", "OPENBLAS_CORETYPE": "Haswell"},
    "openblas": {BLAS: "openblas"},
    "own": {BLAS: "own"},
    "no-blas": {BLAS: "off"},
    "code-without-avx2": {CPU: "x86-64-v2"},
    "code-without-avx512": {CPU: "x86-64-v3"},
    "loops-first": {LOOPS: "first"},
    "loops-off": {LOOPS: "off"},
    "one-thread": {"OMP_NUM_THREADS": "1"},
    "two-threads": {"OMP_NUM_THREADS": "2"},
}
"""What is set in the environment, by the cell's name."""


class Outcome(NamedTuple):
    """What a run of a cell printed at its end, and how long it took."""

    status: int
    last: str
    minutes: float


def main(asked):
    """Run the cells that are asked for; gives the exit status."""
    outcomes = {name: run(name, files) for name, files in cells(asked)}
    print("\n" + "=" * 30, "matrix", "=" * 30)
    for name, outcome in outcomes.items():
        print(f"{name:20} {outcome.minutes:4.1f} min  {outcome.last}")
    return int(any(outcome.status for outcome in outcomes.values()))


def cells(asked):
    """The names of the cells with what is run of each; all, where nothing is asked for.

    A number stands for one share of the tests in one cell, so that numbers in turn come
    to all shares of all cells.
    """
    found, names = [], [*CELLS]
    for one in asked or names:
        if one.isdigit():
            number = int(one)
            share = number // len(names) % SHARES
            found.append((names[number % len(names)], shares()[share]))
        elif one in CELLS:
            found.append((one, NUMERIC))
        else:
            sys.exit(f"no cell is called {one}; there are {', '.join(names)}")
    return found


def shares():
    """The numeric test files in parts that take about as long as each other."""
    places = [ROOT / place for place in NUMERIC]
    files = [
        str(file.relative_to(ROOT))
        for place in places
        for file in (sorted(place.rglob("test_*.py")) if place.is_dir() else [place])
    ]
    return parts(files, SHARES)


def run(name, files):
    """Run tests in the environment of a cell."""
    settings = CELLS[name]
    if lacking(settings):
        return Outcome(0, f"not run: this processor has {level()}", 0.0)
    print(f"\n{'=' * 20} {name}: {settings}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto", *files]
    start, rows = time.monotonic(), [""]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "DDE_BACKEND": "paddle", **settings},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        for row in process.stdout:
            print(row, end="", flush=True)
            rows.append(row.strip())
    last = next((r for r in reversed(rows) if re.search(r"\d passed", r)), rows[-1])
    return Outcome(process.returncode, last, (time.monotonic() - start) / 60)


def lacking(settings):
    """Whether this processor has not the instructions of a level."""
    wanted = settings.get(CPU)
    return wanted in LEVELS and LEVELS.index(wanted) > LEVELS.index(level())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
