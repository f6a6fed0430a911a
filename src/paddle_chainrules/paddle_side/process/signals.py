"""Signal handlers that survive ``import paddle``.

Paddle installs handlers for six signals when it is imported. Julia needs its own one of
SIGSEGV: its garbage collector stops other threads by a fault at a safepoint, so with
Paddle's in place the next collection on several threads kills the process. In a process
without Julia, Paddle's handlers are left as Paddle wants them.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = tuple(
    getattr(signal, name)
    for name in ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTERM")
    if hasattr(signal, name)
)


@contextmanager
def julia_handlers_kept() -> Iterator[None]:
    """Put the handlers back as they were, where Julia runs in this process.

    Until they are back Julia collects no garbage. Where Paddle is imported already
    nothing is at stake, and a second of compilation on Julia's side is spared.
    """
    main = getattr(sys.modules.get("juliacall"), "Main", None)
    if main is None or "paddle" in sys.modules or sys.platform == "win32":
        yield
        return
    collects = main.GC.enable(False)
    main.Libc.systemsleep(0.002)  # a collection that has begun ends first
    sigaction = ctypes.CDLL(None).sigaction
    saved = {}
    for number in SIGNALS:
        saved[number] = ctypes.create_string_buffer(512)  # larger than any sigaction
        sigaction(int(number), None, saved[number])
    try:
        yield
    finally:
        for number, action in saved.items():
            sigaction(int(number), action, None)
        main.GC.enable(collects)
