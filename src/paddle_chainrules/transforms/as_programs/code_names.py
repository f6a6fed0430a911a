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
    """Return names of the globals and of the attributes that code reads."""
    names: set[str] = set()
    attributes: set[str] = set()
    for inner_code in codes_of(code):
        instructions = [*dis.get_instructions(inner_code)]
        for i, instruction in enumerate(instructions):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                names.add(instruction.argval)
                if instruction.argval == "vars":
                    attributes.add(ANY_NAME)
                elif instruction.argval in DYNAMIC:
                    attributes.add(_attribute_read_by(instructions[i:]))
            elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
                name = instruction.argval
                attributes.add(ANY_NAME if name == "__dict__" else name)
    return frozenset(names), frozenset(attributes)


def _attribute_read_by(instructions: Iterable[dis.Instruction]) -> str:
    """Return the attribute that a call of ``getattr`` reads, or ``ANY_NAME``."""
    strings = []
    for instruction in instructions:
        if instruction.opname.startswith("CALL"):
            break
        if "STRING" in instruction.opname or instruction.opname.startswith(
            ("FORMAT", "BINARY")
        ):
            return ANY_NAME
        if instruction.opname == "LOAD_CONST" and isinstance(instruction.argval, str):
            strings.append(instruction.argval)
    return strings[0] if strings else ANY_NAME
