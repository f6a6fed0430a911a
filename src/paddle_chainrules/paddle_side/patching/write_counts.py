"""Writes into tensors that Paddle leaves out of their versions, and counts here.

That is ``set_value``, ``copy_``, what goes by these, such as ``set_state_dict``, and
the steps of optimizers.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

from paddle import Tensor
from paddle.optimizer import Optimizer

from ..listener import listener
from .places import lock, stand, standing

MAX_WRITES = 65_536
"""Places that have been written into, of which is known when; the first is dropped."""


class _Here(threading.local):
    on = False


_here = _Here()

_total = [0]
"""How many writes there were."""

_last: dict[int, tuple[int, Any]] = {}
"""By address, or by an optimizer, the number of the last write, and its bytes, or a
reference to that optimizer; the latest write last."""


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
        found = method(self, *args, **kwargs)
        if _here.on:
            self._bump_inplace_version()
        if listener() is None and self._is_initialized():
            _note(self.data_ptr(), _bytes(self))
        return found

    return write


def _counted_steps(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def step(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        found = method(self, *args, **kwargs)
        _note(id(self), weakref.ref(self))
        return found

    return step


def _note(key: int, what: Any) -> None:
    with lock:
        _total[0] += 1
        _last.pop(key, None)
        _last[key] = _total[0], what
        if len(_last) > MAX_WRITES:
            del _last[next(iter(_last))]


def _bytes(tensor: Tensor) -> int:
    return int(tensor.size) * int(tensor.element_size())


def writes_so_far() -> int:
    """Return how many writes there were."""
    return _total[0]


def is_written_since(count: int, tensors: Iterable[Tensor]) -> bool:
    """Return whether there was a write into memory of a tensor after so many writes."""
    if _total[0] == count:
        return False
    with lock:
        spans = [*_spans(count)]
    for x in tensors if spans else ():
        if not x._is_initialized():
            continue
        start, size = x.data_ptr(), _bytes(x)
        if any(start < first + n and first < start + size for first, n in spans):
            return True
    return False


def _spans(count: int) -> Iterator[tuple[int, int]]:
    """Where there were writes after so many, as addresses and bytes."""
    for key, (number, what) in reversed(_last.items()):
        if number <= count:
            return
        if isinstance(what, int):
            yield key, what
        elif (optimizer := what()) is not None:
            for p in optimizer._parameter_list or ():
                for part in p["params"] if isinstance(p, dict) else (p,):
                    yield part.data_ptr(), _bytes(part)
