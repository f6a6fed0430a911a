"""Random calls of all that is public, in processes with a clock.

python tests/fuzz/run.py 20000 [first]
"""

import json
import os
import selectors
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
SOURCE = Path(find_spec("paddle_chainrules").origin).parents[1]
"""The folder of the package that is tested."""

SECONDS = 60
"""That no call may take."""

BAD = ("signal", "hang", "internal", "memory", "collector off")


def rows_of(first, count):
    """What each call of these numbers came to, whatever becomes of their processes."""
    end, rows = first + count, []
    while first < end:
        done = _run(first, end - first)
        rows += done
        first = done[-1]["number"] + 1 if done else first + 1
    return rows


def _run(first, count):
    """The rows of one process, the last of which may be how it ended."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "fuzz.worker",
        str(first),
        str(count),
    ]
    path = f"{TESTS}{os.pathsep}{SOURCE}"
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    rows, current, begun = [], first, False
    with (
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=TESTS
        ) as process,
        selectors.DefaultSelector() as selector,
    ):
        os.set_blocking(process.stdout.fileno(), False)
        selector.register(process.stdout, selectors.EVENT_READ)
        rest = b""
        while True:
            if not selector.select(SECONDS):
                process.kill()
                return [*rows, {"number": current, "verdict": "hang", "where": ""}]
            data = os.read(process.stdout.fileno(), 1 << 16)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                row = json.loads(line)
                current, begun = row.get("begin", current), True
                rows += [row] if "number" in row else []
        told = process.stderr.read().decode(errors="replace")
    if process.returncode and not begun:
        raise RuntimeError(f"no call was begun: {told}")
    if process.returncode:
        where = f"{process.returncode}: {told[-1500:]}"
        return [*rows, {"number": current, "verdict": "signal", "where": where}]
    return rows


def fuzz(first, count, jobs=1, at_once=250):
    """All calls of so many numbers."""
    parts = [
        (k, min(at_once, first + count - k))
        for k in range(first, first + count, at_once)
    ]
    with ThreadPoolExecutor(jobs) as pool:
        return [row for part in pool.map(lambda p: rows_of(*p), parts) for row in part]


def main(count, first=0):
    rows = fuzz(first, count, jobs=os.cpu_count() or 1)
    print(len(rows), dict(Counter(row["verdict"] for row in rows)))
    seen = Counter()
    for row in rows:
        if row["verdict"] in (*BAD, "raw"):
            key = row["verdict"], row["where"][:80], row.get("error", "")[:40]
            seen[key] += 1
            if seen[key] == 1:
                print(row["verdict"], row["number"], row["where"], row.get("error"))
                print("   ", "; ".join(row.get("call", [])))
    for key, times in seen.most_common():
        print(times, *key)
    return int(any(row["verdict"] in BAD for row in rows))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
