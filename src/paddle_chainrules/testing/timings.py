"""Times of several sides, alternating, so that noise hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ..settings import CALLS_BEFORE_CODE
from .progress import progress

Timer = Callable[[int], float]
"""Seconds that a number of calls take."""

WARM_UP_CALLS = CALLS_BEFORE_CODE + 2
"""Calls before any is timed: programs are compiled on the way."""


def timer(call: Callable[[], object]) -> Timer:
    """Return a timer of a Python callable, the loop in Python."""

    def seconds(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return time.perf_counter() - start

    return seconds


def interleave(
    timers: Mapping[str, Timer], rounds: int, calls: int, what: str | None = None
) -> dict[str, dict[str, float]]:
    """Time all sides in turns, in microseconds a call; ``what`` names a progress bar.

    Returns:
        Per side the minimum and the mean over the rounds; a first one is not counted.
    """
    times: dict[str, list[float]] = {name: [] for name in timers}
    for seconds in timers.values():
        seconds(max(calls, WARM_UP_CALLS))
    turns = range(rounds)
    for _ in progress(turns, rounds, what) if what else turns:
        for name, seconds in timers.items():
            times[name].append(1e6 * float(seconds(calls)) / calls)
    return {
        name: {"min": min(values), "mean": sum(values) / rounds}
        for name, values in times.items()
    }
