"""All locks of this package, and how they survive a fork.

Only the thread that forks exists in the child. A lock that another thread held would
never be released there. So we renew every lock in the child, except those that the
forking thread holds itself.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import cached_property
from typing import Any
from weakref import WeakSet

_renewed: WeakSet[Any] = WeakSet()
_held: list[Any] = []
_awaited: list[Any] = []
"""Awaited locks in the order of acquiring them."""

MAX_WAIT_SECONDS = 1.0
"""The longest wait of a fork for a lock that may be held for long."""


def new_lock(held_at_fork: bool = False, awaited: bool = False) -> Any:
    """Create a reentrant lock.

    Args:
        held_at_fork: a fork waits for it, so that the child finds what it guards whole.
            For short work only; such locks are entered in the order they were made in.
        awaited: a fork waits for it for a second at most.
    """
    lock = threading.RLock()
    if held_at_fork:
        _held.append(lock)
    elif awaited:
        _awaited.append(lock)
    else:
        _renewed.add(lock)
    return lock


def in_child_of_fork(function: Callable[[], object]) -> None:
    """Call a function in the child of each fork, after the locks are renewed."""
    _child_callbacks.append(function)


_child_callbacks: list[Callable[[], object]] = []


class _HeldLocks(threading.local):
    """The locks that a thread holds while it forks."""

    def __init__(self) -> None:
        self.locks: list[Any] = []


_acquired = _HeldLocks()


def _acquire_before_fork() -> None:
    for lock in _awaited:
        if lock.acquire(timeout=MAX_WAIT_SECONDS):
            _acquired.locks.append(lock)
    for lock in _held:
        lock.acquire()  # where an interrupt may come, after which some are held
        _acquired.locks.append(lock)


def _release_after_fork() -> None:
    while _acquired.locks:
        _acquired.locks.pop().release()


def _reset_in_child() -> None:
    _release_after_fork()
    for lock in (*_awaited, *_held, *_renewed, *_cached_property_locks()):
        if not lock._is_owned():  # of a thread that is not here
            lock._at_fork_reinit()
    for function in _child_callbacks:
        function()


PACKAGE = __name__.partition(".")[0]


def _cached_property_locks() -> list[Any]:
    """Return the locks of ``cached_property``, which Python has up to version 3.11."""
    if sys.version_info >= (3, 12):
        return []
    return [
        vars(attribute)["lock"]
        for module_name, module in [*sys.modules.items()]
        if module_name.partition(".")[0] == PACKAGE
        for kind in vars(module).values()
        if isinstance(kind, type)
        for attribute in vars(kind).values()
        if isinstance(attribute, cached_property)
    ]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_acquire_before_fork,
        after_in_parent=_release_after_fork,
        after_in_child=_reset_in_child,
    )
