"""Whether a function may use tensors that require gradients, beside its arguments."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Mapping
from typing import Any

import paddle
from paddle import Tensor

DEPTH, OBJECTS = 6, 500
"""How far from a function it is looked, and at how many objects."""

_ATOMS = (str, bytes, int, float, complex, bool, type, types.ModuleType, type(None))


def may_reach(*roots: Any) -> bool:
    """Whether a tensor that requires gradients is within reach.

    That is among the roots, in what functions close over, have as defaults or read as
    global variables, and in attributes and containers; not in modules, nor in what this
    package makes.
    """
    seen: set[int] = set()
    level: list[Any] = [*roots]
    for _ in range(DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, _ATOMS) or id(value) in seen:
                continue
            if isinstance(value, Tensor):
                if not value.stop_gradient:
                    return True
                continue
            if len(seen) == OBJECTS:
                return True
            seen.add(id(value))
            below += _held_by(value)
        if not below:
            return False
        level = below
    return False


def _held_by(value: Any) -> Iterable[Any]:
    if isinstance(value, types.FunctionType):
        return _held_by_function(value)
    if isinstance(value, types.MethodType):
        return value.__self__, value.__func__
    if isinstance(value, functools.partial):
        return value.func, *value.args, *value.keywords.values()
    if isinstance(value, Mapping):
        return [*value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return [*value]
    if isinstance(value, paddle.nn.Layer):
        return [*value.parameters()]
    module = type(value).__module__
    if module.startswith(("paddle", "numpy", "builtins", "torch", "jax")):
        return ()
    return [*getattr(value, "__dict__", {}).values()]


def _held_by_function(function: types.FunctionType) -> list[Any]:
    found = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not bound yet
            continue
    if not function.__module__.startswith(("paddle.", "paddle_chainrules.")):
        named = function.__globals__
        found += [named[name] for name in function.__code__.co_names if name in named]
    return found
