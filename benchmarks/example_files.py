"""Example files of DeepXDE and PaddleScience, unchanged: native and in Taylor mode.

``python benchmarks/example_files.py FILE ...``, with files of the libraries'
repositories, where they lie beside their data. Each file runs in three processes with
one seed: natively, within ``taylor_mode()``, and within ``taylor_mode(jit=True)``. The
processes take turns, five steps of an optimizer each, and end after ``STEPS`` of them
(90). Compares parameters and losses step by step, and the processor's time of the steps
after the first 40. Prints Markdown, leaves JSON in output/. ``SECONDS`` limits one file
(600).
"""

from __future__ import annotations

import json
import os
import random
import runpy
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

STEPS = int(os.environ.get("STEPS", "90"))
SECONDS = float(os.environ.get("SECONDS", "600"))
SETTLED = min(40, STEPS // 2)
"""Steps that are not timed: code of its own comes after some thirty calls."""

TURN = 5
"""Steps of one side before the other goes on."""

SIDES = ("native", "Taylor mode", "whole losses")
Row = dict[str, Any]


class Enough(BaseException):
    """The end of an example after its last step that counts."""


def library_of(file: Path) -> str:
    return "deepxde" if "deepxde" in file.read_text() else "ppsci"


class Steps:
    """What each step of an optimizer took and left."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.norms: list[float] = []
        self.losses: list[float] = []
        self._since = time.process_time()

    def watch(self) -> None:
        """Have all optimizers, and ``backward``, come here."""
        import paddle

        kinds = [paddle.optimizer.Optimizer]
        for kind in kinds:
            kinds += kind.__subclasses__()
            if "step" in vars(kind):
                kind.step = self._counted(kind.step)
        native = paddle.Tensor.backward

        def backward(loss: Any, *args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            self.losses.append(float(loss.sum()))
            self._since += time.process_time() - start
            return native(loss, *args, **kwargs)

        paddle.Tensor.backward = backward

    def _counted(self, native: Callable[..., Any]) -> Callable[..., Any]:
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            found = native(optimizer, *args, **kwargs)
            self._end(optimizer)
            return found

        return step

    def _end(self, optimizer: Any) -> None:
        self.seconds.append(time.process_time() - self._since)
        params = optimizer._parameter_list or []
        self.norms.append(sum(float((p * p).sum()) for p in params))
        if len(self.seconds) >= STEPS:
            raise Enough
        if len(self.seconds) % TURN == 0:
            wait()
        self._since = time.process_time()


def wait() -> None:
    """Let the other side go on."""
    print(TURNED, file=sys.__stderr__, flush=True)
    sys.__stdin__.readline()


TURNED = "the other side's turn"


def run_one(file: Path, side: str) -> Row:
    """Run one file in this process, up to its last step that counts."""
    import numpy as np
    import paddle

    library = library_of(file)
    name = "deepxde" if library == "deepxde" else "paddlescience"
    adapter = import_module(f"paddle_chainrules.adapters.{name}")
    paddle.seed(1)
    np.random.seed(1)  # noqa: NPY002 (scripts draw from it)
    random.seed(1)
    steps, mode = Steps(), None
    os.chdir(file.parent)
    sys.path.insert(0, str(file.parent))
    with tempfile.TemporaryDirectory() as folder:
        sys.argv = [file.name]
        if library == "ppsci":
            sys.argv += [f"hydra.run.dir={folder}", f"output_dir={folder}"]
            sys.argv = sys.argv if "hydra" in file.read_text() else sys.argv[:1]
        steps.watch()
        error = ""
        wait()
        try:
            context: Any = nullcontext()
            if side != SIDES[0]:
                context = adapter.taylor_mode(jit=side == SIDES[2])
            with context as mode:
                runpy.run_path(file.name, run_name="__main__")
        except Enough:
            pass
        except (Exception, SystemExit) as caught:
            error = f"{type(caught).__name__}: {caught}"
    return {
        "seconds": steps.seconds,
        "norms": steps.norms,
        "losses": steps.losses,
        "error": error,
        "mode": repr(mode) if mode is not None else "",
    }


@contextmanager
def started(file: Path, side: str, out: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {"DDE_BACKEND": "paddle", "MPLBACKEND": "Agg", **os.environ}
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", __file__, "--one", str(file), side, str(out)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def turn(process: subprocess.Popen[str]) -> bool:
    """Let a side go on until it waits again; tell whether it has not ended."""
    assert process.stdin is not None
    assert process.stderr is not None
    if process.poll() is None:
        try:
            process.stdin.write("\n")
            process.stdin.flush()
        except BrokenPipeError:
            return False
    return any(line.strip() == TURNED for line in process.stderr)


def compared(file: Path) -> Row:
    """One file on all sides."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        outs = [Path(folder, f"{k}.json") for k in range(len(SIDES))]
        going = [
            stack.enter_context(started(file, side, out))
            for side, out in zip(SIDES, outs, strict=True)
        ]
        every = [*going]
        late = threading.Timer(SECONDS, lambda: [each.kill() for each in every])
        late.start()
        while going:
            going = [process for process in going if turn(process)]
        late.cancel()
        found = [json.loads(p.read_text()) if p.exists() else {} for p in outs]
    row: Row = {"file": file.stem, "library": library_of(file), "error": ""}
    for side, its in zip(SIDES, found, strict=True):
        error = its.get("error", "took too long, or died")
        if error or len(its["seconds"]) <= SETTLED:
            row["error"] = f"{side}: {error or 'has too few steps'}"
            return row
    theirs, *ours = found
    native = theirs["seconds"][SETTLED:]
    for side, mine in zip(SIDES[1:], ours, strict=True):
        times = mine["seconds"][SETTLED:]
        row[side] = {
            "min": min(times) / min(native),
            "median": statistics.median(times) / statistics.median(native),
            "norms": apart(mine["norms"], theirs["norms"]),
            "losses": apart(mine["losses"], theirs["losses"]),
            "mode": mine["mode"],
        }
    return {**row, "steps": len(theirs["seconds"]), "ms": 1e3 * min(native)}


def apart(found: list[float], expected: list[float]) -> float:
    """The largest relative difference; infinite where one has more than the other."""
    if len(found) != len(expected):
        return float("inf")
    return max(
        (abs(a - b) / (abs(b) + 1e-30) for a, b in zip(found, expected, strict=True)),
        default=0.0,
    )


def line(row: Row) -> str:
    if row["error"]:
        return f"| {row['file']} | {row['library']} | {row['error'][:200]} | | | | |"
    ours = [row[side] for side in SIDES[1:]]
    ratios = " | ".join(f"**{its['min']:.2f}** ({its['median']:.2f})" for its in ours)
    return (
        f"| {row['file']} | {row['library']} | {row['ms']:.2f} | {ratios} "
        f"| {max(its['norms'] for its in ours):.0e} "
        f"| {max(its['losses'] for its in ours):.0e} |"
    )


def main() -> None:
    from machine import save

    print(
        f"| file | library | native step, ms | {SIDES[1]} | {SIDES[2]} "
        "| parameters apart | losses apart |\n" + "|---" * 7 + "|"
    )
    rows = []
    for file in map(Path, sys.argv[1:]):
        rows.append(compared(file.resolve()))
        print(line(rows[-1]), flush=True)
    print("\nRatios of minima, in brackets of medians.")
    for side in SIDES[1:]:
        ratios = [row[side]["min"] for row in rows if not row["error"]]
        if ratios:
            print(
                f"{side}: {len(ratios)} files, median {statistics.median(ratios):.2f}, "
                f"the largest {max(ratios):.2f}."
            )
    save("example_files", {"rows": rows})


def run_side(file: str, side: str, out: str) -> None:
    warnings.simplefilter("ignore")
    found = run_one(Path(file), side)
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        run_side(*sys.argv[2:])
    else:
        main()
