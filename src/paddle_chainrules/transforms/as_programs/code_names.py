"""The globals and attributes that a function's code names."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from .dependencies import codes_of

ANY_NAME = "*"
"""Stands for all attributes, where code reads them by names that it computes."""

COUNTED = "**"
"""Stands for how many there are, where code goes through all of them."""

EVERY_NAME = frozenset({ANY_NAME, COUNTED})
"""What code reads by ``vars``, ``dir`` and ``__dict__``."""

DYNAMIC = frozenset({"getattr", "hasattr", "attrgetter", "methodcaller"})
"""Functions that read attributes by a string."""

UNKNOWABLE = frozenset({"globals", "eval", "exec", "__import__", "import_module"})
"""Functions that read variables or modules by names that they compute."""


class NamesRead(NamedTuple):
    """What code reads.

    Attributes:
        names: of globals.
        attributes: names of attributes, of any object.
        imports: names of modules that it imports, and from how many packages above its
            own.
        unknowable: a function by which it reads what no name tells; empty if none.
    """

    names: frozenset[str]
    attributes: frozenset[str]
    imports: frozenset[tuple[str, int]]
    unknowable: str


@cache
def names_read(code: types.CodeType) -> NamesRead:
    """Return what code reads, and code of functions in it."""
    names: set[str] = set()
    attributes: set[str] = set()
    imports: set[tuple[str, int]] = set()
    for inner_code in codes_of(code):
        instructions = [
            instruction
            for instruction in dis.get_instructions(inner_code)
            if instruction.opname != "EXTENDED_ARG"  # of long functions, before others
        ]
        for i, instruction in enumerate(instructions):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                names.add(instruction.argval)
                if instruction.argval in ("vars", "dir"):
                    attributes |= EVERY_NAME
                elif instruction.argval in DYNAMIC:
                    attributes.add(_attribute_read_by(instructions[i:]))
            elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"):
                name = instruction.argval
                attributes |= EVERY_NAME if name == "__dict__" else {name}
                if name in ("attrgetter", "methodcaller"):
                    attributes.add(_attribute_read_by(instructions[i:]))
            elif instruction.opname == "IMPORT_NAME":
                imports.add((instruction.argval, instructions[i - 2].argval))
            elif instruction.opname == "IMPORT_FROM":
                attributes.add(instruction.argval)
            elif instruction.opname == "IMPORT_STAR":
                attributes.add(ANY_NAME)
    dynamic = {*(names & UNKNOWABLE), *(attributes & {"import_module"})}
    return NamesRead(
        *(frozenset(names), frozenset(attributes), frozenset(imports)),
        min(dynamic, default=""),
    )


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
