"""Seconds of training, and the errors on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from .problem import Array, Judge

Found = tuple[Array, Mapping[str, float]]
"""Outputs [points, outputs] in float32 or float64, and coefficients by name."""


class Over(Exception):
    """The time is over."""


class Clock:
    """The processor's time, which stands while an error is measured.

    That is what a run takes where nothing else runs; errors are measured at times ever
    further apart.
    """

    def __init__(self, judge: Judge, limit: float) -> None:
        self.judge, self.limit = judge, limit
        self.curve: list[tuple[float, int, float]] = []
        """Seconds, steps, and the error."""
        self.field: Array | None = None
        """The outputs at the last look."""
        self.since = time.process_time()
        self.stood, self.due = 0.0, 0.0

    def start(self) -> None:
        self.since, self.stood = time.process_time(), 0.0

    def seconds(self) -> float:
        return time.process_time() - self.since - self.stood

    def over(self, steps: int, look: Callable[[], Found]) -> bool:
        """Whether the time is over; the error is measured where that is due."""
        now = self.seconds()
        if now < min(self.due, self.limit):
            return False
        before = time.process_time()
        outputs, learnt = look()
        self.field = outputs
        self.curve.append((now, steps, self.judge.error(outputs, learnt)))
        self.due = 1.1 * now + 0.02
        self.stood += time.process_time() - before
        return now >= self.limit

    def until_over(self, look: Callable[[Any], Found], done: int = 0) -> Any:
        """What methods that have ``on_step`` call: it raises :class:`Over`.

        Args:
            look: what parameters give.
            done: steps before.
        """

        def on_step(step: int, params: Any, _: float) -> None:
            if self.over(done + step, lambda: look(params)):
                raise Over

        return on_step

    def last(self, steps: int, look: Callable[[], Found]) -> None:
        """Measure the error of what ended by itself."""
        self.due = 0.0
        self.over(steps, look)


def train(clock: Clock, steps: Callable[[int], int], look: Callable[[], Found]) -> int:
    """Take steps until the time is over, for a tenth of a second between two looks.

    Args:
        steps: takes about so many, and says how many.
        look: what there is by then.

    Returns:
        How many there were.
    """
    count, done = 10, 0
    while not clock.over(done, look):
        begun = time.process_time()
        done += steps(count)
        factor = 0.1 / max(time.process_time() - begun, 1e-6)
        count = max(1, int(count * min(4.0, max(0.25, factor))))
    return done


LBFGS_AFTER, BROYDEN_AFTER = 0.5, 0.1
"""What part of the time Adam has where L-BFGS or self-scaled Broyden come after it."""

RATE, DECAY = 1e-3, 2e-4


def rate_at(steps: Any) -> Any:
    """The rate of Adam at a step, on all sides."""
    return RATE / (1.0 + DECAY * steps)
