"""All the Python state that a function's code names, read to be compared later."""

from __future__ import annotations

import argparse
import functools
import sys
import types
from array import array
from collections import UserDict, UserList, deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from contextlib import suppress
from operator import attrgetter, is_
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import Tensor

from ...programs.capture_error import CaptureError
from .code_names import ANY_NAME, names_read
from .dependencies import ATOMS, MAX_KEY_BYTES
from .keys import exactly, module_of

MAX_READS = 1_000
"""Variables and containers that are compared at a call; more count as constant.

Those of layers always count.
"""

MAX_ITEMS = 1_000
"""Items of a container that are compared one by one; of more, their number is."""

CONSTANT = frozenset({"paddle", "numpy", "paddle_chainrules", "optree"})
"""Packages whose modules and classes count as constant, as Python's own do."""

CALLED = frozenset({"forward", "__call__"})
"""Methods that run without being named, where an object is called."""

SPECIAL = frozenset(
    {
        *("__init__", "__new__", "__del__", "__repr__", "__str__", "__hash__"),
        *("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__dir__"),
        *("__init_subclass__", "__class_getitem__", "__setattr__", "__set_name__"),
    }
)
"""Special methods that do not run where an object is only used."""

WHOLE = (types.SimpleNamespace, argparse.Namespace, UserDict, UserList)
"""Classes of Python's own whose attributes all count."""


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()


class IdentityKey:
    """A key that is equal for one and the same object, which it keeps alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        kind = type(self.value)
        has_name = issubclass(kind, type | types.FunctionType)
        name = self.value.__qualname__ if has_name else kind.__name__
        return f"{name} at {id(self.value):#x}"


class FunctionAttribute(NamedTuple):
    """An attribute of a function, which an editor may replace."""

    get: Callable[[Any], Any]
    function: types.FunctionType
    value: Any


FUNCTION_ATTRIBUTES: dict[str, Callable[[Any], Any]] = {
    "code": attrgetter("__code__"),
    "defaults": attrgetter("__defaults__"),
    "defaults by name": attrgetter("__kwdefaults__"),
}


class StateRead(NamedTuple):
    """A variable or the contents of a container, as they were read.

    Attributes:
        label: where it stands, as code would name it.
        key: tells its value apart from others.
        is_same: tells if it is still the same.
        at: the dict, key and value of what stands in a dict.
        sized: the container and its size, where only that is compared.
        undo: makes it again what it was.
        function: the function's attribute, where that is compared.
    """

    label: str
    key: Any
    is_same: Callable[[], bool]
    at: tuple[dict[Any, Any], Any, Any] | None = None
    sized: tuple[Sized, int] | None = None
    undo: Callable[[], None] | None = None
    function: FunctionAttribute | None = None

    def has_changed(self) -> bool:
        """Tell if it is no longer the same, or can't be read any more."""
        try:
            return not self.is_same()
        except Exception:  # of the user's own methods
            return True

    def restore(self) -> None:
        """Make it again what it was, where that can be."""
        with suppress(Exception):  # of the user's own methods
            if self.at is not None:
                held, key, value = self.at
                if value is MISSING:
                    held.pop(key, None)
                else:
                    held[key] = value
            elif self.undo is not None:
                self.undo()


def is_told_elsewhere() -> bool:
    """Stand for a comparison that those of other reads make needless."""
    return True


def _is_constant(module: str | None) -> bool:
    """Tell whether the variables of a module and its classes are never set."""
    top = (module or "").partition(".")[0]
    return top in CONSTANT or (top != "__main__" and top in sys.stdlib_module_names)


def reads_of(
    fn: Any, own: frozenset[str], given: Sequence[Any] = ()
) -> list[StateRead]:
    """Return all that a function reads, but for what has these labels.

    It is given some objects, which it reads too.

    An attribute counts if any code names it, so it starts again with more names.
    """
    names = {"training", *CALLED}
    while True:
        reader = _Reader(names, own)
        reader.contents("", fn)
        for at, value in enumerate(given):
            reader.contents(f"an argument ({at})", value)
        if reader.names == names:
            return reader.reads
        names = reader.names


