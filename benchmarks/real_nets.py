"""Real architectures, untouched, as programs: same numbers, at what cost, or why not.

``make bench-real-nets``: Paddle's own models and layers, those of PaddleScience and of
DeepXDE where they are installed, in evaluation and in training where that differs.
Prints Markdown, leaves JSON in benchmarks/results and makes docs/real-nets.md. Patterns
of names as arguments choose nets and write no page, ``QUICK=1`` does few rounds,
``--list`` lists the names. Nets run in a process beside this one, so that one that ends
it is a row like others.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import statistics
import sys
import tempfile
from collections import Counter
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from tqdm import tqdm

from machine import save

ROOT = Path(__file__).resolve().parent
QUICK = "QUICK" in os.environ
ROUNDS = 5 if QUICK else 20
LIMIT = 180
"""Seconds that a net may take in one mode."""

WORDS = 20
"""At most so many of a reason stand on the page."""

MODES = ("evaluation", "training")
PADDLE_IS_WRONG = {
    "ppsci: CylinderEmbedding": "k = zeros([2, 4, 4]).transpose([1, 2, 0]); "
    "k[i, j] = x of two indices writes at wrong places natively, at the right ones here"
}
"""Nets that differ from native Paddle since it is at fault; numpy decided."""


def nets() -> dict[str, Any]:
    """All nets by name; nothing of other packages is imported yet."""
    import real_deepxde
    import real_operators
    import real_paddle
    import real_science

    modules = (real_paddle, real_science, real_operators, real_deepxde)
    return {name: make for module in modules for name, make in module.NETS.items()}


def serve(pipe: Any, log: str) -> None:
    """Answer names of nets and modes with rows, until None comes."""
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    import warnings

    warnings.simplefilter("ignore")
    from real_comparison import compared, first_line

    makers = nets()
    while (job := pipe.recv()) is not None:
        name, mode, always = job
        try:
            pipe.send(compared(makers[name], mode == "training", always, ROUNDS))
        except Exception as error:
            import traceback

            traceback.print_exc()
            why = f"{type(error).__name__}: {first_line(error)}"
            pipe.send({"status": "raised", "why": why})


class Worker:
    """A process that runs nets one after another, another one after its end."""

    def __init__(self, folder: str) -> None:
        self._log = str(Path(folder) / "log")
        self._process: Any = None

    def __call__(self, *job: Any) -> dict[str, Any] | None:
        if self._process is None:
            self._start()
        self._pipe.send(job)
        try:
            if self._pipe.poll(LIMIT):
                return self._pipe.recv()
            why = f"took longer than {LIMIT} s"
        except EOFError:
            self._process.join()
            why = f"the process ended with {self._process.exitcode}: {self._last()}"
        self.stop()
        return {"status": "crashed", "why": why}

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, self._log))
        self._process.start()
        theirs.close()

    def _last(self) -> str:
        """The last that the process wrote of an error."""
        lines = Path(self._log).read_text(errors="replace").splitlines()
        told = [line.strip() for line in lines if "Error" in line]
        return (told or lines or [""])[-1].strip()

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None


def ratio(row: dict[str, Any], of: str = "min") -> float:
    return row["us"]["program"][of] / row["us"]["native"][of]


def cells(row: dict[str, Any]) -> list[str]:
    if "us" not in row:
        return ["", "", "", "", ""]
    first = row["first"]
    return [
        f"{row['us']['native']['min'] / 1e3:.2f}",
        f"**{ratio(row):.2f}** ({ratio(row, 'mean'):.2f})",
        f"{1e3 * first['native']:.0f}, {1e3 * first['program']:.0f}",
        f"{row['forward_ulp']:.3g}",
        f"{row['gradient_ulp']:.3g}",
    ]


def short(reason: str) -> str:
    """Return the first words of a reason, without the place in Paddle's source."""
    words = re.sub(r" ?\(at /paddle/[^)]*\)", "", reason).split()
    return " ".join(words[:WORDS]) + " ..." * (len(words) > WORDS)


def table(rows: list[dict[str, Any]]) -> str:
    head = ["net", "mode", "is", "native, ms", "program / native", "first calls, ms"]
    head += ["forward, ulp", "gradients, ulp", "why"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rows:
        told = [*row.get("faults", [])[:3]] if row["status"] == "wrong" else []
        if rounding := row.get("rounding"):
            told.append(f"rounding alone: {len(rounding)} such as {rounding[0]}")
        told += [short(row["why"])] if row["why"] else []
        why = "; ".join(told).replace("|", "\\|")
        said = [row["net"], row["mode"], row["status"], *cells(row), why]
        lines.append(f"| {' | '.join(said)} |")
    return "\n".join(lines)


def summary(rows: list[dict[str, Any]]) -> str:
    """Counts and ratios."""
    counts = Counter(row["status"] for row in rows).most_common()
    lines = [f"- {', '.join(f'{n} {status}' for status, n in counts)}."]
    for captured, side in ((True, "As programs"), (False, "As Paddle runs them")):
        found = [r for r in rows if "us" in r and r["captured"] is captured]
        if found:
            ratios = [ratio(row) for row in found]
            worst = max(found, key=ratio)
            middle, least = statistics.median(ratios), min(ratios)
            lines.append(
                f"- {side}: {least:.2f} to {max(ratios):.2f} of native Paddle's time, "
                f"median {middle:.2f}; the worst is {worst['net']} in {worst['mode']}."
            )
    return "\n".join(lines)


def reasons(rows: list[dict[str, Any]]) -> str:
    """Count the reasons why nets are no programs."""
    whole = [re.sub(r"^\S+:\d+: ", "", row["why"]) for row in rows]
    found = Counter(short(why.partition("; ")[0]) for why in whole if why)
    return "\n".join(f"- {n} x {why}" for why, n in found.most_common())


def main(patterns: list[str]) -> None:
    names = [n for n in nets() if not patterns or any(fnmatch(n, p) for p in patterns)]
    if not names:
        sys.exit(f"No net is called {' or '.join(patterns)}; --list lists the names.")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        worker = Worker(folder)
        bar = tqdm([(n, mode) for n in names for mode in MODES], unit="net")
        for name, mode in bar:
            bar.set_postfix_str(f"{name}, {mode}")
            known = next((row for row in rows if row["net"] == name), {})
            if known.get("status") in ("skipped", "not built"):
                continue
            row = worker(name, mode, bool(known) and "us" not in known)
            if row is not None and row["why"] and row["why"] == known.get("why"):
                row = row if "us" in row else None
            if row is not None:
                if row["status"] == "wrong" and name in PADDLE_IS_WRONG:
                    row |= {"status": "Paddle is wrong", "why": PADDLE_IS_WRONG[name]}
                rows.append({"net": name, "mode": mode, **row})
        worker.stop()
    path = save("real_nets", {"rounds": ROUNDS, "rows": rows})
    print(table(rows), summary(rows), reasons(rows), f"JSON: {path}", sep="\n\n")


if __name__ == "__main__":
    if "--list" in sys.argv:
        print("\n".join(nets()))
    else:
        main(sys.argv[1:])
