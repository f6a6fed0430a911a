"""Memory that a call needs, of whichever language, as the kernel counts it (Linux)."""

from __future__ import annotations

import ctypes
import gc
import re
from collections.abc import Callable
from pathlib import Path

from paddle_chainrules.paddle_side.workspace import empty_cache

STATUS = Path("/proc/self/status")


def peak(call: Callable[[], object]) -> int:
    """Bytes by which the process grows at most during a call."""
    empty_cache()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = _bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew, from now
    call()
    return _bytes("VmHWM") - before


def _bytes(what: str) -> int:
    found = re.search(rf"{what}:\s+(\d+) kB", STATUS.read_text())
    assert found is not None
    return 1024 * int(found[1])
