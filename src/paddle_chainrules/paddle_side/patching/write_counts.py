"""Writes into tensors that Paddle leaves out of their versions, and counts here."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

from paddle import Tensor

from .places import lock, stand, standing


class _Here(threading.local):
    on = False


_here = _Here()


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


def _counted(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def write(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        found = method(self, *args, **kwargs)
        if _here.on:
            self._bump_inplace_version()
        return found

    return write
