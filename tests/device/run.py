"""Whole test files on the protected device, each in a process of its own.

    python tests/device/run.py          all files, two at a time
    python tests/device/run.py 7        one part of them, another each time

A file whose process ends counts as failed, and the others go on. What is left out, and
why, stands in ``selection.py``.
"""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from device import plugin, selection  # noqa: E402
from lanes import parts  # noqa: E402

PARTS = 40
"""Into how many runs of about a minute the files are divided."""
AT_A_TIME = 2
MINUTES = 15
"""What one file may take at most."""


class Outcome(NamedTuple):
    """What a process has printed, its status, and how long it took."""

    file: str
    status: int
    text: str
    seconds: float

    @property
    def failed(self):
        return self.status not in (0, 5)  # 5: all are slow, or skipped

    @property
    def last(self):
        rows = self.text.strip().splitlines()
        if self.status < 0:
            return f"ended by signal {-self.status}"
        return rows[-1].strip("= ") if rows else ""

    def counts(self):
        found = re.findall(r"(\d+) (passed|failed|errors?|skipped)", self.last)
        return Counter({kind: int(number) for number, kind in found})

    def reasons(self):
        """Return how many tests are left out, by the reason."""
        found = re.findall(r"(?m)^Skipped   (\d+): (.*)$", self.text)
        return Counter({reason: int(number) for number, reason in found})


def main(asked):
    """Run the files, or the part of them with a number; give the exit status."""
    if reason := plugin.missing():
        sys.exit(f"there is no device to test on: {reason}")
    plugin.folder()
    files = selection.files()
    if asked:
        files = parts(files, PARTS)[int(asked[0]) % PARTS]
    outcomes = []
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for outcome in pool.map(run, files):
            print(f"{outcome.file:50} {outcome.seconds:4.0f} s  {outcome.last}")
            if outcome.failed:
                print(outcome.text)
            outcomes.append(outcome)
    print("\n" + "=" * 30, plugin.NAME, "=" * 30)
    counts = sum((o.counts() for o in outcomes), Counter())
    ended = sum(o.status < 0 for o in outcomes)
    numbers = ", ".join(f"{n:,} {kind}" for kind, n in counts.items())
    print(f"{len(outcomes)} files: {numbers}; {ended} processes ended")
    for reason, number in sum((o.reasons() for o in outcomes), Counter()).most_common():
        print(f"Skipped   {number}: {reason}")
    return int(any(o.failed for o in outcomes))


def run(file):
    """Run a file on the device."""
    options = "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--device", plugin.NAME
    start = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, file],
            cwd=selection.ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=60 * MINUTES,
        )
        status, text = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        status, text = 1, f"{error.stdout or ''}\nnot done in {MINUTES} minutes"
    return Outcome(file, status, text, time.monotonic() - start)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
