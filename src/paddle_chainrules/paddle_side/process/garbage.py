"""Python's collector of garbage waits while functions are captured, on any thread."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_waiting = [0, False]
"""How many captures it waits for, and whether it was on before the first of them."""


@contextmanager
def collector_waits() -> Iterator[None]:
    """It would look for cycles through all that a capture keeps anyway."""
    begun = False
    try:
        with _lock:
            if not _waiting[0]:
                _waiting[1] = gc.isenabled()
            _waiting[0] += 1
            begun = True
            gc.disable()
        yield
    finally:  # whatever an interrupt has left
        with _lock:
            _waiting[0] -= begun
            if not _waiting[0] and _waiting[1]:
                gc.enable()
