"""Functions of Paddle's that take arguments of this package's own kinds, too.

They are replaced wherever Paddle finds them from the first such argument on, and pass
all others on.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from .places import Places, lock

_HANDLERS: dict[Any, dict[type, Callable[..., Any]]] = {}
"""By Paddle's function or class of layers, by the kind of its first argument."""

_INSTEAD: dict[str, str] = {}
"""By the name of a kind, what to do with one that a function does not take."""

_placed = [0]
"""For how many there are stand-ins in their places."""


def taken_by(kind: type, *functions: Any) -> Callable[[Any], Any]:
    """A decorator of what is called for a first argument of this kind.

    It is given the arguments as the function is, or the layer and those of its
    ``forward``.
    """

    def note(handler: Any) -> Any:
        for function in functions:
            _HANDLERS.setdefault(function, {})[kind] = handler
        return handler

    return note


def refused_elsewhere(kind: type, remedy: str) -> None:
    """Have errors of functions that don't take this kind say what to do."""
    _INSTEAD[kind.__name__] = remedy


def place() -> None:
    """Have the functions take such arguments."""
    if _placed[0] == len(_HANDLERS):
        return
    with lock:
        pairs = {}
        for function, handlers in _HANDLERS.items():
            if isinstance(function, type):
                layers: Any = function
                layers.forward = _stand_in(layers.forward, handlers, 1)
            else:
                name = f"{function.__module__}.{function.__qualname__}"
                pairs[name] = function, _stand_in(function, handlers, 0)
        Places(pairs).put(1)
        _placed[0] = len(_HANDLERS)


def _stand_in(function: Any, handlers: dict[type, Callable[..., Any]], at: int) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        first = args[at] if len(args) > at else next(iter(kwargs.values()), None)
        handler = handlers.get(type(first))
        return (handler or function)(*args, **kwargs)

    return call


_NOT_TAKEN = re.compile(r"(\w+)\(\): argument .*but got (\w+)")


def explain(error: Exception) -> None:
    """Say what to do, where an operator was given one of these kinds.

    Raises:
        TypeError: it was.
    """
    found = _NOT_TAKEN.search(str(error))
    remedy = found and _INSTEAD.get(found[2])
    if found and remedy:
        raise TypeError(
            f"{found[1]} was given a {found[2]}, which it does not take; {remedy}"
        ) from error
