"""The Julia module of a library."""

from __future__ import annotations

from collections.abc import Sequence

from ..exports import Function
from .c import call_text


def julia_module(name: str, functions: Sequence[Function]) -> str:
    """Return the module."""
    return f"# {name}\n" + "".join(f"# {call_text(f)}\n" for f in functions)
