"""The globals and attributes that a function's code names."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterable
from functools import cache

from .dependencies import codes_of

ANY_NAME = "*"
"""Stands for all attributes, where code reads them by names that it computes."""

DYNAMIC = frozenset({"getattr", "hasattr", "attrgetter"})
"""Functions that read attributes by a string."""


@cache
def names_read(code: types.CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of globals and of attributes that code reads."""
    names: set[str] = set()
    attributes: set[str] = set()
    for part in codes_of(code):
        steps = [*dis.get_instructions(part)]
        for at, step in enumerate(steps):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                names.add(step.argval)
                if step.argval in DYNAMIC:
                    attributes.add(_named_by(steps[at:]))
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
                attributes.add(step.argval)
    return frozenset(names), frozenset(attributes)


def _named_by(steps: Iterable[dis.Instruction]) -> str:
    """Return the attribute that a call of ``getattr`` reads, or ``ANY_NAME``."""
    results = []
    for step in steps:
        if step.opname.startswith("CALL"):
            break
        if "STRING" in step.opname or step.opname.startswith(("FORMAT", "BINARY")):
            return ANY_NAME
        if step.opname == "LOAD_CONST" and isinstance(step.argval, str):
            results.append(step.argval)
    return results[0] if results else ANY_NAME
