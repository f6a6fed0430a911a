"""Whether anything may run as a program, and programs with loops."""

from __future__ import annotations

import os
from functools import cache
from importlib.util import find_spec

VARIABLE = "PADDLE_CHAINRULES_PROGRAMS"
"""Of the environment: ``off`` for who suspects programs, ``on`` as is the default."""

LOOPS = "PADDLE_CHAINRULES_LOOPS"
"""Of the environment: ``off`` for who suspects loops of machine code, ``first`` to have
them from a program's first call on, ``on`` as is the default."""

BLAS = "PADDLE_CHAINRULES_BLAS"
"""Of the environment: ``mkl``, ``onednn`` or ``openblas`` to have its products of
matrices in machine code, ``off`` to have Paddle's own, ``on`` for the fastest."""

CODE = "PADDLE_CHAINRULES_CODE"
"""Of the environment: a folder in which machine code is kept for later processes."""

CPU = "PADDLE_CHAINRULES_CPU"
"""Of the environment: a level of x86-64 whose instructions machine code is limited to,
``native`` for all of this processor's, as is the default."""

LEVELS = ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")


def _given(variable: str, *others: str) -> str:
    found = os.environ.get(variable, "on")
    if found not in ("on", "off", *others):
        more = f"; or to {', '.join(map(repr, others))}" if others else ""
        raise ValueError(
            f"the environment has {variable}={found!r}; set it to 'off' to have "
            "functions and nets run without, or to 'on', as it is where it is not set"
            f"{more}"
        )
    return found


def _given_cpu() -> str:
    found = os.environ.get(CPU, "native")
    if found not in ("native", *LEVELS):
        raise ValueError(
            f"the environment has {CPU}={found!r}, which is no level of x86-64; set it "
            f"to one of {', '.join(LEVELS)}, or unset it to use all instructions of "
            "this processor"
        )
    return found


_programs, _loops = _given(VARIABLE), _given(LOOPS, "first")
_blas = _given(BLAS, "mkl", "onednn", "openblas")
_cpu = _given_cpu()


def programs_are_on() -> bool:
    """Whether functions and nets may run as programs, by the environment."""
    return _programs == "on"


@cache
def loops_are_on() -> bool:
    """Whether programs may run with loops: by the environment, and with llvmlite."""
    return _loops != "off" and find_spec("llvmlite") is not None


def wanted_blas() -> str:
    """The library that is to multiply matrices in machine code, ``on``, or ``off``."""
    return _blas


def wanted_cpu() -> str:
    """The level of x86-64 that machine code is limited to, or ``native``."""
    return _cpu


def code_folder() -> str:
    """Where machine code is to be kept, or nothing."""
    return os.environ.get(CODE, "")


CALLS_BEFORE_CODE = 0 if _loops == "first" else 32
"""Calls of a program before it is compiled with loops, which takes as long as many."""
