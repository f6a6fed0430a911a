"""The lock that threads of Python hold while they call Julia."""

from __future__ import annotations

import ctypes
import threading
from types import TracebackType

from ..paddle_side.locks import new_lock

_owner = ctypes.c_uint64(0)


def start_lock(handles_signals: bool) -> str:
    """Note whether Julia handles SIGSEGV; the address of the owner of the lock.

    Julia reads that address. Without the handler only one thread may ever enter Julia:
    any other, even when it ends, may meet a collection and so end the process.
    """
    lock.is_shared = handles_signals
    return str(ctypes.addressof(_owner))


class JuliaLock:
    """A context manager: one thread at a time, which may enter it again.

    Raises:
        RuntimeError: a thread other than the main one, where Julia runs without its
            own handlers of signals.
    """

    def __init__(self) -> None:
        self._lock = new_lock()
        self._depth = 0
        self.is_shared = True

    def __enter__(self) -> None:
        is_main = threading.current_thread() is threading.main_thread()
        if not (self.is_shared or is_main):
            raise RuntimeError(
                "this Julia is for the main thread alone: without its handlers of "
                "signals a garbage collection that meets another thread kills the "
                "process. Start it by paddle_chainrules.julia.start("
                "handle_signals=True), or set PYTHON_JULIACALL_HANDLE_SIGNALS=yes "
                "before juliacall is imported, and import Paddle after this package"
            )
        self._lock.acquire()
        self._depth += 1
        _owner.value = threading.get_ident()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            _owner.value = 0
        self._lock.release()


lock = JuliaLock()
