"""Errors that example files reach in a while: by their own optimizers, and by ours.

``python benchmarks/example_errors.py FILE ...``, with files of the repositories of
DeepXDE and PaddleScience, where they lie beside their data. Each file runs in processes
of its own, one for each side, for ``SECONDS`` of training (60): with the file's own
optimizers, each for the same part of the time; with Adam alone; and with second-order
methods in float64, in the place of the first optimizer, for the whole time. Nothing
else of a file is changed.

The error is the last ``l2_relative_error`` that a file of DeepXDE computes, and the
first metric of a file of PaddleScience (of a mean square the root); where there is
none, the loss: at DeepXDE's test points, or of PaddleScience's last step. ``JOBS``
processes run at once (1), each with one thread. Shows a bar, prints Markdown, leaves
JSON and a picture in output/.
"""

from __future__ import annotations

import inspect
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
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

SECONDS = float(os.environ.get("SECONDS", "60"))
JOBS = int(os.environ.get("JOBS", "1"))
LIMIT = 20.0 * SECONDS + 300.0
"""Seconds of a process: some files sample many points, or draw pictures."""

NATIVE = "own optimizers", "Adam"
OURS = "levenberg_marquardt", "self_scaled_broyden"
THEN = "own optimizers, then levenberg_marquardt"
"""Each for half of the time; with ``THEN=1`` in the environment, of DeepXDE alone."""

SIDES = (*NATIVE, *OURS)
ADAM_RATE = 1e-3
LIBRARIES = {"deepxde": "DeepXDE", "ppsci": "PaddleScience"}
DOTS: dict[str, dict[str, Any]] = {
    "own optimizers": {"color": "0.25", "marker": "o"},
    "Adam": {"edgecolor": "0.25", "facecolor": "white", "marker": "o"},
    "levenberg_marquardt": {"color": "tab:blue", "marker": "s"},
    "self_scaled_broyden": {"color": "tab:orange", "marker": "D"},
}
"""How the picture shows each side."""

Row = dict[str, Any]


class Enough(BaseException):
    """The end of a training whose time is over."""


class Run:
    """One file on one side, whose training ends in time.

    Attributes:
        error: the last error; None where none was computed.
        loss: the loss at the end.
        steps: the steps that were taken.
    """

    def __init__(self, side: str, trainings: int) -> None:
        self.side, self._trainings = side, trainings
        self.error: float | None = None
        self.loss, self.steps, self.seconds = math.nan, 0, 0.0
        self._trained = 0

    @property
    def is_own(self) -> bool:
        """Whether it trains with the file's own optimizers."""
        return self.side in (NATIVE[0], THEN)

    def share(self) -> float:
        """Return the seconds of one training."""
        every = SECONDS / 2.0 if self.side == THEN else SECONDS
        return every / (self._trainings if self.is_own else 1)


class ModelRun(Run):
    """A file of DeepXDE."""

    def install(self, dde: Any, stack: ExitStack) -> None:
        """Have models come here."""
        if self.side in (*OURS, THEN):
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
            self._settings = {k: v for k, v in kwargs.items() if k != "decay"}
            if self.side in OURS:
                optimizer, lr = self.side, None
                kwargs.pop("decay", None)
            elif self.side == "Adam":
                optimizer, lr = "adam", lr or ADAM_RATE
            return native(model, optimizer, lr=lr, **kwargs)

        return compile_

    def _train(self, native: Callable[..., Any], dde: Any) -> Callable[..., Any]:
        def train(model: Any, *args: Any, **kwargs: Any) -> Any:
            if 0 in (*args, kwargs.get("iterations")):  # for the loss alone
                return native(model, *args, **kwargs)
            if self._trained and not self.is_own:
                return model.losshistory, model.train_state
            self._trained += 1
            kwargs["display_every"] = 10**9
            if not self.is_own:
                kwargs["iterations"], args = 10**9, args[1:]
            begin = time.monotonic()
            stop = _Stop(dde, begin + self.share())
            kwargs["callbacks"] = [*(kwargs.get("callbacks") or ()), stop]
            if self.side in OURS:
                kwargs["seconds"] = self.share()
            found = native(model, *args, **kwargs)
            if self.side == THEN and self._trained == self._trainings:
                model.compile(OURS[0], **self._settings)
                native(model, iterations=10**9, seconds=SECONDS / 2.0, verbose=0)
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


