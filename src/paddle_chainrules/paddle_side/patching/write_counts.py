"""Writes into tensors that Paddle leaves out of their versions, and counts here.

That is ``set_value``, ``copy_``, what goes by these, such as ``set_state_dict``, and
the steps of optimizers.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

from paddle import Tensor
from paddle.optimizer import Optimizer

from ..listener import listener
from .patch_sites import current_value, install_value, lock

MAX_WRITES = 65_536
"""Most places that keep the number of their last write; the oldest goes first."""


class _ThreadCounts(threading.local):
    on = False


_thread = _ThreadCounts()

write_count = [0]
"""Number of writes so far, where a call that counts cannot be afforded."""

_last_writes: dict[Any, tuple[int, Sequence[Any]]] = {}
"""The number of the last write, and references to the parameters that it moved.

A key is an address, or tells of an optimizer. The latest write comes last.
"""


@contextmanager
def writes_counted() -> Iterator[None]:
    """Have every write of this thread move the version of its tensor."""
    _install_counting()
    before = _thread.on
    try:
        _thread.on = True
        yield
    finally:  # without a call, at which an interrupt could come
        _thread.on = before


@cache
def _install_counting() -> None:
    with lock:
        for name in ("set_value", "copy_", "exponential_"):
            install_value(Tensor, name, _counted(current_value(Tensor, name)))
        steps = current_value(Optimizer, "_apply_optimize")
        install_value(Optimizer, "_apply_optimize", _counted_steps(steps))


def _counted(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def write(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        if _thread.on:
            self._bump_inplace_version()
        if listener() is None and self._is_initialized():
            _note_write(self.data_ptr())
        return result

    return write


def _counted_steps(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def step(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        pairs = kwargs["params_grads"] if "params_grads" in kwargs else args[2]
        pairs = pairs["params"] if isinstance(pairs, dict) else pairs
        moved_params = [weakref.ref(p) for p, grad in pairs if grad is not None]
        _note_write(("steps", id(self)), moved_params)
        return result

    return step


def _note_write(key: Any, moved: Sequence[Any] = ()) -> None:
    with lock:
        write_count[0] += 1
        _last_writes.pop(key, None)
        _last_writes[key] = write_count[0], moved
        if len(_last_writes) > MAX_WRITES:
            del _last_writes[next(iter(_last_writes))]


def writes_so_far() -> int:
    """Return how many writes there were."""
    return write_count[0]


def is_written_since(count: int, tensors: Iterable[Tensor]) -> bool:
    """Return whether tensors were written into after the first ``count`` writes.

    A write is seen if the first byte that it writes belongs to one of the tensors.
    """
    if write_count[0] == count:
        return False
    with lock:
        addresses = sorted(_write_addresses(count))
    for x in tensors if addresses else ():
        if not x._is_initialized():
            continue
        start = x.data_ptr()
        first = bisect_left(addresses, start)
        stop = start + int(x.size) * int(x.element_size())
        if first < len(addresses) and addresses[first] < stop:
            return True
    return False


def _write_addresses(count: int) -> Iterator[int]:
    """Yield the first addresses of all writes after the first ``count``."""
    for key, (number, moved) in reversed(_last_writes.items()):
        if number <= count:
            return
        if isinstance(key, int):
            yield key
        for reference in moved:
            if (p := reference()) is not None:
                yield p.data_ptr()
