"""Turns of Python's threads in calling Julia."""

from __future__ import annotations

import ctypes
import threading
from types import TracebackType

_owner = ctypes.c_uint64(0)


def owner_address() -> str:
    """Where the identity of the thread that has the turn stands, for Julia to read."""
    return str(ctypes.addressof(_owner))


class Turn:
    """A context manager: one thread at a time, which may enter it again."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0

    def __enter__(self) -> None:
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


turn = Turn()