class SolverRun(Run):
    """A file of PaddleScience."""

    def install(self, ppsci: Any) -> None:
        """Have solvers and optimizers come here."""
        import paddle

        from paddle_chainrules.adapters.paddlescience_training import LBFGS

        if self.side in OURS:
            paddle.set_default_dtype("float64")
        solver = ppsci.solver.Solver
        solver.__init__ = self._init(solver.__init__)
        solver.train = self._train(solver.train)
        kinds = [paddle.optimizer.Optimizer, LBFGS]
        for kind in kinds:
            kinds += kind.__subclasses__()
            if "step" in vars(kind):
                kind.step = self._step(kind.step)

    def _init(self, native: Callable[..., Any]) -> Callable[..., Any]:
        def init(solver: Any, *args: Any, **kwargs: Any) -> None:
            bound = inspect.signature(native).bind(solver, *args, **kwargs)
            optimizer = bound.arguments.get("optimizer")
            if optimizer is not None and not self.is_own:
                bound.arguments["optimizer"] = self._instead_of(optimizer)
            native(*bound.args, **bound.kwargs)
            solver.eval_during_train, solver.save_freq = False, 0
            if not self.is_own:
                solver.epochs = 10**9

        return init

    def _instead_of(self, optimizer: Any) -> Any:
        import paddle

        params = [*optimizer._parameter_list]
        if self.side in OURS:
            from paddle_chainrules.adapters.second_order import SecondOrder

            return SecondOrder(self.side)(SimpleNamespace(parameters=lambda: params))
        return paddle.optimizer.Adam(ADAM_RATE, parameters=params)

    def _train(self, native: Callable[..., Any]) -> Callable[..., Any]:
        def train(solver: Any) -> None:
            self._trained += 1
            begin = time.monotonic()
            self._end = begin + self.share()
            try:
                native(solver)
            except Enough:
                solver.optimizer.clear_grad()
            self.seconds += time.monotonic() - begin
            self.steps += solver.global_step
            if "loss" in solver.train_loss_info:
                self.loss = solver.train_loss_info["loss"].val
            if self._trained == self._trainings or not self.is_own:
                self.error = self._metric(solver) if solver.validator else None
                sys.exit()  # what follows in the file are pictures

        return train

    def _metric(self, solver: Any) -> float | None:
        target, by_name = solver.eval()
        if not by_name:
            return None
        name = next(iter(by_name))
        return math.sqrt(target) if name == "MSE" else float(target)

    def _step(self, native: Callable[..., Any]) -> Callable[..., Any]:
        def step(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            found = native(optimizer, *args, **kwargs)
            if time.monotonic() >= self._end:
                raise Enough
            return found

        return step


def library_of(file: Path) -> str:
    return "deepxde" if "deepxde" in file.read_text() else "ppsci"


def run_one(file: Path, side: str) -> Row:
    """Run one file in this process."""
    import numpy as np
    import paddle

    paddle.seed(1)
    np.random.seed(1)  # noqa: NPY002 (scripts draw from it)
    random.seed(1)
    os.chdir(file.parent)
    sys.path.insert(0, str(file.parent))
    trainings = len(re.findall(r"(?m)^[^#\n]*\.train\((?!0\))", file.read_text())) or 1
    error, run = "", Run(side, trainings)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(redirect_stdout(sys.stderr))
        try:
            run = _installed(file, side, trainings, stack)
            sys.argv = [file.name]
            if "hydra" in file.read_text():
                sys.argv += [f"hydra.run.dir={folder}", f"output_dir={folder}"]
            runpy.run_path(file.name, run_name="__main__")
        except SystemExit:
            pass
        except Exception as caught:  # whatever a file may raise
            error = f"{type(caught).__name__}: {caught}".splitlines()[0]
    return {
        "error": error,
        "value": run.error,
        "loss": run.loss,
        "steps": run.steps,
        "seconds": run.seconds,
    }


def _installed(file: Path, side: str, trainings: int, stack: ExitStack) -> Run:
    """Have the file's library come to a run."""
    if library_of(file) == "deepxde":
        import deepxde as dde
        import paddle

        dde.backend.tf = paddle  # as files say to replace it
        of_models = ModelRun(side, trainings)
        of_models.install(dde, stack)
        return of_models
    import ppsci

    of_solvers = SolverRun(side, trainings)
    of_solvers.install(ppsci)
    return of_solvers


def sides_of(file: Path) -> list[str]:
    """Return the sides of a file; Adam is one where its own optimizers are others."""
    text = file.read_text()
    own = re.findall(r'compile\(\s*"([\w-]+)"|ppsci\.optimizer\.([A-Z]\w+)\(', text)
    names = {name.lower() for pair in own for name in pair if name}
    sides = [side for side in SIDES if side != "Adam" or names != {"adam"}]
    return [THEN] if "THEN" in os.environ else sides


def measured(file: Path, side: str) -> Row:
    """Run one file in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "found.json")
        command = [sys.executable, "-W", "ignore", __file__, "--one"]
        environment = {
            **{"DDE_BACKEND": "paddle", "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"},
            "HYDRA_FULL_ERROR": "1",
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


def ratio_of(row: Row, ours: Sequence[str] = OURS) -> float:
    """Return how many times smaller the best error of ours is than of the others."""
    theirs = min(size_of(row[side]) for side in NATIVE)
    return theirs / max(min(size_of(row[side]) for side in ours), 1e-300)


def ran(rows: list[Row]) -> list[Row]:
    """Return the files that ran natively, by what they gain."""
    kept = (row for row in rows if math.isfinite(size_of(row[NATIVE[0]])))
    return sorted(kept, key=ratio_of, reverse=True)


def _is_loss(row: Row) -> bool:
    return row[NATIVE[0]].get("value") is None


def times(ratio: float) -> str:
    """Return a ratio with three digits, and without an exponent."""
    return (
        f"{float(f'{ratio:.3g}'):,g}"
        if ratio < 1e5
        else f"{float(f'{ratio:.2g}'):,.0f}"
    )


def table(rows: list[Row]) -> str:
    """Return a line for each file."""
    lines = [f"| file | library | measure | {' | '.join(SIDES)} | smaller by |"]
    lines.append("|---" * (len(SIDES) + 4) + "|")
    for row in ran(rows):
        sizes = [size_of(row[side]) for side in SIDES]
        texts = [f"{x:.1e}" if math.isfinite(x) else "none" for x in sizes]
        if row["Adam"] == row[NATIVE[0]]:
            texts[1] = "the same"
        kind = "loss" if _is_loss(row) else "error"
        name, library = f"`{row['file']}`", LIBRARIES[row["library"]]
        gain = f"**{times(ratio_of(row))}**"
        lines.append(f"| {' | '.join([name, library, kind, *texts, gain])} |")
    return "\n".join(lines)


def told(rows: list[Row]) -> str:
    """Say what the table shows."""
    kept = ran(rows)
    ratios = [*map(ratio_of, kept)]
    one = [ratio_of(row, ["self_scaled_broyden"]) for row in kept]
    counts = Counter(LIBRARIES[row["library"]] for row in kept)
    files = " and ".join(f"{n} of {library}'s" for library, n in counts.items())
    larger = [row["file"] for row, ratio in zip(kept, ratios, strict=True) if ratio < 1]
    losers = f"larger in {', '.join(larger)}" if larger else "larger in none"
    return (
        f"{files} files: the error of the better of our two methods is "
        f"{times(statistics.median(ratios))} times smaller in the median than that of "
        f"the better of the file's own optimizers and Adam, and {losers}. That of "
        f"`self_scaled_broyden` alone is {times(statistics.median(one))} times smaller."
    )


def then(found: dict[str, Row]) -> str:
    """Say what the file's own optimizers and then our method reach, where they lost."""
    parts = [f"{size_of(row):.1e} for `{name}`" for name, row in found.items()]
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def picture(rows: list[Row]) -> None:
    """Draw a line a file, with a dot a side, those that gain most on top."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from machine import OUTPUT

    kept = ran(rows)
    figure, panel = plt.subplots(figsize=(9, 1.6 + 0.27 * len(kept)))
    for k, row in enumerate(kept):
        sizes = {side: size_of(row[side]) for side in SIDES}
        finite = [size for size in sizes.values() if math.isfinite(size)]
        panel.plot([min(finite), max(finite)], [-k, -k], color="0.85", zorder=1)
        for side, size in sizes.items():
            if side != "Adam" or row["Adam"] != row[NATIVE[0]]:
                panel.scatter(size, -k, zorder=2, **DOTS[side])
    for side, dot in DOTS.items():
        panel.scatter([], [], label=side.replace("_", " "), **dot)
    names = [
        f"{row['file']}{' (loss)' * _is_loss(row)}  ·  {LIBRARIES[row['library']]}"
        for row in kept
    ]
    panel.set_yticks([-k for k in range(len(kept))], names, size=9)
    panel.set_xscale("log")
    panel.set_xlabel(f"error, or loss, after {SECONDS:.0f} seconds of training")
    panel.grid(axis="x", alpha=0.3)
    panel.tick_params(axis="y", length=0)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.set_ylim(-len(kept), 1)
    panel.legend(ncols=len(SIDES), loc="lower right", bbox_to_anchor=(1, 1), fontsize=9)
    figure.tight_layout()
    OUTPUT.mkdir(exist_ok=True)
    figure.savefig(OUTPUT / "example_errors.png", dpi=130)
    plt.close(figure)


def main() -> None:
    from machine import save
    from paddle_chainrules.testing.progress import progress

    files = [Path(name).resolve() for name in sys.argv[1:]]
    pairs = [(file, side) for file in files for side in sides_of(file)]
    rows: dict[Path, Row] = {
        file: {"file": file.stem, "library": library_of(file)} for file in files
    }
    with ThreadPoolExecutor(JOBS) as pool:
        found = pool.map(lambda pair: measured(*pair), pairs)
        for (file, side), result in progress(
            zip(pairs, found, strict=True), len(pairs), "files and sides"
        ):
            rows[file][side] = result
            if NATIVE[0] in rows[file]:
                rows[file].setdefault("Adam", rows[file][NATIVE[0]])
            save("example_errors", {"seconds": SECONDS, "rows": [*rows.values()]})
    every = [row for row in rows.values() if NATIVE[0] in row]
    print(table(every) if every else json.dumps([*rows.values()], indent=1))
    if ran(every):
        print(f"\n{told(every)}")
        picture(every)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        warnings.simplefilter("ignore")
        one, its_side, out = sys.argv[2:]
        Path(out).write_text(json.dumps(run_one(Path(one), its_side)))
    else:
        main()
