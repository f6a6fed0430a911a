"""Steps of one, two and four ranks of MPI, from Julia: ``make bench-ranks``.

Runs ranks.jl by ``mpiexec`` with the Julia on the PATH, whose environment has MPI and
Zygote (``JULIA_PROJECT`` names another one). Prints Markdown, leaves JSON in output/.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from tqdm import tqdm

from machine import save
from paddle_chainrules import julia

Found = dict[str, dict[str, float]]
UCX = {"UCX_ERROR_SIGNALS": "SIGILL,SIGBUS,SIGFPE"}
"""Where MPI stands on UCX it would take over the signal of Julia's collector."""


def measured(found: julia.Environment, ranks: int) -> Found:
    """Milliseconds of what ranks.jl times, of so many ranks."""
    command = found.command("-O1", Path(__file__).resolve().with_suffix(".jl"))
    done = subprocess.run(
        ["mpiexec", "-n", str(ranks), *command],
        env={**found.variables(), **UCX},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    rows = [line.split("\t") for line in done.stdout.splitlines() if "\t" in line]
    return {name: {"min": float(low), "mean": float(mean)} for name, low, mean in rows}


def table(by_size: dict[str, Found]) -> str:
    """What the steps took."""
    lines = [
        "| loss | ranks | step, ms: minimum (mean) | alone | reduction's share |",
        "|---|---|---|---|---|",
    ]
    for name in ("digits", "PDE"):
        for n, found in by_size.items():
            step, alone = found[f"{name} step"], found[f"{name} alone"]["min"]
            share = max(0.0, 1 - alone / step["min"])
            lines.append(
                f"| {name} | {n} | {step['min']:.2f} ({step['mean']:.2f}) "
                f"| {alone:.2f} | {share:.0%} |"
            )
    return "\n".join(lines)


def main() -> None:
    found = julia.environment("MPI", "Zygote")
    by_size = {str(n): measured(found, n) for n in tqdm((1, 2, 4), unit="run")}
    print(table(by_size))
    save("ranks", {"ranks": by_size})


if __name__ == "__main__":
    main()
