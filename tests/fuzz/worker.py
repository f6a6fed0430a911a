"""Make random calls: ``python worker.py first count``; tell of each in lines of JSON.

A call is that of its number alone, so that ``worker.py 1234 1`` makes it again.
"""

import gc
import json
import os
import resource
import sys
import tempfile
import traceback
import types
import warnings

import numpy as np
import paddle

from fuzz import values
from fuzz.calls import CALLS, CLASSES, OF_FUNCTIONS
from fuzz.signatures import drawn, kinds_by_signature, public_names

PACKAGE = os.sep + "paddle_chainrules" + os.sep
OURS = "src" + PACKAGE
OPERATORS = tuple(
    PACKAGE + os.sep.join(parts)
    for parts in (("paddle_side",), ("programs", "tracing"), ("programs", "operators"))
)
"""Where operators pass that a user's function calls."""
RUN = os.sep.join(("programs", "operators"))
"""Where some of them run; what Paddle refuses there it refuses in the function, too."""
TYPED = (TypeError, ValueError, RuntimeError, OSError, MemoryError, ImportError)
INTERNAL = (NotImplementedError, RecursionError, UnicodeError)
"""Of those typed, what is raised from inside by mistake."""

LARGE = 3 << 30
"""Bytes that no call may take."""


def made(rng, kinds, keywords):
    """Arguments, mostly of the right kinds, and sometimes of a wrong number."""
    hostile = (0.0, 0.15, 0.5)[int(rng.integers(3))]
    args = [drawn(rng, kind, hostile) for kind in kinds]
    if rng.random() < 0.1:
        args = args[:-1] if rng.random() < 0.5 else [*args, values.anything(rng)]
    given = {
        k: drawn(rng, v, hostile) for k, v in keywords.items() if rng.random() < 0.3
    }
    return args, given


def called(rng, told, name, fn, kinds, keywords):
    args, given = made(rng, kinds, keywords)
    texts = [*map(shown, args), *(f"{k}={shown(v)}" for k, v in given.items())]
    told.append(f"{name}({', '.join(texts)})")
    return fn(*args, **given)


def shown(value):
    if isinstance(value, paddle.Tensor):
        return f"{str(value.dtype).removeprefix('paddle.')}{value.shape}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {shown(v)}" for k, v in value.items()) + "}"
    if type(value) in (list, tuple):
        return f"{type(value).__name__}({', '.join(map(shown, value))})"
    return getattr(value, "__name__", None) or repr(value)[:60].replace("\n", " ")


def one(number):
    """What a call was, and the error that it ended with."""
    rng = np.random.default_rng(number)
    paddle.seed(number)
    names = [*CALLS]
    name = names[number % len(names)]
    told = []
    try:
        found = called(rng, told, name, *CALLS[name])
        for _ in range(3):
            next_one = go_on(rng, told, found)
            found = found if next_one is None else next_one
    except Exception as error:
        return told, error
    return told, None


def go_on(rng, told, found):
    """Call what was given, a method of it, or read an attribute."""
    if isinstance(found, (tuple, list)) and not hasattr(found, "_fields") and found:
        found = values.pick(rng, found)
    if isinstance(found, (type, paddle.Tensor, np.ndarray, str, int, float)):
        return None
    names = public_names(found)
    if not names:
        return None
    if isinstance(found, types.FunctionType) and rng.random() < 0.5:
        return called(rng, told, "it", found, OF_FUNCTIONS, {})
    name = values.pick(rng, names)
    part = found if name == "__call__" else getattr(found, name)
    if callable(part) and not isinstance(part, type):
        return called(rng, told, f"it.{name}", part, *kinds_by_signature(part))
    told.append(f"it.{name}")
    return part if type(part) in CLASSES else None  # others lead to the inside


def verdict(error):
    """Whether an error is typed, the user's own, or from inside."""
    if error is None:
        return "ok", ""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [f for f in frames if OURS in f.filename or f.filename == values.__file__]
    if not mine:
        return "of the user", ""  # or of numpy, whose arrays some calls give
    last = mine[-1]
    where = f"{last.filename.rpartition(PACKAGE)[2]}:{last.lineno}"
    users = [k for k, f in enumerate(mine) if f.filename == values.__file__]
    after = [f.filename for f in mine[users[-1] + 1 :]] if users else []
    passed = (*OPERATORS, RUN) if str(error).startswith("(OutOfRange)") else OPERATORS
    if users and all(any(part in name for part in passed) for name in after):
        return "of the user", where  # or of an operator that the user's function calls
    kind = type(error)
    is_ours = kind.__module__.startswith("paddle_chainrules")
    line = last.line or ""
    raised_here = last is frames[-1] and line.startswith(("raise", "assert"))
    is_checked = kind is AssertionError and "testing" in where
    if raised_here and (
        kind in (NotImplementedError, AttributeError, IndexError) or is_checked
    ):
        return "typed", where
    if not is_ours and (not isinstance(error, TYPED) or isinstance(error, INTERNAL)):
        return "internal", where
    if not is_ours and not line.startswith("raise"):
        return "raw", where
    return "typed", where


def main(first, count):
    warnings.simplefilter("ignore")
    limit = 20 << 30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what functions print
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for number in range(first, first + count):
            out.write(json.dumps({"begin": number}) + "\n")
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            told, error = one(number)
            kind, where = verdict(error)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
            row = {"number": number, "verdict": kind, "where": where, "call": told}
            if grown > LARGE:
                row["verdict"] = "memory"
            if not gc.isenabled():
                row["verdict"] = "collector off"
                gc.enable()
            if error is not None:
                row["error"] = f"{type(error).__name__}: {str(error)[:300]}"
            out.write(json.dumps(row) + "\n")
        os.chdir("/")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
