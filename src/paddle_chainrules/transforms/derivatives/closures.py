"""A search for tensors that a function may reach, and that require gradients."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import paddle
from paddle import Tensor

DEPTH, OBJECTS = 6, 500
"""Depth of the search from a function, and the most objects that it looks at."""


def may_reach(*roots: Any) -> bool:
    """Tell whether a tensor that requires gradients is within reach.

    It looks among the roots, in what functions close over, have as defaults or read as
    global variables, and in attributes and containers. It does not look in modules, nor
    in what this package makes.
    """
    visited: set[int] = set()
    level: Iterable[Any] = roots
    for _ in range(DEPTH):
        next_level: list[Any] = []
        for value in level:
            if isinstance(value, Tensor):
                if not value.stop_gradient:
                    return True
                continue
            children_of = _children_lister(type(value))  # type: ignore[arg-type]
            if children_of is None or id(value) in visited:
                continue
            if len(visited) == OBJECTS:
                return True
            visited.add(id(value))
            next_level += children_of(value)
        if not next_level:
            return False
        level = next_level
    return False


@functools.cache
def _children_lister(kind: Any) -> Callable[[Any], Iterable[Any]] | None:
    """Return the function that lists such an object's children; None if none."""
    if issubclass(kind, types.FunctionType):
        return _values_of_function
    if issubclass(kind, types.MethodType):
        return lambda method: (method.__self__, method.__func__)
    if issubclass(kind, functools.partial):
        return lambda function: (
            function.func,
            *function.args,
            *function.keywords.values(),
        )
    if issubclass(kind, Mapping):
        return lambda mapping: mapping.values()
    if issubclass(kind, list | tuple | set | frozenset):
        return lambda items: items
    if issubclass(kind, paddle.nn.Layer):
        return lambda layer: layer.parameters()
    if kind.__module__.startswith(("paddle", "numpy", "builtins", "torch", "jax")):
        return None
    return lambda value: getattr(value, "__dict__", {}).values()


def _values_of_function(function: types.FunctionType) -> list[Any]:
    values = [
        *(function.__defaults__ or ()),
        *(function.__kwdefaults__ or {}).values(),
    ]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # not bound yet
            continue
    if not (function.__module__ or "").startswith(("paddle.", "paddle_chainrules.")):
        module_globals = function.__globals__
        values += [
            module_globals[name]
            for name in function.__code__.co_names
            if name in module_globals
        ]
    return values
