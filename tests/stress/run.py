"""Stress from both languages: random calls by the hundred thousand, garbage collected.

``python tests/stress/run.py [CALLS]`` runs each program of :data:`RUNS` in a process of
its own, prints a table and writes output/stress.json and output/stress.png. The exit
status says whether none crashed, none gave a wrong number and none grew.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from paddle_chainrules import julia

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parents[1] / "output"
CALLS = 1_200_000
MOST_GROWTH = 5e6
MOST_RESIDENT = 20e6

WARM = 0.5
"""Part of the calls after which memory must no longer grow."""

LARGE_NEEDS = 16e9
"""Bytes of memory that the arrays of large.jl take at most."""

FREED_OVERWRITTEN = {
    "GLIBC_TUNABLES": "glibc.malloc.perturb=165",
    "PYTHONMALLOC": "malloc",
}
"""What glibc frees is overwritten, so that its later use shows in a number."""


@dataclass(frozen=True)
class Run:
    """A program under stress, with its part of all calls."""

    name: str
    share: float
    threads: str
    python_threads: int = 0
    overwrites_freed: bool = False

    def command(self, calls: int, log: Path, kinds: str) -> list[str]:
        args = [str(calls), "1", str(log), kinds]
        if self.python_threads:
            program = [sys.executable, "-W", "ignore", str(HERE / "from_python.py")]
            return [*program, *args, self.threads, str(self.python_threads)]
        command = julia.environment("Zygote").command(HERE / "stress.jl", *args)
        return [command[0], f"--threads={self.threads}", *command[1:]]

    def variables(self) -> dict[str, str]:
        if self.python_threads:
            found = {k: v for k, v in os.environ.items() if "JULIACALL" not in k}
        else:
            found = julia.environment("Zygote").variables()
        return {**found, **(FREED_OVERWRITTEN if self.overwrites_freed else {})}


RUNS = (
    Run("julia -t 1", 0.3, "1"),
    Run("julia -t 4", 0.2, "4"),
    Run("julia -t 4,1", 0.2, "4,1"),
    Run("julia -t 1, freed memory overwritten", 0.1, "1", overwrites_freed=True),
    Run("Python, one thread", 0.1, "1", python_threads=1),
    Run("Python, 3 threads beside 4 of Julia", 0.1, "4", python_threads=3),
)


@dataclass(frozen=True)
class Outcome:
    """What a run printed and logged."""

    name: str
    calls: int
    crash: str
    wrong: int
    error: float
    """Largest, in units of the roundoff, relative to the largest entry."""
    seconds: float
    log: list[list[float]]
    """Rows of seconds, calls, bytes resident, in use, held by Python for Julia."""

    @property
    def resident_growth(self) -> float:
        """Bytes of resident memory at the end, over those when warm."""
        return self._growth(2)

    @property
    def growth(self) -> float:
        """The same of bytes in use."""
        return self._growth(3)

    def _growth(self, column: int) -> float:
        warm = [row[column] for row in self.log if row[1] >= WARM * self.calls]
        return warm[-1] - warm[0] if len(warm) > 1 else float("nan")

    @property
    def ok(self) -> bool:
        grew = self.growth > MOST_GROWTH or self.resident_growth > MOST_RESIDENT
        return not self.crash and self.wrong == 0 and not grew


def perform(
    run: Run,
    calls: int,
    kinds: str = "all",
    limit: float = 1800,
    progress: Callable[[int], None] = lambda calls: None,
) -> Outcome:
    """Run one program; what takes more seconds than the limit counts as a crash."""
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.touch()
        with (
            open(Path(folder) / "out", "w+") as out,
            open(Path(folder) / "err", "w+") as err,
        ):
            process = subprocess.Popen(
                run.command(calls, log, kinds),
                env=run.variables(),
                stdout=out,
                stderr=err,
            )
            begin = time.monotonic()
            while process.poll() is None:
                time.sleep(0.2)
                rows = _rows(log)
                progress(int(rows[-1][1]) if rows else 0)
                if time.monotonic() - begin > limit:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
            out.seek(0)
            err.seek(0)
            words, errors = out.read().split(), err.read()
        rows = _rows(log)
    if process.returncode != 0 or len(words) < 8:
        crash = f"status {process.returncode}: {errors[-3000:]}"
        done = int(rows[-1][1]) if rows else 0
        return Outcome(run.name, done, crash, 0, 0.0, 0.0, rows)
    found = dict(zip(words[-8::2], words[-7::2], strict=True))
    return Outcome(
        run.name,
        int(found["calls"]),
        "",
        int(found["wrong"]),
        float(found["error"]),
        float(found["seconds"]),
        rows,
    )


def _rows(log: Path) -> list[list[float]]:
    lines = log.read_text().splitlines()
    rows = [[float(word) for word in line.split()] for line in lines]
    return [row for row in rows if len(row) == 5]


def large_arrays() -> tuple[bool, str]:
    """Whether arrays of more than 2^31 bytes pass, and what to say about it."""
    rows = Path("/proc/meminfo").read_text().splitlines()
    free = 1024 * next(int(r.split()[1]) for r in rows if r.startswith("MemAvailable"))
    if free < LARGE_NEEDS:
        return (
            True,
            f"not run, {free / 1e9:.0f} GB free, {LARGE_NEEDS / 1e9:.0f} needed",
        )
    found = julia.environment()
    done = subprocess.run(
        found.command(HERE / "large.jl"),
        env=found.variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    ok = done.returncode == 0 and done.stdout == "right\n"
    return ok, "right" if ok else done.stderr[-3000:]


def draw(outcomes: list[Outcome], path: Path) -> None:
    """Resident memory over the calls of each run."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for outcome in outcomes:
        calls = [row[1] / 1000 for row in outcome.log]
        axes.plot(calls, [row[2] / 1e6 for row in outcome.log], label=outcome.name)
    axes.set(xlabel="thousand calls", ylabel="resident memory, MB", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="lower right")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def table(outcomes: list[Outcome]) -> str:
    """A line for each run, as Markdown."""
    head = (
        "| run | calls | crashes | wrong | largest error | growth, in use | resident |"
    )
    lines = [head, "|---|---|---|---|---|---|---|"]
    lines += [
        f"| {o.name} | {o.calls:,} | {1 if o.crash else 0} | {o.wrong} "
        f"| {o.error:.0f} roundoffs | {o.growth / 1e6:.1f} MB "
        f"| {o.resident_growth / 1e6:.1f} MB |"
        for o in outcomes
    ]
    return "\n".join(lines)


def main() -> int:
    from tqdm import tqdm

    total = int(sys.argv[1]) if len(sys.argv) > 1 else CALLS
    outcomes = []
    with tqdm(total=total, unit="call") as bar:
        for run in RUNS:
            bar.set_description(run.name)
            calls, before = int(total * run.share), bar.n

            def progress(done: int, before: int = before) -> None:
                bar.update(before + done - bar.n)

            outcome = perform(run, calls, progress=progress)
            outcomes.append(outcome)
            bar.update(before + calls - bar.n)
            if outcome.crash:
                bar.write(f"{run.name} crashed: {outcome.crash}")
    OUTPUT.mkdir(exist_ok=True)
    found = [
        {**asdict(o), "growth": o.growth, "resident growth": o.resident_growth}
        for o in outcomes
    ]
    (OUTPUT / "stress.json").write_text(json.dumps(found, indent=1))
    draw(outcomes, OUTPUT / "stress.png")
    print(table(outcomes))
    print(f"\n{sum(o.calls for o in outcomes):,} calls; output/stress.{{json,png}}")
    passed, about = large_arrays()
    print(f"arrays of more than 2^31 bytes: {about}")
    return 0 if passed and all(o.ok for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
