"""The functions that serve calls like earlier ones, of one net or function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from .guards import GuardedCall

CALLS_BEFORE_GUARDED = 3
"""Calls that one program serves by the general way before a function is written."""

MAX_KINDS = 16
"""Kinds of calls that have a function; the one not used for longest is dropped."""

MAX_WRITTEN = 64
"""Functions that are written in all; each takes as long as some ten calls."""

MAX_FAILED = 256
"""Calls for which none could be written, before no more are tried."""


class Compiled(Protocol):
    """A program, with what else belongs to it."""

    @property
    def entered(self) -> Any:
        """Its machine code as a function; None before there is any."""


class Kind(NamedTuple):
    """A kind of calls, and its function."""

    call: GuardedCall
    compiled: Compiled
    has_code: bool
    """Tells whether there was machine code when it was written."""


class GuardedCalls:
    """Functions for kinds of calls, of which the one that served last comes first."""

    def __init__(self) -> None:
        self._kinds: list[Kind] = []
        self._served: dict[int, tuple[Compiled, int]] = {}
        self._written = self._failed = 0

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
        if self._written >= MAX_WRITTEN or self._failed >= MAX_FAILED:
            return
        _, count = self._served.pop(id(compiled), (compiled, 0))
        call = None
        if count + 1 >= CALLS_BEFORE_GUARDED:
            call = write()
            self._failed += call is None
        if call is None:
            if len(self._served) >= MAX_WRITTEN:
                self._served.pop(next(iter(self._served)), None)
            self._served[id(compiled)] = compiled, count + 1
        else:
            self._written += 1
            self.add(compiled, call)

    def add(
        self,
        compiled: Compiled,
        call: GuardedCall,
        instead_of: GuardedCall | None = None,
    ) -> None:
        """Add a function.

        Those of the same program that were written before its machine code serve no
        more.

        Args:
            instead_of: another one that it takes the place of.
        """
        has_code = compiled.entered is not None
        others = [
            kind
            for kind in self._kinds
            if kind.call is not instead_of
            and (kind.has_code or not has_code or kind.compiled is not compiled)
        ]
        self._kinds = [Kind(call, compiled, has_code), *others][:MAX_KINDS]
