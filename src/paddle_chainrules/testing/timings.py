"""Times of several sides, alternating, so that noise hits all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping

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

    Every other round takes them in the reverse order.

    Returns:
        Per side over the rounds, of which a first one is not counted: ``min``, the
        median of the lowest three, so that one lucky turn does not count; ``median``;
        and ``mean``.
    """
    times: dict[str, list[float]] = {name: [] for name in timers}
    for seconds in timers.values():
        seconds(max(calls, WARM_UP_CALLS))
    turns = range(rounds)
    names = [*timers]
    for _ in progress(turns, rounds, what) if what else turns:
        for name in names:
            times[name].append(1e6 * float(timers[name](calls)) / calls)
        names.reverse()
    return {
        name: {
            "min": statistics.median(sorted(values)[:3]),
            "median": statistics.median(values),
            "mean": statistics.mean(values),
        }
        for name, values in times.items()
    }


SCATTER = 1.5
"""Medians above this many minima tell of other work on the machine."""


def scatter(us: Iterable[Mapping[str, float]]) -> float:
    """Return the largest quotient of a median and a minimum of :func:`interleave`."""
    return max((side["median"] / side["min"] for side in us), default=1.0)
