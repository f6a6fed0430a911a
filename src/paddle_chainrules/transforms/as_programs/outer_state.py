"""Python state that a function reads besides its arguments: part of the cache key.

A program keeps the values of that state as constants. :class:`OuterState` finds the
closed-over variables, globals and attributes that the function's code names, compares
them at each call, and gives another key when one of them has another value.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import is_
from types import MethodType
from typing import Any

import numpy as np
from paddle import Tensor

from ...errors import CaptureError
from .dependencies import ATOMS
from .state_reads import (
    DEFAULT_POLICY,
    MISSING,
    MISSING_KEY,
    SPECIAL_ATTRIBUTES,
    Place,
    StatePolicy,
    StateRead,
    always_same,
    reads_of,
)

MAX_STATES = 64
"""States that are kept, those that were met last."""


def unchanged_test(reads: Iterable[StateRead]) -> Callable[[], bool]:
    """Return a cheap test of whether nothing that was read has changed."""
    dict_entries: list[Any] = [read.dict_entry for read in reads if read.dict_entry]
    dicts, keys, values = (
        zip(*dict_entries, strict=True) if dict_entries else ((), (), ())
    )
    missing = (MISSING,) * len(dict_entries)
    special_attributes: list[tuple[Any, ...]] = []  # owners and values of an attribute
    for get in SPECIAL_ATTRIBUTES:
        attributes = [r.special for r in reads if r.special and r.special.get is get]
        if attributes:
            _, owners, attribute_values = zip(*attributes, strict=True)
            special_attributes.append((get, owners, attribute_values))

    def entries_unchanged() -> bool:
        for get, owners, attribute_values in special_attributes:
            if not all(map(is_, map(get, owners), attribute_values)):
                return False
        return all(map(is_, map(dict.get, dicts, keys, missing), values))

    keyed = [read.dict_keys for read in reads if read.dict_keys]
    dicts_with_keys, dict_keys = zip(*keyed, strict=True) if keyed else ((), ())
    sized = [read.container_size for read in reads if read.container_size]
    other_reads = [
        read
        for read in reads
        if not (
            read.dict_entry or read.container_size or read.special or read.dict_keys
        )
    ]
    tests = [r.is_same for r in other_reads if r.is_same is not always_same]
    if not (keyed or sized or tests):
        return entries_unchanged
    containers, sizes = zip(*sized, strict=True) if sized else ((), ())

    def all_unchanged() -> bool:
        if not entries_unchanged() or tuple(map(len, containers)) != sizes:
            return False
        if tuple(map(tuple, dicts_with_keys)) != dict_keys:
            return False
        return all(is_same() for is_same in tests)

    return all_unchanged


def keys_of(reads: Iterable[StateRead]) -> tuple[Any, ...]:
    """Return what equal states have in common."""
    return tuple([(read.label, read.key) for read in reads])


class OuterState:
    """The states of what a function reads besides its arguments, each with a number.

    Args:
        fn: the function, or a layer that is to be called.
        policy: what counts.

    State that the function itself changes while it is captured does not count. A method
    that changes its instance is meant to, each time, so it is no program.
    """

    def __init__(self, fn: Any, policy: StatePolicy = DEFAULT_POLICY) -> None:
        self._fn, self._policy = fn, policy
        self._reads: list[StateRead] = []
        self._holders: tuple[Any, ...] = ()
        self._unchanged: Callable[[], bool] = lambda: False
        self._numbers: OrderedDict[tuple[Any, ...], int] = OrderedDict()
        self._count = self._current = 0
        self._excluded: frozenset[Place] = frozenset()
        self._instance_changes = 0
        self._refusal = ""

    def number(self, holders: tuple[Any, ...] = ()) -> int:
        """Return the number of the function's state, the same for equal states.

        Args:
            holders: arguments whose state counts too: functions, and other objects.

        Raises:
            CaptureError: the function is a method that changes its instance.
        """
        if self._refusal:
            raise CaptureError(self._refusal)
        try:
            return self._number(holders)
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

    def is_number(self, number: int) -> bool:
        """Tell whether the state still has this number, without arguments' state."""
        try:
            same = self._current == number and not self._holders
            return same and self._unchanged()
        except Exception:  # of the user's own methods
            return False

    def is_unchanged(self) -> bool:
        """Tell whether nothing that was read last has changed."""
        try:
            return self._unchanged()
        except Exception:  # of the user's own methods
            return False

    def number_again(self) -> int:
        """Return the number of the state with the last call's arguments."""
        return self.number(self._holders)

    def _number(self, holders: tuple[Any, ...]) -> int:
        are_same = holders is self._holders or _are_same(holders, self._holders)
        if not (are_same and self._unchanged()):
            self._unchanged, self._holders = (lambda: False), holders
            self._reads = self._read(self._excluded, holders)
            key = keys_of(self._reads)
            self._count += 1
            self._current = self._numbers.setdefault(key, self._count)
            self._numbers.move_to_end(key)
            while len(self._numbers) > MAX_STATES:
                self._numbers.popitem(last=False)
            self._unchanged = unchanged_test(self._reads)
        return self._current

    def _read(
        self, excluded: frozenset[Place], holders: tuple[Any, ...]
    ) -> list[StateRead]:
        return reads_of(self._fn, excluded, holders, self._policy)

    def leave_out_changed(self, undo: bool = False) -> bool:
        """Leave out what has changed since it was read: the function changes it.

        Args:
            undo: whether to make it again what it was, since the function will run once
                more.

        Returns:
            Whether nothing but that has changed, so that the program stays right.
        """
        changed = [read for read in self._reads if read.has_changed()]
        of_instance = {r.label for r in changed if _is_of_instance(r.label)}
        if of_instance:
            self._instance_changes += 1
            if self._instance_changes > 1:  # at the first call it may be a cache
                self._refusal = (
                    f"it sets {min(of_instance)} at each call, and a program sets "
                    "nothing; give the state as an argument, and return the new one"
                )
        for read in changed:
            if read.label not in of_instance:
                self._excluded |= read.changed_places()
        if undo:
            for read in changed:
                read.restore()
        if changed:
            self._unchanged = lambda: False
        return bool(changed) and not of_instance

    @contextmanager
    def state_restored(self) -> Iterator[None]:
        """Restore in the end the state that a further run of the function changes."""
        before: list[StateRead] = []
        with suppress(Exception):  # of the user's own methods
            before = self._read(frozenset(), self._holders)
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

    def values_by_label(self) -> dict[str, Any]:
        """Return the values of the state that was read last, by their labels."""
        reads = [read for read in self._reads if read.key is not MISSING_KEY]
        return {read.label: _value_of_key(read.key) for read in reads}