class _Reader:
    """Goes through a function, and through the objects that its code names.

    Args:
        named: the attributes that count.
        own: labels of what does not count.
    """

    def __init__(self, named: Iterable[str], own: frozenset[str]) -> None:
        self.named, self.names, self._own = frozenset(named), {*named}, own
        self.reads: list[StateRead] = []
        self._met: dict[int, Any] = {}
        self._most, self._in_layer = MAX_READS, False

    def variable(
        self,
        label: str,
        get: Callable[..., Any],
        *at: Any,
        undo: Callable[[Any], None] | None = None,
    ) -> None:
        """Read a variable by a function, and read what its value holds.

        Args:
            undo: gives the variable a value.
        """
        if label not in self._own:
            value = get(*at)
            restore = None if undo is None else functools.partial(undo, value)
            is_same = lambda: get(*at) is value  # noqa: E731
            self._add(label, _key_of(value), is_same, None, None, restore)
            self.contents(label, value)

    def _in_dict(self, label: str, held: dict[Any, Any], name: Any) -> None:
        """Read a variable that stands in a dict, and read what its value holds."""
        if label not in self._own:
            value = held.get(name, MISSING)
            is_same = lambda: held.get(name, MISSING) is value  # noqa: E731
            self._add(label, _key_of(value), is_same, (held, name, value))
            self.contents(label, value)

    def _add(self, label: str, key: Any, *rest: Any) -> None:
        if self._in_layer or len(self.reads) < self._most:
            self.reads.append(StateRead(label, key, *rest))
            self._most += self._in_layer

    def contents(self, label: str, value: Any) -> None:
        """Read what a value holds, if that can change."""
        kind = type(value)
        if kind in ATOMS or isinstance(value, Tensor | np.generic | _Missing):
            return
        if label in self._own or id(value) in self._met:
            return
        is_layer = isinstance(value, paddle.nn.Layer)
        if not is_layer and len(self.reads) >= self._most:
            return
        around, self._in_layer = self._in_layer, is_layer
        try:
            self._held(label, value)
        finally:
            self._in_layer = around

    def _held(self, label: str, value: Any) -> None:
        kind = type(value)
        self._met[id(value)] = value
        if isinstance(value, type):
            self._class(value.__name__, value)
            return
        if isinstance(value, staticmethod | classmethod):
            self.contents(label, value.__func__)
        elif isinstance(value, property):
            self.contents(label, value.fget)
        elif kind is types.FunctionType:
            self._function(label, value)
        elif kind is types.MethodType:
            self.contents(label, value.__func__)
            self.contents(label or "self", value.__self__)
        elif kind is functools.partial:
            for part in (value.func, *value.args):
                self.contents(label, part)
            self._entries(f"{label}.keywords", value.keywords)
        elif isinstance(value, types.ModuleType):
            if not _is_constant(value.__name__):
                self._attributes(label, vars(value))
        elif isinstance(value, np.ndarray):
            if _is_small(value):
                self._bytes(label, value, value.tobytes, value.copy())
            elif value.dtype == object and value.size <= MAX_ITEMS:
                self._objects(label, value)
        elif isinstance(value, list | tuple | deque | Mapping):
            if len(value) > MAX_ITEMS:
                self._size(f"len({label})", value)
            elif isinstance(value, dict):
                self._entries(label, value)
            elif isinstance(value, Mapping):
                self._mapping(label, value)
            else:
                self._items(label, value)
        elif isinstance(value, bytearray | array):
            self._bytes(label, value, functools.partial(bytes, value), value[:])
        elif isinstance(value, set | frozenset):
            self._members(label, value)
        elif hasattr(kind, "_depends_on"):
            for part in value._depends_on() or ():
                self.contents(label, part)
        self._object(label, value)

    def _items(self, label: str, held: Any) -> None:
        """Read the items of a sequence, in order."""
        items = [*held]

        def is_same() -> bool:
            return len(held) == len(items) and all(map(is_, held, items))

        def undo() -> None:
            held.clear()
            held.extend(items)

        key = tuple(map(_key_of, items))
        if isinstance(held, tuple):
            self._add(label, key, is_told_elsewhere)
        else:
            self._add(label, key, is_same, None, None, undo)
        for at, item in enumerate(items):
            self.contents(f"{label}[{at}]", item)

    def _mapping(self, label: str, held: Mapping[Any, Any]) -> None:
        """Read a mapping that is no dict.

        Raises:
            CaptureError: it makes other objects at each look.
        """
        now = {**held}

        def is_same() -> bool:
            again = {**held}
            if [*again] != [*now]:
                return False
            return all(map(_is_like, again.values(), now.values()))

        if not is_same():
            raise CaptureError(
                f"it reads {label}, a mapping that makes its values anew at each look; "
                "give them as arguments"
            )
        key = tuple((_key_of(k), _key_of(part)) for k, part in now.items())
        self._add(label, key, is_same)
        for name, value in now.items():
            self.contents(f"{label}[{name!r}]", value)

    def _bytes(
        self, label: str, held: Any, get: Callable[[], bytes], before: Any
    ) -> None:
        """Read what is compared by its bytes; ``before`` is a copy of it."""
        now, whole = get(), ... if isinstance(held, np.ndarray) else slice(None)

        def undo() -> None:
            held[whole] = before

        self._add(label, now, lambda: get() == now, None, None, undo)

    def _objects(self, label: str, held: Any) -> None:
        """Read an array of objects."""
        items = held.ravel().tolist()

        def is_same() -> bool:
            return all(map(is_, held.ravel().tolist(), items))

        def undo() -> None:
            for at, item in enumerate(items):
                held.flat[at] = item

        key = tuple(map(_key_of, items))
        self._add(label, key, is_same, None, None, undo)
        for at, item in enumerate(items):
            self.contents(f"{label}[{at}]", item)

    def _members(self, label: str, held: Any) -> None:
        """Read the members of a set."""
        members = frozenset(held)

        def undo() -> None:
            held.clear()
            held.update(members)

        changes = isinstance(held, set)
        is_same = lambda: held == members  # noqa: E731
        self._add(label, members, is_same, None, None, undo if changes else None)
        for member in held:
            self.contents(f"a member of {label}", member)

    def _entries(self, label: str, held: dict[Any, Any], form: str = "[{!r}]") -> None:
        """Read the entries of a dict."""
        keys = [*held]

        def undo() -> None:
            for key in held.keys() - {*keys}:
                del held[key]

        self._size(f"len({label})", held, undo)
        self._add(f"keys of {label}", tuple(map(_key_of, keys)), is_told_elsewhere)
        for key in keys:
            self._in_dict(label + form.format(key), held, key)

    def _size(
        self, label: str, held: Sized, undo: Callable[[], None] | None = None
    ) -> None:
        """Read the number of a container's items."""
        size = len(held)
        is_same = lambda: len(held) == size  # noqa: E731
        self._add(label, size, is_same, None, (held, size), undo)

    def _function(self, label: str, fn: types.FunctionType) -> None:
        """Read what a function closes over, its defaults, and globals it names."""
        module = fn.__module__ or ""
        if module.partition(".")[0] == "paddle":
            return
        cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
        if _is_constant(module):  # none of its own variables changes
            for name, cell in cells:
                self.contents(name, _in_cell(cell))
            return
        of = f"of {fn.__name__}"
        for name, get in FUNCTION_ATTRIBUTES.items():
            value = get(fn)
            if value is not None:
                self._attribute(f"{name} {of}", FunctionAttribute(get, fn, value))
        for name, cell in cells:
            undo = functools.partial(_fill, cell)
            self.variable(f"{name} {of}", _in_cell, cell, undo=undo)
        names, attributes = names_read(fn.__code__)
        self.names |= attributes
        for name in sorted(names):  # also those to come
            self._in_dict(name, fn.__globals__, name)

    def _attribute(self, label: str, of: FunctionAttribute) -> None:
        """Read an attribute of a function, and what it holds."""
        is_same = lambda: of.get(of.function) is of.value  # noqa: E731
        self._add(label, _key_of(of.value), is_same, None, None, None, of)
        if not isinstance(of.value, types.CodeType):
            self.contents(label, of.value)

    def _object(self, label: str, value: Any) -> None:
        """Read the attributes of an object that code names, and code of its class."""
        kind = type(value)
        users = self._class(label, kind)
        for base in users:
            for name in sorted(self.named.intersection(getattr(base, "__slots__", ()))):
                undo = functools.partial(_set, value, name)
                at = value, name, MISSING
                self.variable(f"{label}.{name}", getattr, *at, undo=undo)
        held = getattr(value, "__dict__", None)
        if type(held) is not dict or isinstance(value, NOT_STATE) or _is_ours(kind):
            return
        if kind is types.FunctionType:
            for name in sorted(self.named & held.keys()):
                self._in_dict(f"{label}.{name}", held, name)
            return
        names = {*(self.named - CALLED)} - {ANY_NAME}
        if ANY_NAME in self.named or isinstance(value, WHOLE):
            names |= held.keys()
        if _is_paddles(kind):
            names |= {name for name, part in held.items() if _counts(part)}
        if isinstance(value, paddle.nn.Layer):
            names -= OF_BUILDING - self.named
        for name in sorted(names):
            self._in_dict(f"{label}.{name}", held, name)
        if isinstance(value, paddle.nn.Layer):
            self._in_dict(f"{label}.forward", held, "forward")
            for name in ("_parameters", "_sub_layers", "_buffers"):
                self._entries(label, held[name], ".{}")
            for name in ("_forward_pre_hooks", "_forward_post_hooks"):
                self._entries(f"{label}.{name}", held[name])

    def _class(self, label: str, kind: type) -> list[type]:
        """Read the named variables of a class; return those of its bases that count."""
        users = [
            base
            for base in kind.__mro__
            if not _is_constant(getattr(base, "__module__", "builtins"))
        ]
        behind: set[str] = set()  # which the base may come to shadow
        for base in reversed(users):
            held = vars(base)
            own = {n for n in held if n in self.named or _is_special(n, held[n])}
            for name in sorted(own | behind):
                at = f"{base.__name__}.{name}" if name in behind else name
                self.variable(f"{label}.{at}", held.get, name, MISSING)
            behind |= own
        return users

    def _attributes(self, label: str, held: dict[str, Any]) -> None:
        """Read the named variables of a module, also those it lacks."""
        for name in sorted(self.named - CALLED):
            self._in_dict(f"{label}.{name}", held, name)


