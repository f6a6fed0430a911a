"""Output of a call that is seen by its user alone: what it prints, logs or writes."""

from __future__ import annotations

import builtins
import io
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from .state import POLICY

PRINTS = frozenset({"print", "input", "open"})
"""Python's functions that reach the user or a file."""


WRITING = frozenset({"logging", "numpy.lib._datasource", "numpy.lib._npyio_impl"})
"""Modules of libraries that write what a user asks for."""


def call_watched(call: Callable[[], Any]) -> tuple[Any, str]:
    """Return the result of a call, and the name of a function by which it printed.

    The name is empty if it did not. Output of libraries does not count. Nothing is seen
    while a profiler runs.
    """
    if sys.getprofile() is not None:
        return call(), ""
    results: list[str] = []

    def watch(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and _prints(function):
            module = frame.f_globals.get("__name__", "")
            if module in WRITING or not POLICY.is_constant(module):
                results.append(function.__name__)

    sys.setprofile(watch)
    try:
        result = call()
    finally:
        sys.setprofile(None)
    return result, results[0] if results else ""


def _prints(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    if owner is builtins:
        return function.__name__ in PRINTS
    return isinstance(owner, io.IOBase)