def _are_same(objects: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    """Tell whether these are the same objects, or methods of the same."""
    return len(objects) == len(before) and all(
        a is b or (isinstance(a, MethodType) and a == b)
        for a, b in zip(objects, before, strict=True)
    )


def _is_of_instance(label: str) -> bool:
    """Tell whether it is the label of a method's instance, or of its attribute."""
    return label.removeprefix("keys of ").startswith(("self.", "self[", "len(self."))


def _value_of_key(key: Any) -> Any:
    """Return the value that a state key stands for; a list for a nested key."""
    if not isinstance(key, tuple):
        return key
    if len(key) == 2 and key[0] in ATOMS:
        kind, value = key
        return float.fromhex(value) if kind is float else value
    if len(key) == 2 and isinstance(key[0], type):  # a container, and its number
        return key[0]
    return [*map(_value_of_key, key)]


MAX_DEPTH = 8
"""How deep an argument that is compared by its value is searched for functions."""


def holders_of_state(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments that may hold state: functions, and objects like these.

    Those that are compared by their values tell themselves if they change, but for
    such objects in them.
    """
    return tuple([v for v in values if type(v) not in ATOMS and _holds_state(v)])


def _holds_state(value: Any, depth: int = MAX_DEPTH) -> bool:
    kind: Any = type(value)
    if kind.__eq__ is object.__eq__ or kind is MethodType:
        return True
    if kind in ATOMS or isinstance(value, Tensor | np.ndarray) or not depth:
        return False
    if isinstance(value, tuple | frozenset):
        fields: Iterable[Any] = value
    elif dataclasses.is_dataclass(value):
        fields = [getattr(value, f.name, None) for f in dataclasses.fields(value)]
    else:
        fields = getattr(value, "__dict__", {}).values()
    return any(_holds_state(field, depth - 1) for field in fields)
