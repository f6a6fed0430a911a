"""Errors that example files of DeepXDE reach in a while: their optimizers and ours.

``python benchmarks/example_errors.py FILE ...``, with files of DeepXDE's repository,
where they lie beside their data. Each file runs in processes of its own, one for each
side, for ``SECONDS`` of training (60): with the file's own optimizers, each for the
same part of the time; with Adam alone; and with second-order methods in float64, in the
place of the first optimizer, for the whole time. Nothing else of a file is changed.

The error is the last ``l2_relative_error`` that the file computes, or else the loss at
the test points. ``JOBS`` processes run at once (1), each with one thread. Shows a bar,
prints Markdown, leaves JSON in output/.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any

SECONDS = float(os.environ.get("SECONDS", "60"))
JOBS = int(os.environ.get("JOBS", "1"))
LIMIT = 20.0 * SECONDS + 300.0
"""Seconds of a process: some files sample many points, or draw pictures."""

NATIVE = "own optimizers", "Adam"
OURS = "levenberg_marquardt", "self_scaled_broyden"
SIDES = (*NATIVE, *OURS)
ADAM_RATE = 1e-3
Row = dict[str, Any]


class Run:
    """One file on one side, whose training ends in time.

    Attributes:
        error: the last relative error; None where none was computed.
        loss: the loss at the test points at the end.
        steps: the steps that were taken.
    """

    def __init__(self, side: str, trainings: int) -> None:
        self.side, self._trainings = side, trainings
        self.error: float | None = None
        self.loss, self.steps, self.seconds = math.nan, 0, 0.0
        self._is_trained = False

    def install(self, dde: Any, stack: ExitStack) -> None:
        """Have models come here."""
        if self.side in OURS:
            from paddle_chainrules.adapters.deepxde import taylor_mode

            dde.config.set_default_float("float64")
            dde.config.set_default_float = lambda value: None
            stack.enter_context(taylor_mode())
        dde.optimizers.LBFGS_options |= {"iter_per_step": 10, "fun_per_step": 15}
        model = dde.Model
        model.compile = self._compile(model.compile)
        model.train = self._train(model.train, dde)
        measured = self._measured(dde.metrics.l2_relative_error)
        dde.metrics.l2_relative_error = measured
        for names in vars(dde.metrics).values():
            if isinstance(names, dict) and "l2 relative error" in names:
                names["l2 relative error"] = measured

    def _measured(self, native: Callable[..., Any]) -> Callable[..., Any]:
        def l2_relative_error(y_true: Any, y_pred: Any) -> Any:
            found = native(y_true, y_pred)
            self.error = float(found)
            return found

        return l2_relative_error

    def _compile(self, native: Callable[..., Any]) -> Callable[..., Any]:
        def compile_(model: Any, optimizer: Any, lr: Any = None, **kwargs: Any) -> Any:
            if self.side in OURS:
                optimizer, lr = self.side, None
                kwargs.pop("decay", None)
            elif self.side == "Adam":
                optimizer, lr = "adam", lr or ADAM_RATE
            return native(model, optimizer, lr=lr, **kwargs)

        return compile_

    def _train(self, native: Callable[..., Any], dde: Any) -> Callable[..., Any]:
        def train(model: Any, *args: Any, **kwargs: Any) -> Any:
            if self._is_trained and self.side != NATIVE[0]:
                return model.losshistory, model.train_state
            self._is_trained = True
            kwargs |= {"display_every": 10**9} | (
                {"iterations": 10**9} if self.side != NATIVE[0] else {}
            )
            args = args[1:] if self.side != NATIVE[0] else args
            begin = time.monotonic()
            share = SECONDS / (self._trainings if self.side == NATIVE[0] else 1)
            stop = _Stop(dde, begin + share)
            kwargs["callbacks"] = [*(kwargs.get("callbacks") or ()), stop]
            if self.side in OURS:
                kwargs["seconds"] = share
            found = native(model, *args, **kwargs)
            self.seconds += time.monotonic() - begin
            model._test(verbose=0)  # which the library leaves out where it is stopped
            self.steps = model.train_state.step
            self.loss = float(sum(model.train_state.loss_test))
            if model.metrics and self.error is None:
                self.error = float(model.train_state.metrics_test[-1])
            return found

        return train


def _Stop(dde: Any, end: float) -> Any:
    """Return a callback that ends a training in time."""

    class Stop(dde.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self) -> None:
            if time.monotonic() >= end:
                self.model.stop_training = True

    return Stop()


def run_one(file: Path, side: str) -> Row:
    """Run one file in this process."""
    import numpy as np
    import paddle

    paddle.seed(1)
    np.random.seed(1)  # noqa: NPY002 (scripts draw from it)
    random.seed(1)
    os.chdir(file.parent)
    sys.path.insert(0, str(file.parent))
    run = Run(side, max(file.read_text().count(".train("), 1))
    error = ""
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(sys.stderr))
        try:
            import deepxde as dde

            dde.backend.tf = paddle  # as files say to replace it
            run.install(dde, stack)
            runpy.run_path(file.name, run_name="__main__")
        except (Exception, SystemExit) as caught:
            error = f"{type(caught).__name__}: {caught}".splitlines()[0]
    return {
        "error": error,
        "value": run.error,
        "loss": run.loss,
        "steps": run.steps,
        "seconds": run.seconds,
    }


def sides_of(file: Path) -> list[str]:
    """Return the sides of a file; Adam is one where its own optimizers are others."""
    own = re.findall(r'compile\(\s*"([\w-]+)"', file.read_text())
    return [side for side in SIDES if side != "Adam" or {*own} != {"adam"}]


def measured(file: Path, side: str) -> Row:
    """Run one file in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "found.json")
        command = [sys.executable, "-W", "ignore", __file__, "--one"]
        environment = {
            **{"DDE_BACKEND": "paddle", "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"},
            **os.environ,
        }
        try:
            subprocess.run(
                [*command, str(file), side, str(out)],
                env=environment,
                capture_output=True,
                timeout=LIMIT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"error": "took too long"}
        if not out.exists():
            return {"error": "the process died"}
        result: Row = json.loads(out.read_text())
        return result


