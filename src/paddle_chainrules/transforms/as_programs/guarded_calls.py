"""The functions that serve calls like earlier ones, of one net or function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .guards import GuardedCall

CALLS_BEFORE_GUARDED = 3
"""Calls that one program serves by the general way before a function is written."""

MAX_KINDS = 6
"""Kinds of calls that have a function; the one not used for longest is dropped."""

MAX_WRITTEN = 64
"""Functions that are written in all; each takes as long as some ten calls."""


class Compiled(Protocol):
    """A program, with what else belongs to it."""

    @property
    def entered(self) -> Any:
        """Its machine code as a function; None before there is any."""


class GuardedCalls:
    """Functions for kinds of calls, of which the one that served last comes first."""

    def __init__(self) -> None:
        self._kinds: list[tuple[GuardedCall, Compiled]] = []
        self._served: dict[int, tuple[Compiled, int]] = {}
        self._written = 0

    def result(self, *args: Any) -> Any:
        """Return what the function for calls like this one gives, or None."""
        kinds = self._kinds
        for kind in kinds:
            result = kind[0](*args)
            if result is not None:
                if kind is not kinds[0] and self._kinds is kinds:
                    self._kinds = [kind, *(k for k in kinds if k is not kind)]
                return result
        return None

    def note(self, compiled: Compiled, write: Callable[[], GuardedCall | None]) -> None:
        """Note a call that a program has served by the general way.

        Args:
            write: returns a function for calls like this one, if there can be one.
        """
        if self._written >= MAX_WRITTEN:
            return
        _, count = self._served.pop(id(compiled), (compiled, 0))
        if count + 1 < CALLS_BEFORE_GUARDED:
            if len(self._served) >= MAX_WRITTEN:
                self._served.pop(next(iter(self._served)), None)
            self._served[id(compiled)] = compiled, count + 1
            return
        self._written += 1
        call = write()
        if call is not None:
            self.add(compiled, call)

    def add(self, compiled: Compiled, call: GuardedCall) -> None:
        """Add a function; with machine code in place of those of the same program."""
        others = self._kinds
        if compiled.entered is not None:
            others = [kind for kind in others if kind[1] is not compiled]
        self._kinds = [(call, compiled), *others][:MAX_KINDS]
