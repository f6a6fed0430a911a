"""Python's collector of garbage waits while functions are captured, on any thread."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ..locks import in_child_of_fork, new_lock

_lock = new_lock(held_at_fork=True)
_captures_by_thread: Counter[int] = Counter()
"""Number of captures that the collector waits for, by thread."""

_was_enabled = [False]
"""True if the collector was on before the first capture."""


@contextmanager
def collector_waits() -> Iterator[None]:
    """Stop Python's collector, which would search through all that a capture keeps."""
    thread, counted = threading.get_ident(), False
    try:
        with _lock:
            if not _captures_by_thread:
                _was_enabled[0] = gc.isenabled()
            _captures_by_thread[thread] += 1
            counted = True
            gc.disable()
        yield
    finally:  # whatever an interrupt has left
        with _lock:
            _end_captures(thread, int(counted))


def _end_captures(thread: int, count: int) -> None:
    _captures_by_thread[thread] -= count
    if not _captures_by_thread[thread]:
        del _captures_by_thread[thread]
    if not _captures_by_thread and _was_enabled[0]:
        gc.enable()


@in_child_of_fork
def _forget_other_threads() -> None:
    """Stop waiting for captures of other threads, which do not exist in the child."""
    with _lock:
        for thread in {*_captures_by_thread} - {threading.get_ident()}:
            _end_captures(thread, _captures_by_thread[thread])