def size_of(found: Row) -> float:
    """Return the error of a side; infinite where it has none."""
    if found.get("error") and not found.get("steps"):
        return math.inf
    value = found["loss"] if found.get("value") is None else found["value"]
    return math.inf if math.isnan(value) else value


def line(row: Row) -> str:
    sizes = [size_of(row[side]) for side in SIDES]
    texts = [
        f"{size:.1e}" if math.isfinite(size) else row[side].get("error", "")[:60]
        for side, size in zip(SIDES, sizes, strict=True)
    ]
    kind = "loss" if row[SIDES[0]].get("value") is None else "error"
    ratio = min(sizes[:2]) / min(sizes[2:]) if min(sizes[2:]) else math.inf
    return f"| {row['file']} | {kind} | {' | '.join(texts)} | {ratio:.1f} |"


def main() -> None:
    from machine import save
    from paddle_chainrules.testing.progress import progress

    files = [Path(name).resolve() for name in sys.argv[1:]]
    pairs = [(file, side) for file in files for side in sides_of(file)]
    rows: dict[Path, Row] = {file: {"file": file.stem} for file in files}
    with ThreadPoolExecutor(JOBS) as pool:
        found = pool.map(lambda pair: measured(*pair), pairs)
        for (file, side), result in progress(
            zip(pairs, found, strict=True), len(pairs), "files and sides"
        ):
            rows[file][side] = result
            rows[file].setdefault("Adam", rows[file][NATIVE[0]])
            save("example_errors", {"seconds": SECONDS, "rows": [*rows.values()]})
    print("| file | measure | " + " | ".join(SIDES) + " | smaller by |")
    print("|---" * (len(SIDES) + 3) + "|")
    ratios = []
    for row in rows.values():
        print(line(row))
        sizes = [size_of(row[side]) for side in SIDES]
        if all(map(math.isfinite, sizes)):
            ratios.append(min(sizes[:2]) / max(min(sizes[2:]), 1e-300))
    if ratios:
        median, least = statistics.median(ratios), min(ratios)
        print(
            f"\n{len(ratios)} files; errors are smaller by {median:.1f} in the median, "
            f"by {least:.2f} at least."
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        warnings.simplefilter("ignore")
        one, its_side, out = sys.argv[2:]
        Path(out).write_text(json.dumps(run_one(Path(one), its_side)))
    else:
        main()
