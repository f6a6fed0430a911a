"""State of Python that a net's value may depend on, to see whether it has changed."""

from __future__ import annotations

import io
import random
import types
from collections import deque
from collections.abc import Iterator, Mapping, MutableSequence, Set
from operator import getitem, is_
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from ..nets.layers.attribute_walk import ATOMS, Slotted, is_bound, walk
from ..nets.layers.functional_module import globals_of
from ..transforms.as_programs.seen import codes_of
from .constant import is_constant, is_standard
from .written import Place

MAX_PLACES = 20_000
"""Places beyond which a net is taken to hold more than itself."""

MAX_STATE_BYTES = 1 << 20
"""Bytes of arrays that are compared by content, in a tenth of a millisecond."""

VALUES = (str, bytes, int, float, complex, type(None), np.ndarray, np.generic, Tensor)
HOLDERS = (set, tuple, Mapping, MutableSequence, types.SimpleNamespace)
RUNNING = (Iterator, random.Random, np.random.Generator, np.random.RandomState)
"""Types of objects that go on at each use, and don't show where they stand."""


class State:
    """The attributes of objects and all below them, and what their functions read.

    That is attributes of objects and classes, what containers hold, what functions
    close over, and what methods and the functions that they call name among the global
    variables: numbers, strings, arrays, tensors, containers and objects of these. The
    modes, train or eval, are left out.

    Args:
        root: the layer, or a dict of objects.
        apart: attributes that its value does not depend on, each by the identity of
            the dict that it is in, and its name.

    Raises:
        ValueError: it holds far more than a net does, or large arrays, or what can't be
            read.
    """

    def __init__(self, root: Any, apart: Set[Place]) -> None:
        # What a holder has at a key was this value; lists, which are gone through
        # within Python's interpreter.
        self._holders: list[Any] = []
        self._keys: list[Any] = []
        self._values: list[Any] = []
        self._containers: list[Mapping[Any, Any] | list[Any] | deque[Any]] = []
        self._sizes: list[int] = []
        self._seen: set[int] = set()
        self._sized: set[int] = set()
        self._held: set[int] = set()  # functions of which what they hold is noted
        self._functions: list[types.FunctionType] = []
        self._apart = apart
        try:
            self._hold(root)
            layers = isinstance(root, paddle.nn.Layer)
            for part in root.sublayers(include_self=True) if layers else ():
                self._read_class(type(part))
            while self._functions:
                self._read_globals(self._functions.pop())
        except ValueError:
            raise
        except Exception as error:  # such as of a configuration with a missing value
            raise ValueError(
                f"it holds what can't be read ({type(error).__name__}: {error}); give "
                "the net the values that it needs"
            ) from error

    def changed(self) -> str:
        """Return the name of something that has changed."""
        for container, size in zip(self._containers, self._sizes, strict=True):
            if len(container) != size:
                at = [i for i, v in enumerate(self._values) if v is container]
                return str(self._keys[at[0]] if at else type(container).__name__)
        for holder, key, value in zip(
            self._holders, self._keys, self._values, strict=True
        ):
            try:
                found = holder[key]
            except Exception:  # of an object of somebody's, which had it before
                return str(key)
            if found is not value and not _is_equal(found, value):
                return str(key)
        return "one of them"

    def is_same(self) -> bool:
        """Tell whether nothing has changed."""
        if [*map(len, self._containers)] != self._sizes:
            return False
        try:
            found = map(getitem, self._holders, self._keys)
            same = map(is_, found, self._values)
            return all(
                _is_equal(self._holders[i][self._keys[i]], self._values[i])
                for i, is_it in enumerate(same)
                if not is_it
            )
        except (
            Exception
        ):  # what an object of somebody's raises where it was read before
            return False

    def _hold(self, root: Any) -> None:
        """Note all that an object holds."""
        for _, container, key, value in walk(root, ""):
            if isinstance(key, str) and (id(container), key) in self._apart:
                continue
            if key == "training" or isinstance(container, tuple | set | frozenset):
                continue
            self._note_size(container)
            self._note(container, key, value)

    def _place(self, holder: Any, key: Any, value: Any) -> None:
        if _goes_on(value):
            raise ValueError(
                f"it reads {key}, a {type(value).__name__}, which goes on at each use; "
                "draw or count outside of the net and its transforms"
            )
        self._holders.append(holder)
        self._keys.append(key)
        self._values.append(value)

    def _note_size(self, container: Any) -> None:
        if (
            isinstance(container, dict | list | deque)
            and id(container) not in self._sized
        ):
            self._sized.add(id(container))
            self._containers.append(container)
            self._sizes.append(len(container))

    def _note(self, container: Any, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and _is_too_large(value):
            raise ValueError(
                f"it reads an array of {value.nbytes:,} bytes, which takes long to "
                "compare; make it a tensor, or write-protect it by "
                "array.flags.writeable = False"
            )
        self._note_size(value)  # an empty one, too
        self._place(container, key, _remembered(value))
        if len(self._values) > MAX_PLACES:
            raise ValueError(
                f"it holds more than {MAX_PLACES} things, so that changes would take "
                "long to see; keep data and whole configurations outside of the net"
            )
        self._functions += _functions_in(value)
        if isinstance(value, types.FunctionType):
            self._held.add(id(value))
        elif not isinstance(value, VALUES):
            self._read_class(value if isinstance(value, type) else type(value))

    def _read_class(self, kind: type) -> None:
        """Read its methods, and what is the same for all of its instances."""
        for owner in kind.__mro__:
            if id(owner) in self._seen or is_standard(owner.__module__):
                continue
            self._seen.add(id(owner))
            for name, value in [*vars(owner).items()]:
                if isinstance(value, (*VALUES, *HOLDERS)):
                    if not name.startswith("__"):
                        self._note(vars(owner), name, value)
                        if isinstance(value, HOLDERS):
                            self._hold(value)
                elif (functions := [*_functions_in(value)]) or _goes_on(value):
                    self._place(vars(owner), name, value)
                    self._functions += functions

    def _read_globals(self, function: types.FunctionType) -> None:
        """Note the global variables that a function names."""
        space = function.__globals__
        if id(function) in self._seen or is_constant(space.get("__name__", "")):
            return
        self._seen.add(id(function))
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            self._place(Slotted(function), name, getattr(function, name))
        if id(function) not in self._held:
            self._hold(function)
        if is_standard(space.get("__name__", "")):
            return
        cells = [c.cell_contents for c in function.__closure__ or () if is_bound(c)]
        for code in codes_of(function.__code__):
            read = {name: space[name] for name in globals_of(code) & space.keys()}
            for name, value in read.items():
                if not isinstance(value, types.ModuleType):
                    self._read_global(space, name)
            for value in (*read.values(), *cells):
                if isinstance(value, types.ModuleType) and not is_standard(
                    value.__name__
                ):
                    for name in vars(value).keys() & {*code.co_names}:
                        self._read_global(vars(value), name)

    def _read_global(self, space: dict[str, Any], name: str) -> None:
        value = space[name]
        if isinstance(value, VALUES):
            self._note(space, name, value)
        elif id(value) not in self._seen and _is_held(value):
            self._seen.add(id(value))
            self._note(space, name, value)
            self._hold(value)
        else:
            self._place(space, name, value)
            self._functions += _functions_in(value)
            if isinstance(value, type):
                self._read_class(value)


def _is_held(value: Any) -> bool:
    """Tell whether a value is a container, or an object of a class that may change."""
    if isinstance(value, HOLDERS):
        return True
    skipped = types.ModuleType, types.FunctionType, types.BuiltinFunctionType
    has = isinstance(getattr(value, "__dict__", None), dict) or any(
        "__slots__" in vars(kind) for kind in type(value).__mro__
    )
    return (
        has
        and not isinstance(value, skipped)
        and not is_standard(type(value).__module__)
    )


def _goes_on(value: Any) -> bool:
    """Tell whether its next use differs from the last; of open files output is seen."""
    return isinstance(value, RUNNING) and not isinstance(value, io.IOBase)


def _functions_in(value: Any) -> Iterator[types.FunctionType]:
    """Yield the functions that run when this value is called."""
    if isinstance(value, property):
        value = value.fget
    for name in ("__func__", "func", "__wrapped__"):  # of methods, partials, wrappers
        calls = callable(value) or isinstance(value, classmethod)
        inner = getattr(value, name, None) if calls else None
        if isinstance(inner, types.FunctionType):
            yield inner
    if isinstance(value, types.FunctionType):
        yield value


def _is_too_large(value: np.ndarray[Any, Any]) -> bool:
    """Tell whether a value that may change is too large to be compared."""
    return (
        value.nbytes > MAX_STATE_BYTES
        and value.dtype != object
        and value.flags.writeable
    )


def _remembered(value: Any) -> Any:
    """Return the value, or a copy if it may change in place."""
    if isinstance(value, np.ndarray) and value.nbytes <= MAX_STATE_BYTES:
        return value.copy()
    return set(value) if type(value) is set else value


def _is_equal(now: Any, value: Any) -> bool:
    kind = type(value)
    if type(now) is not kind:
        return False
    if kind is np.ndarray:
        if (now.dtype, now.shape) != (value.dtype, value.shape):
            return False
        if now.dtype == object:
            return np.array_equal(now, value)
        return bool(now.tobytes() == value.tobytes())  # of zeros the sign, too
    if kind in (float, complex):
        return repr(now) == repr(value)
    if kind is set:
        return sorted(map(repr, now)) == sorted(map(repr, value))
    return kind in (*ATOMS, bool, set, tuple) and bool(now == value)
