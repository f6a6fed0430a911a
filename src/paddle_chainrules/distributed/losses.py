"""Lines that describe a loss, so that ranks can compare theirs."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
from paddle import Tensor

from ..nets.layers.functional_module import globals_of
from ..transforms.as_programs.dependencies import codes_of

PLAIN = (bool, int, float, complex, str, bytes, type(None))
PACKAGE = __name__.partition(".")[0]


MAX_DEPTH, MAX_LENGTH = 20, 1000
"""Depth to which containers and functions are followed, and the most parts of one."""


def lines_of(fn: Callable[..., Any], name: str = "the loss") -> Iterator[str]:
    """Yield lines that must be equal on all ranks.

    They name the code of the function and of the functions it uses, and the numbers and
    strings that these close over, have as defaults or read from their modules, also in
    dicts and tuples. Arrays of several elements are skipped, since they may be a rank's
    own samples. So are lists and objects.
    """
    return _function_lines(fn, name, set(), 0)


def _function_lines(fn: Any, name: str, seen: set[int], depth: int) -> Iterator[str]:
    if isinstance(fn, functools.partial):
        yield from _value_lines({**fn.keywords}, name, seen, depth)
        yield from _value_lines(_indexed_dict(fn.args), name, seen, depth)
        fn = fn.func
    fn = fn.__func__ if isinstance(fn, MethodType) else fn
    for wrapped in _wrapped_functions(fn):
        if isinstance(wrapped, FunctionType):
            yield f"{name} {wrapped.__qualname__}, code {_digest(wrapped.__code__)}"
            if _is_of_package(wrapped):  # a transform of the program's own functions
                closed_over = _closed_over(wrapped)
                own_functions = {
                    key: value
                    for key, value in closed_over.items()
                    if _is_user_function(value)
                }
                yield from _value_lines(own_functions, name, seen, depth)
            elif wrapped is fn or _is_user_function(wrapped):
                yield from _value_lines(_constants_of(wrapped), name, seen, depth)
        else:
            yield f"{name} is a {type(wrapped).__name__}"


def _wrapped_functions(fn: Any) -> Iterator[Any]:
    """Yield a function, and the functions that its decorators wrap."""
    seen: list[int] = []
    while fn is not None and id(fn) not in seen:
        seen.append(id(fn))
        wrapped = vars(fn).get("__wrapped__") if hasattr(fn, "__dict__") else None
        if wrapped is None or isinstance(fn, FunctionType):
            yield fn
        fn = wrapped


def _is_of_package(fn: Any) -> bool:
    return str(fn.__globals__.get("__name__", "")).partition(".")[0] == PACKAGE


def _constants_of(fn: FunctionType) -> dict[Any, Any]:
    """Return the globals and cells that a function reads, and its defaults."""
    module = fn.__globals__
    results = {n: module[n] for n in _global_names(fn.__code__) if n in module}
    defaults = {f"default {i}": value for i, value in enumerate(fn.__defaults__ or ())}
    return {**results, **_closed_over(fn), **(fn.__kwdefaults__ or {}), **defaults}


def _closed_over(fn: FunctionType) -> dict[Any, Any]:
    results = {}
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            results[name] = cell.cell_contents
        except ValueError:  # it is still empty
            continue
    return results


@functools.lru_cache(256)
def _global_names(code: CodeType) -> set[str]:
    """Return the globals that code and its nested functions read."""
    results = {name for nested in codes_of(code) for name in globals_of(nested)}
    return {name for name in results if not name.startswith("__")}


def _value_lines(
    values: dict[Any, Any], owner: str, seen: set[int], depth: int
) -> Iterator[str]:
    if depth > MAX_DEPTH or len(values) > MAX_LENGTH:
        yield f"{owner} has {len(values)} parts, too many to compare"
        return
    named = {str(k): v for k, v in values.items() if isinstance(k, (str, int, float))}
    for key, value in sorted(named.items()):
        name = f"{key} of {owner}"
        try:
            yield from _lines_of_value(value, name, seen, depth)
        except Exception as error:  # of an object's own
            yield f"{name} can't be compared, {type(error).__name__}"


def _lines_of_value(value: Any, name: str, seen: set[int], depth: int) -> Iterator[str]:
    if type(value) in PLAIN or isinstance(value, np.generic):
        yield f"{name} = {_value_text(value)}"
    elif isinstance(value, (np.ndarray, Tensor)):
        is_plain = isinstance(value, Tensor) or value.dtype.kind in "biufcSU"
        if value.size == 1 and is_plain:
            yield f"{name} = {_value_text(value.item())}"
    elif id(value) not in seen:
        seen.add(id(value))
        if isinstance(value, dict):
            yield from _value_lines(value, name, seen, depth + 1)
        elif isinstance(value, tuple):
            yield from _value_lines(_indexed_dict(value), name, seen, depth + 1)
        elif _is_user_function(value):
            yield from _function_lines(value, name, seen, depth + 1)


def _value_text(value: Any) -> str:
    """Return the value's text, or a digest of a long text."""
    if isinstance(value, (str, bytes)) and len(value) > MAX_LENGTH:
        data = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
        digest = hashlib.blake2b(data, digest_size=4).hexdigest()
        return f"{len(value)} characters {digest}"
    return repr(value)


def _indexed_dict(values: tuple[Any, ...]) -> dict[Any, Any]:
    return dict(enumerate(values))


def _is_user_function(value: Any) -> bool:
    """Tell whether it is a function of the user's program and not of a library."""
    fn = value.func if isinstance(value, functools.partial) else value
    fn = inspect.unwrap(fn) if isinstance(fn, FunctionType) else fn
    if not isinstance(fn, FunctionType):
        return False
    top_package = (fn.__module__ or "").partition(".")[0]
    if top_package != "__main__" and top_package in {*sys.stdlib_module_names, PACKAGE}:
        return False
    return "-packages" not in fn.__code__.co_filename


@functools.lru_cache(256)
def _digest(code: CodeType) -> str:
    return hashlib.blake2b(_text_of(code).encode(), digest_size=4).hexdigest()


def _text_of(const: Any) -> str:
    """Return the text of a constant; ``repr`` of a set changes between processes."""
    if isinstance(const, CodeType):
        texts = ", ".join(map(_text_of, const.co_consts))
        return f"{const.co_code!r} {const.co_names} {texts}"
    if isinstance(const, frozenset):
        return str(sorted(map(_text_of, const)))
    if isinstance(const, tuple):
        return str([*map(_text_of, const)])
    return repr(const)
