"""What the code of functions names, and whether that may be more than a value."""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Iterator

PURE = (
    *("paddle", "numpy", "builtins", "paddle_chainrules", "math", "cmath"),
    *("functools", "itertools", "operator", "typing", "collections", "_operator"),
    *("_functools", "dataclasses", "enum", "numbers", "fractions", "decimal", "abc"),
)
"""Packages of which functions give the same again, but for those of WORDS."""

WORDS = frozenset(
    {
        *("print", "input", "open", "exec", "eval", "compile", "globals", "locals"),
        *("vars", "setattr", "delattr", "iter", "next", "id", "hash", "breakpoint"),
        *("__import__", "import_module", "random", "default_rng", "RandomState"),
        *("time", "perf_counter", "monotonic", "now", "today", "getenv", "environ"),
        *("seed", "get_rng_state", "set_rng_state", "get_flags", "set_flags"),
        *("save", "load", "loadtxt", "fromfile", "memmap", "set_default_dtype"),
        *("get_lr", "set_lr", "step", "backward", "clear_grad", "clear_gradients"),
        *("set_device", "get_device", "register_hook", "set_value", "write", "read"),
        *("log_level", "warn", "info", "debug", "error", "getpid", "get_default_dtype"),
    }
)
"""Names of what gives another value another time, or does something besides."""


def globals_of(code: types.CodeType) -> set[str]:
    """Names of the global variables that it reads."""
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    return {step.argval for step in dis.get_instructions(code) if step.opname in loads}


def codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function, and of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_of(constant)


def check_words(function: types.FunctionType) -> None:
    """Refuse a function that may do more than give a value of what it is given.

    Raises:
        ValueError: it names what may, sets a variable that is not its own, imports, or
            is a generator.
    """
    for code in codes_of(function.__code__):
        where = f"{code.co_qualname if hasattr(code, 'co_qualname') else code.co_name}"
        if words := WORDS & {*code.co_names}:
            raise ValueError(
                f"{where} names {min(words)}, which may give another value another "
                "time, or do something besides; put the transform into jit where that "
                "is no matter"
            )
        goes_on = code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE)
        if goes_on and code.co_name != "<genexpr>":
            raise ValueError(
                f"{where} is a generator, which goes on where it stood; put the "
                "transform into jit where that is no matter"
            )
        free = {*code.co_freevars}
        for step in dis.get_instructions(code):
            name = step.opname
            is_set = name in ("STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME")
            is_cell = name in ("STORE_DEREF", "DELETE_DEREF") and step.argval in free
            if is_set or is_cell:
                raise ValueError(
                    f"{where} sets or imports {step.argval}, which later calls may "
                    "see; put the transform into jit where that is no matter"
                )
