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
from .places import lock, stand, standing

MAX_WRITES = 65_536
"""Most places that keep the number of their last write; the oldest goes first."""


class _ThreadCounts(threading.local):
    on = False


_here = _ThreadCounts()

_total = [0]
"""Number of writes so far."""

_last: dict[Any, tuple[int, Sequence[Any]]] = {}
"""The number of the last write, and references to the parameters that it moved.

A key is an address, or tells of an optimizer. The latest write comes last.
"""


@contextmanager
def writes_counted() -> Iterator[None]:
    """Have every write of this thread move the version of its tensor."""
    _install()
    before = _here.on
    try:
        _here.on = True
        yield
    finally:  # without a call, at which an interrupt could come
        _here.on = before


@cache
def _install() -> None:
    with lock:
        for name in ("set_value", "copy_", "exponential_"):
            stand(Tensor, name, _counted(standing(Tensor, name)))
        steps = standing(Optimizer, "_apply_optimize")
        stand(Optimizer, "_apply_optimize", _counted_steps(steps))


def _counted(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def write(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        if _here.on:
            self._bump_inplace_version()
        if listener() is None and self._is_initialized():
            _note(self.data_ptr())
        return result

    return write


def _counted_steps(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def step(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        result = method(self, *args, **kwargs)
        pairs = kwargs["params_grads"] if "params_grads" in kwargs else args[2]
        pairs = pairs["params"] if isinstance(pairs, dict) else pairs
        moved = [weakref.ref(p) for p, grad in pairs if grad is not None]
        _note(("steps", id(self)), moved)
        return result

    return step


def _note(key: Any, moved: Sequence[Any] = ()) -> None:
    with lock:
        _total[0] += 1
        _last.pop(key, None)
        _last[key] = _total[0], moved
        if len(_last) > MAX_WRITES:
            del _last[next(iter(_last))]


def writes_so_far() -> int:
    """Return how many writes there were."""
    return _total[0]


def is_written_since(count: int, tensors: Iterable[Tensor]) -> bool:
    """Return whether tensors were written into after the first ``count`` writes.

    A write is seen if the first byte that it writes belongs to one of the tensors.
    """
    if _total[0] == count:
        return False
    with lock:
        places = sorted(_write_addresses(count))
    for x in tensors if places else ():
        if not x._is_initialized():
            continue
        start = x.data_ptr()
        first = bisect_left(places, start)
        stop = start + int(x.size) * int(x.element_size())
        if first < len(places) and places[first] < stop:
            return True
    return False


def _write_addresses(count: int) -> Iterator[int]:
    """Yield the first addresses of all writes after the first ``count``."""
    for key, (number, moved) in reversed(_last.items()):
        if number <= count:
            return
        if isinstance(key, int):
            yield key
        for reference in moved:
            if (p := reference()) is not None:
                yield p.data_ptr()
