"""Python state that a function reads besides its arguments: part of the cache key.

A program keeps the values of that state as constants. :class:`OuterState` finds the
closed-over variables, globals and attributes that the function's code names, compares
them at each call, and gives another key when one of them has another value.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from operator import is_
from types import MethodType
from typing import Any

from ...programs.capture_error import CaptureError
from .dependencies import ATOMS
from .state_reads import (
    FUNCTION_ATTRIBUTES,
    MISSING,
    NOTHING,
    StateRead,
    is_told_elsewhere,
    reads_of,
)

MAX_STATES = 64
"""States that are kept, those that were met last."""


def _unchanged(reads: Iterable[StateRead]) -> Callable[[], bool]:
    """Return a function that tells at little cost if nothing read has changed."""
    at: list[Any] = [read.at for read in reads if read.at]
    dicts, keys, values = zip(*at, strict=True) if at else ((), (), ())
    missing = (MISSING,) * len(at)
    of_functions = []  # functions and values of an attribute
    for get in FUNCTION_ATTRIBUTES.values():
        own = [r.function for r in reads if r.function and r.function.get is get]
        if own:
            _, functions, parts = zip(*own, strict=True)
            of_functions.append((get, functions, parts))

    def same_entries() -> bool:
        for get, functions, parts in of_functions:
            if not all(map(is_, map(get, functions), parts)):
                return False
        return all(map(is_, map(dict.get, dicts, keys, missing), values))

    sized = [read.sized for read in reads if read.sized]
    rest = [read for read in reads if not (read.at or read.sized or read.function)]
    tests = [r.is_same for r in rest if r.is_same is not is_told_elsewhere]
    if not (sized or tests):
        return same_entries
    containers, sizes = zip(*sized, strict=True) if sized else ((), ())

    def all_same() -> bool:
        if not same_entries() or tuple(map(len, containers)) != sizes:
            return False
        return all(is_same() for is_same in tests)

    return all_same


class OuterState:
    """The states of what a function reads besides its arguments, each with a number.

    State that the function itself changes while it is captured does not count. A method
    that changes its instance is meant to, each time, so it is no program.
    """

    def __init__(self) -> None:
        self._reads: list[StateRead] = []
        self._given: tuple[Any, ...] = ()
        self._unchanged: Callable[[], bool] = lambda: False
        self._numbers: OrderedDict[tuple[Any, ...], int] = OrderedDict()
        self._count = self._now = 0
        self._own: frozenset[str] = frozenset()
        self._instance_changes = 0
        self._refusal = ""

    def number(self, fn: Callable[..., Any], given: tuple[Any, ...] = ()) -> int:
        """Return the number of a function's state, the same for equal states.

        Args:
            given: arguments whose state counts too: functions, and other objects.

        Raises:
            CaptureError: the function is a method that changes its instance.
        """
        if self._refusal:
            raise CaptureError(self._refusal)
        try:
            return self._number(fn, given)
        except RecursionError:
            raise CaptureError(
                "it reads objects that are nested too deep to be compared at each "
                "call; give what it needs of them as arguments"
            ) from None
        except CaptureError:
            raise
        except Exception as error:  # of the user's own methods
            raise CaptureError(
                "it reads an object that can't be compared at each call "
                f"({type(error).__name__}: {error}); give what it needs of it as "
                "arguments"
            ) from error

    def number_again(self, fn: Callable[..., Any]) -> int:
        """Return the number of the state with the arguments that were given last."""
        return self.number(fn, self._given)

    def _number(self, fn: Callable[..., Any], given: tuple[Any, ...]) -> int:
        are_same = given is self._given or _are_same(given, self._given)
        if not (are_same and self._unchanged()):
            self._unchanged, self._given = (lambda: False), given
            self._reads = reads_of(fn, self._own, given)
            key = tuple([(read.label, read.key) for read in self._reads])
            self._count += 1
            self._now = self._numbers.setdefault(key, self._count)
            self._numbers.move_to_end(key)
            while len(self._numbers) > MAX_STATES:
                self._numbers.popitem(last=False)
            self._unchanged = _unchanged(self._reads)
        return self._now

    def leave_out_changed(self, undo: bool = False) -> bool:
        """Leave out what has changed since it was read: the function changes it.

        Args:
            undo: whether to make it again what it was, since the function will run once
                more.

        Returns:
            Whether nothing but that has changed, so that the program stays right.
        """
        changed = [read for read in self._reads if read.has_changed()]
        labels = {read.label for read in changed}
        of_instance = {label for label in labels if _is_of_instance(label)}
        if of_instance:
            self._instance_changes += 1
            if self._instance_changes > 1:  # at the first call it may be a cache
                self._refusal = (
                    f"it sets {min(of_instance)} at each call, and a program sets "
                    "nothing; give the state as an argument, and return the new one"
                )
        self._own |= labels - of_instance
        if undo:
            for read in changed:
                read.restore()
        if changed:
            self._unchanged = lambda: False
        return bool(changed) and not of_instance

    @contextmanager
    def once_more(self, fn: Callable[..., Any]) -> Iterator[None]:
        """Undo in the end what a further run of the function does to its state."""
        before: list[StateRead] = []
        with suppress(Exception):  # of the user's own methods
            before = reads_of(fn, frozenset(), self._given)
        try:
            yield
        finally:
            for read in before:
                if read.has_changed():
                    read.restore()

    @property
    def refusal(self) -> str:
        """The reason why there are no programs, if that is for the state."""
        return self._refusal

    def shown(self) -> dict[str, Any]:
        """Return the values of the state that was read last, by their labels."""
        reads = [read for read in self._reads if read.key is not NOTHING]
        return {read.label: _shown(read.key) for read in reads}


def _are_same(given: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    """Tell whether these are the same objects, or methods of the same."""
    return len(given) == len(before) and all(
        a is b or (isinstance(a, MethodType) and a == b)
        for a, b in zip(given, before, strict=True)
    )


def _is_of_instance(label: str) -> bool:
    """Tell whether it is the label of a method's instance, or of a part of it."""
    return label.startswith(("self.", "self[", "len(self."))


def _shown(part: Any) -> Any:
    """Return the value that a part of a key stands for, if it is a single one."""
    if not isinstance(part, tuple):
        return part
    if len(part) == 2 and part[0] in ATOMS:
        kind, value = part
        return float.fromhex(value) if kind is float else value
    return [*map(_shown, part)]
