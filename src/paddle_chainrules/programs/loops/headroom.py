"""Memory that compiling needs, where the process may have only so much.

LLVM and the libraries that multiply end the process where they get none.
"""

from __future__ import annotations

import mmap
from pathlib import Path

from ..switch import LOOPS

try:
    import resource
except ImportError:  # Windows, which has no such limits
    resource = None  # type: ignore[assignment]

NEEDED = 512 << 20
"""Bytes. The library LLVM and a net's code take 200 MB of addresses, OpenBLAS 33."""

STATM = Path("/proc/self/statm")
SIZE, DATA = 0, 5
"""Where in that file, in pages, is what counts for a limit."""


def need_headroom() -> None:
    """Refuse to compile where memory might not do, and who is refused can go without.

    Raises:
        MemoryError: a limit of this process leaves too little.
    """
    left = headroom()
    if left is not None and left < NEEDED:
        raise MemoryError(
            f"compiling may need {NEEDED >> 20} MB of addresses, and the limit of this "
            f"process leaves {max(left, 0) >> 20} MB; raise it (ulimit -v, ulimit -d), "
            f"or set {LOOPS}=off to go without machine code"
        )


def headroom() -> int | None:
    """Bytes that limits leave to this process, or None where there are none."""
    if resource is None or not STATM.exists():
        return None
    limits = {SIZE: resource.RLIMIT_AS, DATA: resource.RLIMIT_DATA}
    soft = {place: resource.getrlimit(kind)[0] for place, kind in limits.items()}
    limited = {p: most for p, most in soft.items() if most != resource.RLIM_INFINITY}
    if not limited:
        return None
    pages = STATM.read_text().split()
    return min(most - int(pages[p]) * mmap.PAGESIZE for p, most in limited.items())
