"""Functions of Paddle's that take arguments of this package's own kinds, too.

They are replaced from the first such argument on, and pass all others on.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

from .patch_sites import PatchSet, lock, without_listener

_HANDLERS: dict[Any, dict[type, Callable[..., Any]]] = {}
"""Handlers by Paddle's function or class of layers, and by the kind of its first
argument."""

_REMEDIES: dict[str, str] = {}
"""Remedies by the name of a kind that a function does not take."""

_installed = [0]
"""Number of functions whose replacements are installed."""


def handles_kind(kind: type, *functions: Any) -> Callable[[Any], Any]:
    """Decorate the function that is called for a first argument of this kind.

    It is given the arguments as the function is; for a class of layers the ``forward``
    that stood there, the layer, and its arguments.
    """

    def register(handler: Any) -> Any:
        for function in functions:
            _HANDLERS.setdefault(function, {})[kind] = handler
        return handler

    return register


def refused_elsewhere(kind: type, remedy: str) -> None:
    """Have errors of functions that don't take this kind say what to do."""
    _REMEDIES[kind.__name__] = remedy


def install_kinds() -> None:
    """Replace the functions by ones that take such arguments."""
    if _installed[0] == len(_HANDLERS):
        return
    with lock:
        replacements = {}
        for function in [*_HANDLERS][_installed[0] :]:  # those of kinds loaded since
            if isinstance(function, type):
                layers: Any = function
                layers.forward = _dispatching_forward(layers, layers.forward)
            else:
                name = f"{function.__module__}.{function.__qualname__}"
                replacements[name] = function, _dispatching(function)
        PatchSet(replacements).switch(1)
        _installed[0] = len(_HANDLERS)


def _handler_for(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the handler for the kind of the first or a named argument, or None."""
    handlers = _HANDLERS[function]
    for value in (*args[:1], *kwargs.values()):
        if (result := handlers.get(type(value))) is not None:
            return result
    return None


# Layers keep functions as attributes, and what these close over is theirs: so stand-ins
# close over Paddle's own alone.


def _dispatching(function: Any) -> Any:
    native = without_listener(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        handler = _handler_for(function, args, kwargs)
        return (handler or native)(*args, **kwargs)

    return call


def _dispatching_forward(layers: Any, forward: Any) -> Any:
    @functools.wraps(forward)
    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        handler = _handler_for(layers, args, kwargs)
        if handler is None:
            return forward(layer, *args, **kwargs)
        return handler(forward, layer, *args, **kwargs)

    return call


_UNSUPPORTED_KIND = r"(\w+)\(\): argument .*but got (\w+)"


def explain(error: Exception) -> None:
    """Say what to do, where an operator was given one of these kinds.

    Raises:
        TypeError: it was.
    """
    result = re.search(_UNSUPPORTED_KIND, str(error))
    remedy = result and _REMEDIES.get(result[2])
    if result and remedy:
        raise TypeError(
            f"{result[1]} was given a {result[2]}, which it does not take; {remedy}"
        ) from error
