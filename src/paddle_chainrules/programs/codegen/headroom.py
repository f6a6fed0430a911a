"""Memory for compiling, in a process whose memory is limited.

LLVM and the matrix libraries end the process when an allocation fails.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from ...settings import LOOPS

try:
    import resource
except ImportError:  # Windows, which has no such limits
    resource = None  # type: ignore[assignment]

MIN_HEADROOM_BYTES = 512 << 20
"""The bytes needed.

The library LLVM and a net's code take 200 MB of addresses, OpenBLAS 33.
"""

STATM = Path("/proc/self/statm")
SIZE, DATA = 0, 5
"""Positions in that file of the values, in pages, that count for a limit."""


def need_headroom() -> None:
    """Refuse to compile if memory might run out. The caller then runs without code.

    Raises:
        MemoryError: a limit of this process leaves too little.
    """
    remaining = headroom()
    if remaining is not None and remaining < MIN_HEADROOM_BYTES:
        raise MemoryError(
            f"compiling may need {MIN_HEADROOM_BYTES >> 20} MB of addresses, and the "
            f"limit of this process leaves {max(remaining, 0) >> 20} MB; raise it "
            "(ulimit -v, ulimit -d), "
            f"or set {LOOPS}=off to go without machine code"
        )


def headroom() -> int | None:
    """Return how many bytes the limits leave to this process; None without limits."""
    if resource is None or not STATM.exists():
        return None
    limits = {SIZE: resource.RLIMIT_AS, DATA: resource.RLIMIT_DATA}
    soft = {field: resource.getrlimit(kind)[0] for field, kind in limits.items()}
    limited = {
        field_index: limit
        for field_index, limit in soft.items()
        if limit != resource.RLIM_INFINITY
    }
    if not limited:
        return None
    pages = STATM.read_text().split()
    return min(
        limit - int(pages[field_index]) * mmap.PAGESIZE
        for field_index, limit in limited.items()
    )
