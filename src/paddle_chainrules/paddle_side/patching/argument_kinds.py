"""Functions of Paddle's that take arguments of this package's own kinds, too.

They are replaced from the first such argument on, and pass all others on.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from .places import PatchSet, by_itself, lock

_HANDLERS: dict[Any, dict[type, Callable[..., Any]]] = {}
"""Handlers by Paddle's function or class of layers, and by the kind of its first
argument."""

_INSTEAD: dict[str, str] = {}
"""Remedies by the name of a kind that a function does not take."""

_placed = [0]
"""Number of functions whose replacements are in their places."""


def taken_by(kind: type, *functions: Any) -> Callable[[Any], Any]:
    """Decorate the function that is called for a first argument of this kind.

    It is given the arguments as the function is; for a class of layers the ``forward``
    that stood there, the layer, and its arguments.
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
        for function in [*_HANDLERS][_placed[0] :]:  # those of kinds loaded since
            if isinstance(function, type):
                layers: Any = function
                layers.forward = _forward_in(layers, layers.forward)
            else:
                name = f"{function.__module__}.{function.__qualname__}"
                pairs[name] = function, _stand_in(function)
        PatchSet(pairs).put(1)
        _placed[0] = len(_HANDLERS)


def _of(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the function to call instead, as the first or a named argument asks."""
    handlers = _HANDLERS[function]
    for value in (*args[:1], *kwargs.values()):
        if (result := handlers.get(type(value))) is not None:
            return result
    return None


# Layers keep functions as attributes, and what these close over is theirs: so stand-ins
# close over Paddle's own alone.


def _stand_in(function: Any) -> Any:
    beneath = by_itself(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        handler = _of(function, args, kwargs)
        return (handler or beneath)(*args, **kwargs)

    return call


def _forward_in(layers: Any, forward: Any) -> Any:
    @functools.wraps(forward)
    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        handler = _of(layers, args, kwargs)
        if handler is None:
            return forward(layer, *args, **kwargs)
        return handler(forward, layer, *args, **kwargs)

    return call


_NOT_TAKEN = r"(\w+)\(\): argument .*but got (\w+)"


def explain(error: Exception) -> None:
    """Say what to do, where an operator was given one of these kinds.

    Raises:
        TypeError: it was.
    """
    result = re.search(_NOT_TAKEN, str(error))
    remedy = result and _INSTEAD.get(result[2])
    if result and remedy:
        raise TypeError(
            f"{result[1]} was given a {result[2]}, which it does not take; {remedy}"
        ) from error
