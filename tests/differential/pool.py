"""Cases judged by worker processes, which may crash or hang."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

Case = tuple[str, str]
"""A table's name and a case's."""

HERE = Path(__file__).parent
SECONDS = 100
"""For one case; one that takes longer hangs."""


class Worker:
    """A process that judges one case after the other."""

    def __init__(self) -> None:
        environment = {
            **os.environ,
            **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=HERE.parent,
            env=environment,
            text=True,
            bufsize=1,
        )

    def judge(self, case: Case) -> tuple[list[list[str]], bool]:
        """The verdicts, and whether the process has survived."""
        process, asked = self._process, "start"
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(json.dumps(case) + "\n")
        except BrokenPipeError:
            return [[asked, "crashed", "the process ended before"]], False
        late = threading.Timer(SECONDS, process.kill)
        late.start()
        try:
            for line in process.stdout:
                if line.startswith("="):
                    return json.loads(line[2:]), True
                asked = line[2:].strip()
        finally:
            late.cancel()
        code = process.wait()
        process.stdout.close()
        how = signal.Signals(-code).name if code < 0 else f"exit {code}"
        if late.finished.is_set() and code == -signal.SIGKILL:
            how = f"no answer in {SECONDS} s"
        return [[asked, "crashed", how]], False

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def judged(
    cases: Sequence[Case], workers: int = 2
) -> Iterator[tuple[Case, list[list[str]]]]:
    """Each case with its verdicts, as they come."""
    waiting: queue.SimpleQueue[Case | None] = queue.SimpleQueue()
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for case in [*cases, *[None] * workers]:
        waiting.put(case)

    def work() -> None:
        worker = Worker()
        while (case := waiting.get()) is not None:
            found, alive = worker.judge(case)
            done.put((case, found))
            if not alive:
                worker = Worker()
        worker.close()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for _ in cases:
        yield done.get()
    for thread in threads:
        thread.join()
