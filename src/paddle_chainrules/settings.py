"""Settings by environment variables: for programs, and for machine code."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

VARIABLE = "PADDLE_CHAINRULES_PROGRAMS"
"""Environment variable: ``off`` runs nothing as a program. The default is ``on``."""

LOOPS = "PADDLE_CHAINRULES_LOOPS"
"""Environment variable: ``off`` runs no loops of machine code.

``first`` compiles them at a program's first call. The default is ``on``.
"""

BLAS = "PADDLE_CHAINRULES_BLAS"
"""Environment variable: the library that multiplies matrices in machine code.

``mkl``, ``onednn`` or ``openblas`` name one, ``own`` is code of this package, ``off``
leaves products to Paddle's own operators, and ``on`` takes the fastest of all.
"""

CODE = "PADDLE_CHAINRULES_CODE"
"""Environment variable: a folder that keeps machine code for later processes."""

CPU = "PADDLE_CHAINRULES_CPU"
"""Environment variable: the level of x86-64 that machine code is limited to.

The default, ``native``, uses all instructions of this processor.
"""

LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")


def _mode_from_environment(variable: str, *other_modes: str) -> str:
    mode = os.environ.get(variable, "on")
    if mode not in ("on", "off", *other_modes):
        more = f"; or to {', '.join(map(repr, other_modes))}" if other_modes else ""
        raise ValueError(
            f"the environment has {variable}={mode!r}; set it to 'off' to have "
            "functions and nets run without, or to 'on', as it is where it is not set"
            f"{more}"
        )
    return mode


def _cpu_from_environment() -> str:
    level = os.environ.get(CPU, "native")
    if level not in ("native", *LEVELS):
        raise ValueError(
            f"the environment has {CPU}={level!r}, which is no level of x86-64; set "
            f"it to one of {', '.join(LEVELS)}, or unset it to use all instructions of "
            "this processor"
        )
    return level


_programs, _loops = (
    _mode_from_environment(VARIABLE),
    _mode_from_environment(LOOPS, "first"),
)
_blas = _mode_from_environment(BLAS, "mkl", "onednn", "openblas", "own")
_cpu = _cpu_from_environment()


def programs_are_on() -> bool:
    """Tell whether functions and nets may run as programs, by the environment."""
    return _programs == "on"


@cache
def loops_are_on() -> bool:
    """Tell whether programs may run with loops.

    The environment must allow it, and llvmlite must be installed.
    """
    return _loops != "off" and find_spec("llvmlite") is not None


def wanted_blas() -> str:
    """Return the library that is to multiply in machine code, ``on``, or ``off``."""
    return _blas


def wanted_cpu() -> str:
    """Return the level of x86-64 that machine code is limited to, or ``native``."""
    return _cpu


def code_folder() -> str:
    """Return the folder that keeps machine code, or an empty string."""
    return os.environ.get(CODE, "")


CALLS_BEFORE_CODE = 0 if _loops == "first" else 32
"""Calls of a program before it is compiled with loops.

Compiling takes as long as many calls.
"""

ANY = 2**62
"""A number of samples that nobody exceeds, for programs that serve any number."""

UNROLLED = 16
"""The number of directions up to which one program has all their operations.

A wider tensor of coordinates has a column for each, and how far it goes along it.
"""