OF_BUILDING = frozenset(
    {
        *("_helper", "_op_recorder", "_full_name", "_built", "_init_in_dynamic_mode"),
        *("_bias_attr", "_weight_attr"),
    }
)
"""Attributes of Paddle's layers that matter only while these are made."""

NOT_STATE = (types.ModuleType, functools.partial, type)
"""Kinds whose attributes do not count as state."""


def _is_ours(kind: type) -> bool:
    return module_of(kind).startswith("paddle_chainrules.")


def _is_paddles(kind: type) -> bool:
    """Tell whether it is a class of Paddle's, or one that a user made of it."""
    modules = map(module_of, kind.__mro__)
    return any(module.partition(".")[0] == "paddle" for module in modules)


def _counts(part: Any) -> bool:
    """Tell whether an attribute of Paddle's object is a value, or an object of its."""
    return type(part) in ATOMS or isinstance(part, Tensor) or _is_paddles(type(part))


def _is_special(name: str, value: Any) -> bool:
    """Tell whether it is a method that runs without being named, as operators do."""
    is_dunder = name.startswith("__") and name.endswith("__")
    return is_dunder and type(value) is types.FunctionType and name not in SPECIAL


def _in_cell(cell: types.CellType) -> Any:
    """Return the value in a cell, or ``MISSING``."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _is_like(one: Any, other: Any) -> bool:
    """Tell whether they are one object, or equal ones that never change."""
    is_atom = type(one) in ATOMS and type(other) in ATOMS
    return one is other or (is_atom and _key_of(one) == _key_of(other))


def _fill(cell: types.CellType, value: Any) -> None:
    """Put a value into a cell, or ``MISSING``."""
    if value is MISSING:
        del cell.cell_contents
    else:
        cell.cell_contents = value


def _set(owner: Any, name: str, value: Any) -> None:
    """Give an attribute a value, or ``MISSING``."""
    if value is MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


def _key_of(value: Any) -> Any:
    """Return the key of a value, apart from what it holds."""
    if type(value) in ATOMS:
        is_plain = not isinstance(value, slice | range)
        return exactly(value) if is_plain else (type(value), repr(value))
    if value is MISSING:
        return NOTHING
    if isinstance(value, types.MethodType):
        return IdentityKey(value.__func__)
    contents = (list, tuple, deque, dict, set, frozenset)
    if isinstance(value, contents) or _is_small(value):
        return type(value)
    return IdentityKey(value)


NOTHING = IdentityKey(MISSING)


def _is_small(value: Any) -> bool:
    """Tell whether it is an array that is compared by its contents."""
    return (
        isinstance(value, np.ndarray)
        and value.dtype != object
        and value.nbytes <= MAX_KEY_BYTES
    )
