"""Paddle's log on the terminal, which repeats every error.

If Paddle lacks a derivative, such an error shows that, and the derivative is taken in
another way. Nobody needs to see those lines.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

import paddle

ERROR_SEVERITY = 2
"""The least severity that is written in the meantime, as glog counts them."""


def silence() -> int:
    """Have warnings left out, on all threads; the level before."""
    level = _level()
    before = level[0]
    if before < ERROR_SEVERITY:
        level[0] = ERROR_SEVERITY
    return before


def restore(before: int) -> None:
    """Have the level at that again."""
    _level()[0] = before


@contextmanager
def silenced() -> Iterator[None]:
    """Leave out Paddle's notes and warnings, on all threads, while this lasts."""
    before = silence()
    try:
        yield
    finally:
        restore(before)


@cache
def _level() -> memoryview[int]:
    """Return glog's variable, or one that nobody reads if glog's is not found.

    It is also the unread one if the environment asks for more than warnings.
    """
    result = ctypes.c_int(ERROR_SEVERITY)
    if os.environ.get("GLOG_v", "0") == "0":  # noqa: SIM112  # as glog has it
        with suppress(OSError, ValueError, AttributeError):
            library = ctypes.CDLL(paddle.base.libpaddle.__file__)
            result = ctypes.c_int.in_dll(library, "_ZN3fLI17FLAGS_minloglevelE")
    return memoryview(result).cast("B").cast("i")
