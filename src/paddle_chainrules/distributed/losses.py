"""A loss, as far as ranks can compare theirs: its code, and the constants it uses."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
from paddle import Tensor

PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
PACKAGE = __name__.partition(".")[0]


def lines_of(fn: Callable[..., Any], name: str = "the loss") -> Iterator[str]:
    """What must be alike on all ranks, a line each.

    The code of the function and of those that it uses; numbers and strings that these
    close over, have as defaults, or find in their modules, alone or in dicts and
    tuples. Arrays of more than one element may be a rank's own samples, and lists what
    it has noted; these are not looked at.
    """
    return _of_function(fn, name, set())


def _of_function(fn: Any, name: str, seen: set[int]) -> Iterator[str]:
    if isinstance(fn, functools.partial):
        yield from _of_values(fn.keywords, name, seen)
        yield from _of_values(_numbered(fn.args), name, seen)
        fn = fn.func
    fn = inspect.unwrap(fn.__func__ if isinstance(fn, MethodType) else fn)
    if not isinstance(fn, FunctionType):
        yield f"{name} is a {type(fn).__name__}"
        return
    yield f"{name} {fn.__qualname__}, code {_digest(fn.__code__)}"
    yield from _of_values(_constants_of(fn), name, seen)


def _constants_of(fn: FunctionType) -> dict[str, Any]:
    """What a function finds by names outside of itself, and its defaults."""
    module = fn.__globals__
    found = {n: module[n] for n in _names(fn.__code__) if n in module}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # it is still empty
            continue
    defaults = {f"default {i}": value for i, value in enumerate(fn.__defaults__ or ())}
    return {**found, **(fn.__kwdefaults__ or {}), **defaults}


@functools.lru_cache(256)
def _names(code: CodeType) -> set[str]:
    """What code may find in its module, that of functions within it, too."""
    found = {name for name in code.co_names if not name.startswith("__")}
    nested = (c for c in code.co_consts if isinstance(c, CodeType))
    return found.union(*map(_names, nested))


def _of_values(values: Mapping[Any, Any], owner: str, seen: set[int]) -> Iterator[str]:
    for key, value in sorted(values.items(), key=lambda item: str(item[0])):
        name = f"{key} of {owner}"
        if isinstance(value, PLAIN):
            yield f"{name} = {value!r}"
        elif isinstance(value, (np.ndarray, Tensor)):
            if value.size == 1:
                yield f"{name} = {value.item()!r}"
        elif id(value) not in seen:
            seen.add(id(value))
            if isinstance(value, Mapping):
                yield from _of_values(value, name, seen)
            elif isinstance(value, tuple):
                yield from _of_values(_numbered(value), name, seen)
            elif _is_own(value):
                yield from _of_function(value, name, seen)


def _numbered(values: tuple[Any, ...]) -> dict[Any, Any]:
    return dict(enumerate(values))


def _is_own(value: Any) -> bool:
    """Whether it is a function of the program's, and of no library."""
    fn = value.func if isinstance(value, functools.partial) else value
    fn = inspect.unwrap(fn) if isinstance(fn, FunctionType) else fn
    if not isinstance(fn, FunctionType):
        return False
    label = (fn.__module__ or "").partition(".")[0]
    if label != "__main__" and label in {*sys.stdlib_module_names, PACKAGE}:
        return False
    return "-packages" not in fn.__code__.co_filename


@functools.lru_cache(256)
def _digest(code: CodeType) -> str:
    return hashlib.blake2b(_text_of(code).encode(), digest_size=4).hexdigest()


def _text_of(const: Any) -> str:
    """The same in each process, as ``repr`` is not of sets."""
    if isinstance(const, CodeType):
        parts = ", ".join(map(_text_of, const.co_consts))
        return f"{const.co_code!r} {const.co_names} {parts}"
    if isinstance(const, frozenset):
        return str(sorted(map(_text_of, const)))
    if isinstance(const, tuple):
        return str([*map(_text_of, const)])
    return repr(const)
