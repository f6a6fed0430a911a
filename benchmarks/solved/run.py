"""Differential equations solved on all sides: make bench-solved.

Each problem is trained by each side, with the same net, points and rate, in a process
of its own with one thread: ``MINUTES`` (5) each, for ``SEEDS`` (3) seeds, ``JOBS`` (1)
at a time; ``QUICK=1`` is 20 seconds and one seed. ``ONLY=Burgers,wave`` for problems
and ``SIDES=scan`` for sides with these words. What is there already in output/solved/
is kept, so that a run that was stopped goes on, and one of other ``MINUTES`` stands
beside; what failed is tried again. The clock is the processor's, and begins when the
library is loaded: what compiles and captures counts. Prints Markdown and leaves
pictures in output/solved/.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm import tqdm

from machine import OUTPUT, save

from . import page
from .sides import IN_JULIA, PROBLEMS, sides_of

QUICK = "QUICK" in os.environ
LIMIT = 60.0 * float(os.environ.get("MINUTES", 1 / 3 if QUICK else 5))
SEEDS = int(os.environ.get("SEEDS", 1 if QUICK else 3))
JOBS = int(os.environ.get("JOBS", 1))
FOUND = OUTPUT / "solved"
Job = tuple[int, str, str]
"""Seed, problem, side."""


def asked(variable: str, names: list[str]) -> list[str]:
    words = [word for word in os.environ.get(variable, "").split(",") if word]
    return [n for n in names if not words or any(word in n for word in words)]


def lacks_julia() -> bool:
    """Whether there is no Julia with what its sides take."""
    asked = 'all(!isnothing, Base.find_package.(["Lux", "PaddleChainRules"]))'
    if shutil.which("julia") is None:
        return True
    found = subprocess.run(["julia", "-e", f"exit({asked} ? 0 : 1)"], check=False)
    return found.returncode != 0


def path_of(job: Job) -> Path:
    seed, problem, side = job
    run = {"problem": problem, "side": side, "seed": seed, "limit": LIMIT}
    return FOUND / page.file_of(*page.run_of(run), ".json")


def done(job: Job) -> bool:
    path = path_of(job)
    return path.exists() and "failed" not in json.loads(path.read_text())


def trained(job: Job) -> str:
    """What went wrong, where it did."""
    seed, problem, side = job
    told = [problem, side, str(seed), str(LIMIT), str(path_of(job))]
    who = sides_of(problem)[side]
    program = [sys.executable, "-W", "ignore", "-m", "solved.one"]
    if who.module.endswith(".jl"):
        program = ["julia", f"solved/{who.module}"]
    made = subprocess.run(
        [*program, *told],
        env={**os.environ, **who.variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if not made.returncode:
        return ""
    lines = made.stderr.strip().splitlines() or [f"ended with {made.returncode}"]
    why = next((line for line in lines if line.startswith("ERROR")), lines[-1])[:300]
    found = {"problem": problem, "side": side, "seed": seed, "limit": LIMIT}
    path_of(job).write_text(json.dumps({**found, "curve": [], "failed": why}) + "\n")
    return made.stderr[-2000:] or why


def main() -> None:
    FOUND.mkdir(parents=True, exist_ok=True)
    jobs = [
        (seed, name, side)
        for seed in range(SEEDS)
        for name in asked("ONLY", [*PROBLEMS])
        for side in asked("SIDES", [*sides_of(name)])
    ]
    jobs = [job for job in jobs if not done(job)]
    if any(job[2] in IN_JULIA for job in jobs) and lacks_julia():
        print("no Julia with Lux and PaddleChainRules here: its sides are left out")
        jobs = [job for job in jobs if job[2] not in IN_JULIA]
    failed = []
    with ThreadPoolExecutor(JOBS) as pool, tqdm(total=len(jobs), unit="run") as bar:
        for job, wrong in zip(jobs, pool.map(trained, jobs), strict=True):
            bar.update()
            if wrong:
                failed.append(job)
                tqdm.write(f"{job[1]}, {job[2]}, seed {job[0]}:\n{wrong}")
    results = page.collected(FOUND)
    page.pictures(results, FOUND)
    save("solved", {"runs": page.short(results)})
    print(page.tables(results))
    if failed:
        sys.exit(f"{len(failed)} of {len(jobs)} runs failed; their errors stand above")


if __name__ == "__main__":
    main()
