"""What of Python's a net's value may depend on, to see whether it has changed."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import paddle

from ..nets.shell import codes_of, globals_of
from ..nets.slots import ATOMS, walk

MANY = 20_000
"""Places beyond which a net is taken to hold more than itself."""

SMALL = 4_096
"""Bytes of arrays that are compared by content."""

_ABSENT = object()


class State:
    """The attributes of a layer and all below it, and what their functions read.

    That is attributes, what containers hold, what functions close over, and the
    numbers and strings among the global variables that they name. The modes, train or
    eval, are left out.

    Args:
        apart: names of attributes of the layer that its value does not depend on.

    Raises:
        ValueError: it holds far more than a net does.
    """

    def __init__(self, layer: paddle.nn.Layer, apart: frozenset[str]) -> None:
        held = vars(layer)
        self._places: list[tuple[Any, Any, Any]] = []
        self._sizes: list[tuple[Mapping[Any, Any] | list[Any], int]] = []
        seen: set[int] = set()
        functions: list[Any] = [
            type(part).forward for part in layer.sublayers(include_self=True)
        ]
        for _, container, key, value in walk(layer, ""):
            if container is held and key in apart:
                continue
            if key == "training" or isinstance(container, tuple | set | frozenset):
                continue
            self._places.append((container, key, _remembered(value)))
            if len(self._places) > MANY:
                raise ValueError(
                    f"it holds more than {MANY} things, so that changes would take "
                    "long to see; keep data outside of the net"
                )
            if isinstance(container, dict | list) and id(container) not in seen:
                seen.add(id(container))
                self._sizes.append((container, len(container)))
            functions.append(value)
        self._places += _globals_read(functions)

    def is_same(self) -> bool:
        """Whether nothing has changed."""
        for container, size in self._sizes:
            if len(container) != size:
                return False
        try:
            for container, key, value in self._places:
                now = container[key]
                if now is not value and not _is_equal(now, value):
                    return False
        except (LookupError, AttributeError, ValueError):
            return False
        return True


def _remembered(value: Any) -> Any:
    """The value, or a copy where it may change in place."""
    if type(value) is np.ndarray and value.nbytes <= SMALL and value.dtype != object:
        return value.copy()
    return set(value) if type(value) is set else value


def _is_equal(now: Any, value: Any) -> bool:
    kind = type(value)
    if type(now) is not kind:
        return False
    if kind is np.ndarray:
        return now.dtype == value.dtype and np.array_equal(now, value)
    return kind in (*ATOMS, bool, set, tuple) and bool(now == value)


def _globals_read(functions: list[Any]) -> Iterator[tuple[Any, Any, Any]]:
    """The numbers and strings that functions read as global variables."""
    seen: set[tuple[int, str]] = set()
    for function in functions:
        function = getattr(function, "__wrapped__", function)
        function = getattr(function, "__func__", function)
        if not isinstance(function, types.FunctionType):
            continue
        space = function.__globals__
        if space.get("__name__", "").startswith("paddle."):
            continue
        for code in codes_of(function.__code__):
            for name in globals_of(code):
                value = space.get(name, _ABSENT)
                kinds = (str, bytes, int, float, complex, np.ndarray, np.generic)
                if (id(space), name) not in seen and isinstance(value, kinds):
                    seen.add((id(space), name))
                    yield space, name, _remembered(value)
