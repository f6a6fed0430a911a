"""Python's collector of garbage waits while functions are captured, on any thread."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ..locks import in_child_of_fork, new_lock

_lock = new_lock(held_at_fork=True)
_waiting: Counter[int] = Counter()
"""Number of captures that the collector waits for, by thread."""

_was_on = [False]
"""True if the collector was on before the first capture."""


@contextmanager
def collector_waits() -> Iterator[None]:
    """Stop Python's collector, which would search through all that a capture keeps."""
    thread, begun = threading.get_ident(), False
    try:
        with _lock:
            if not _waiting:
                _was_on[0] = gc.isenabled()
            _waiting[thread] += 1
            begun = True
            gc.disable()
        yield
    finally:  # whatever an interrupt has left
        with _lock:
            _ended(thread, int(begun))


def _ended(thread: int, count: int) -> None:
    _waiting[thread] -= count
    if not _waiting[thread]:
        del _waiting[thread]
    if not _waiting and _was_on[0]:
        gc.enable()


@in_child_of_fork
def _only_this_thread() -> None:
    """Stop waiting for captures of other threads, which do not exist in the child."""
    with _lock:
        for thread in {*_waiting} - {threading.get_ident()}:
            _ended(thread, _waiting[thread])
