"""All the Python state that a function's code names, read to be compared later."""

from __future__ import annotations

import argparse
import contextvars
import enum
import functools
import io
import operator
import os
import random
import sys
import sysconfig
import threading
import types
import weakref
from array import array
from collections import OrderedDict, UserDict, UserList, deque
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
    Sized,
)
from contextlib import suppress
from importlib.util import resolve_name
from operator import attrgetter, is_
from typing import Any, NamedTuple, cast

import numpy as np
import paddle
from paddle import Tensor

from ...errors import CaptureError
from .code_names import ANY_NAME, COUNTED, EVERY_NAME, names_read
from .dependencies import ATOMS, MAX_KEY_BYTES, pure_attribute_names
from .keys import HEAP, exactly, module_of


class StatePolicy(NamedTuple):
    """What counts as state that a function reads, and how much of it.

    Attributes:
        constant: packages whose modules and classes count as constant, as Python's own
            do.
        max_reads: variables and containers that are compared at a call. Those of layers
            always count.
        max_items: items of a container that are compared one by one; of more, their
            number is.
        max_bytes: bytes of an array that is compared by its content.
        refuses: whether to refuse what is more than that, and what each use changes. If
            not, more counts as constant.
        all_attributes: whether all attributes of objects count, not only those that
            code names.
        named_alone: the identities of objects of which only named attributes count.
        trainers: classes of such objects.
        without_state: packages on the state of whose objects and functions no result
            depends.
        ignored: attributes that do not count, each by the identity of the dict that it
            is in, and its name.
    """

    constant: frozenset[str] = frozenset(
        {"paddle", "numpy", "paddle_chainrules", "optree"}
    )
    max_reads: int = 1_000
    max_items: int = 1_000
    max_bytes: int = MAX_KEY_BYTES
    refuses: bool = False
    all_attributes: bool = False
    named_alone: frozenset[int] = frozenset()
    trainers: tuple[str, ...] = ()
    without_state: tuple[str, ...] = ()
    ignored: Set[tuple[int, str]] = frozenset()

    def is_constant(self, module: str | None) -> bool:
        """Tell whether the variables of a module and its classes are never set."""
        top = (module or "").partition(".")[0]
        return top in self.constant or is_pythons_own(top)


@functools.cache
def is_pythons_own(top: str) -> bool:
    """Tell whether a module is of Python's library, and no other of its name."""
    if top == "__main__" or top not in sys.stdlib_module_names:
        return False
    spec = getattr(sys.modules.get(top), "__spec__", None)
    origin = getattr(spec, "origin", None) or ""
    return not origin.endswith(".py") or origin.startswith(LIBRARY)


LIBRARY = sysconfig.get_path("stdlib")

DEFAULT_POLICY = StatePolicy()

STATEFUL = (
    *(Iterator, random.Random, np.random.Generator, np.random.RandomState),
    *(contextvars.ContextVar, threading.local),
)
"""Types of objects that each use changes, and that don't show their state."""

IMPLICIT_METHODS = frozenset({"forward", "__call__"})
"""Methods that run without being named, where an object is called."""

UNUSED_SPECIAL_METHODS = frozenset(
    {
        *("__init__", "__new__", "__del__", "__repr__", "__str__", "__hash__"),
        *("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__dir__"),
        *("__init_subclass__", "__class_getitem__", "__setattr__", "__set_name__"),
    }
)
"""Special methods that do not run where an object is only used."""

BOUND_METHODS_OF_BUILTINS = (types.BuiltinMethodType, types.MethodWrapperType)
_EMPTY_DICTS: tuple[dict[Any, Any], ...] = {}, OrderedDict()
GETTERS = operator.attrgetter, operator.methodcaller
VIEWS_OF_DICTS = tuple(
    type(view)
    for mapping in _EMPTY_DICTS
    for view in (mapping.keys(), mapping.values(), mapping.items())
)

ENVIRONMENT_NAMES = frozenset({"environ", "getenv"})
"""Names by which code reads variables of the process's environment."""

TENSOR_FLAGS = frozenset(("stop_gradient", "requires_grad", "trainable", "persistable"))
"""Flags of tensors that code may decide by."""

ALL_ATTRIBUTES_COUNT = (
    *(types.SimpleNamespace, argparse.Namespace, UserDict, UserList, np.poly1d),
    np.vectorize,
)
"""Classes of Python's own and NumPy's whose attributes all count."""


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


class SpecialAttribute(NamedTuple):
    """An attribute of a function, class or object that tells what it does."""

    get: Callable[[Any], Any]
    owner: Any
    value: Any


FUNCTION_ATTRIBUTES: dict[str, Callable[[Any], Any]] = {
    "code": attrgetter("__code__"),
    "defaults": attrgetter("__defaults__"),
    "defaults by name": attrgetter("__kwdefaults__"),
}
BASES, BASES_OF_CLASS = attrgetter("__mro__"), attrgetter("__class__.__mro__")
CONTAINING = FUNCTION_ATTRIBUTES["defaults"], FUNCTION_ATTRIBUTES["defaults by name"]
"""Those whose values hold others."""


def bases_of_weak(owner: weakref.ref[Any]) -> tuple[type, ...]:
    """Return the bases of the class of an object that is not kept alive."""
    return type(owner()).__mro__


OF_CLASSES = BASES, BASES_OF_CLASS, bases_of_weak
SPECIAL_ATTRIBUTES = *FUNCTION_ATTRIBUTES.values(), *OF_CLASSES
"""Functions that give such attributes. An editor may replace a function's code, and a
program an object's class or the bases of a class."""


Place = tuple[str, int]
"""The label of a variable or container, and the identity of what it is in."""


class StateRead(NamedTuple):
    """A variable or the contents of a container, as they were read.

    Attributes:
        place: its name, as code would write it, and what it is in.
        key: tells its value apart from others.
        is_same: tells if it is still the same.
        dict_entry: the dict, key and value of what stands in a dict.
        container_size: the container and its size, where only that is compared.
        undo: makes it again what it was.
        special: the attribute of a function, class or object that is compared.
        dict_keys: the dict and its keys, where only these and their order are compared.
        items: the container and its items, where they are compared one by one.
    """

    place: Place
    key: Any
    is_same: Callable[[], bool]
    dict_entry: tuple[dict[Any, Any], Any, Any] | None = None
    container_size: tuple[Sized, int] | None = None
    undo: Callable[[], None] | None = None
    special: SpecialAttribute | None = None
    dict_keys: tuple[dict[Any, Any], tuple[Any, ...]] | None = None
    items: tuple[Sized, Sequence[Any]] | None = None

    def changed_places(self) -> set[Place]:
        """Return what has changed: some items of a container, or all of it."""
        container, items = self.items or ((), ())
        if len(container) != len(items) or not items:
            return {self.place}
        pairs = enumerate(zip(items, cast(Any, container), strict=True))
        return {
            item_place(self.place, i) for i, (old, new) in pairs if old is not new
        } or {self.place}

    @property
    def label(self) -> str:
        """Its name, as code would write it."""
        return self.place[0]

    def has_changed(self) -> bool:
        """Tell if it is no longer the same, or can't be read any more."""
        try:
            return not self.is_same()
        except Exception:  # of the user's own methods
            return True

    def restore(self) -> None:
        """Make it again what it was, where that can be."""
        with suppress(Exception):  # of the user's own methods
            if self.dict_entry is not None:
                container, key, value = self.dict_entry
                if value is MISSING:
                    container.pop(key, None)
                else:
                    container[key] = value
            elif self.undo is not None:
                self.undo()


def item_place(container: Place, index: int) -> Place:
    """Return the place of an item of a container."""
    label, identity = container
    return f"{label}[{index}]", identity


def always_same() -> bool:
    """Return True: other reads compare what this one holds."""
    return True


def reads_of(
    fn: Any,
    excluded: frozenset[Place],
    objects: Sequence[Any] = (),
    policy: StatePolicy = DEFAULT_POLICY,
) -> list[StateRead]:
    """Return all that a function and some objects read, except excluded places.

    An attribute counts if any code names it, so it starts again with more names.

    Raises:
        CaptureError: there is what can't be compared, or more than the policy allows.
    """
    names = {"training", *IMPLICIT_METHODS}
    while True:
        reader = _Reader(names, excluded, policy)
        reader.read_contents("", fn)
        for i, value in enumerate(objects):
            reader.read_contents(f"an argument ({i})", value)
        if reader.names == names:
            return reader.reads
        names = reader.names


class _Reader:
    """Goes through a function, and through the objects that its code names.

    Args:
        named: the attributes that count.
        excluded: places of state that does not count.
    """

    def __init__(
        self, named: Iterable[str], excluded: frozenset[Place], policy: StatePolicy
    ) -> None:
        self.named, self.names, self._excluded = frozenset(named), {*named}, excluded
        self.reads: list[StateRead] = []
        self._policy, self._is_constant = policy, policy.is_constant
        self._visited: dict[int, tuple[int, Any]] = {}
        self._private: set[int] = set()
        self._max_reads, self._in_layer = policy.max_reads, False
        self._methods: set[int] = set()
        self._classes: set[type] = set()

    def read_variable(
        self,
        label: str,
        get: Callable[..., Any],
        *get_args: Any,
        undo: Callable[[Any], None] | None = None,
        owner: Any = None,
    ) -> None:
        """Read a variable by a function, and read what its value holds.

        Args:
            undo: gives the variable a value.
            owner: what it is a variable of; the first argument if None.
        """
        place = label, id(get_args[0] if owner is None and get_args else owner)
        if place not in self._excluded:
            value = get(*get_args)
            restore = None if undo is None else functools.partial(undo, value)
            is_same = lambda: get(*get_args) is value  # noqa: E731
            fields = None, None, restore
            self._add_read(place, self._key_of(value), is_same, *fields)
            self.read_contents(label, value)

    def _read_dict_entry(
        self, label: str, dictionary: dict[Any, Any], name: Any
    ) -> None:
        """Read a variable that stands in a dict, and read what its value holds."""
        is_ignored = (id(dictionary), name) in self._policy.ignored
        place = label, id(dictionary)
        if not is_ignored and place not in self._excluded:
            value = dictionary.get(name, MISSING)
            is_same = lambda: dictionary.get(name, MISSING) is value  # noqa: E731
            entry = dictionary, name, value
            self._add_read(place, self._key_of(value), is_same, entry)
            self.read_contents(label, value)

    def _key_of(self, value: Any) -> Any:
        """Return the key of a value, apart from what it holds.

        Containers, and instances of methods, are told apart by the order in which they
        are met.
        """
        key = _key_of(value)
        if isinstance(value, types.MethodType):
            return key, self._number_of(value.__self__)
        return (key, self._number_of(value)) if isinstance(key, type) else key

    def _number_of(self, value: Any) -> int:
        before = self._visited.get(id(value))
        return len(self._visited) if before is None else before[0]

    def _add_read(self, place: Place, key: Any, *fields: Any) -> None:
        if place in self._excluded:
            return
        if len(self.reads) >= self._policy.max_reads and self._policy.refuses:
            self._refuse_size()
        if self._in_layer or len(self.reads) < self._max_reads:
            self.reads.append(StateRead(place, key, *fields))
            self._max_reads += self._in_layer

    def _refuse_size(self) -> None:
        raise CaptureError(
            f"it reads more than {self._policy.max_reads} things, so that changes "
            "would take long to see; keep data and whole configurations outside of it, "
            "or give them as tensors"
        )

    def read_contents(self, label: str, value: Any) -> None:
        """Read what a value holds, if that can change."""
        kind = type(value)
        if kind in ATOMS or isinstance(value, np.generic | _Missing):
            return
        if (label, id(value)) in self._excluded or id(value) in self._visited:
            return
        if isinstance(value, Tensor):
            self._visited[id(value)] = len(self._visited), value
            self._read_tensor(label, value)
            return
        if self._policy.refuses and _changes_with_use(value):
            raise CaptureError(
                f"it reads {label.removeprefix('.')}, a {kind.__name__}, which goes on "
                "at each use; draw or count outside of the net and its transforms"
            )
        is_layer = isinstance(value, paddle.nn.Layer)
        if not is_layer and len(self.reads) >= self._max_reads:
            return
        was_in_layer, self._in_layer = self._in_layer, is_layer
        try:
            self._dispatch_contents(label, value)
        finally:
            self._in_layer = was_in_layer

    def _dispatch_contents(self, label: str, value: Any) -> None:
        kind = type(value)
        self._visited[id(value)] = len(self._visited), value
        if isinstance(value, type):
            if self._read_class(value.__name__, value):
                bases = SpecialAttribute(BASES, value, value.__mro__)
                self._read_special(f"bases of {value.__name__}", bases)
            if kind is not type:
                self._read_class(value.__name__, kind)
            return
        if isinstance(value, staticmethod | classmethod):
            self.read_contents(label, value.__func__)
        elif isinstance(value, property):
            self.read_contents(label, value.fget)
        elif kind is types.FunctionType:
            self._read_function(label, value)
        elif kind is types.MethodType:
            self.read_contents(label, value.__func__)
            self.read_contents(label or "self", value.__self__)
        elif kind in BOUND_METHODS_OF_BUILTINS:
            self.read_contents(f"{label}.__self__", value.__self__)
        elif kind in VIEWS_OF_DICTS:
            self._read_mapping(label, value.mapping)
        elif isinstance(value, functools.partial | functools.partialmethod):
            for component in (value.func, *value.args):
                self.read_contents(label, component)
            self._read_entries(f"{label}.keywords", value.keywords)
            if value.func in (getattr, hasattr):
                self.names.update(name for name in value.args if type(name) is str)
        elif isinstance(value, functools.cached_property):
            self.read_contents(label, value.func)
        elif kind is functools._lru_cache_wrapper:
            self.read_contents(label, value.__wrapped__)
        elif kind in GETTERS:
            self._read_getter(label, value)
        elif isinstance(value, types.ModuleType):
            if not self._is_constant(value.__name__):
                self._read_attributes(label, vars(value))
                if not _is_installed(value):  # a package loads its parts by it
                    self._read_dict_entry(
                        f"{label}.__getattr__", vars(value), "__getattr__"
                    )
        elif isinstance(value, np.ndarray):
            if self._is_small(value):
                content = functools.partial(_content_of_array, value)
                self._read_bytes(label, value, content, value.copy())
            elif value.dtype == object and value.size <= self._policy.max_items:
                self._read_object_array(label, value)
            elif self._policy.refuses and value.flags.writeable:
                raise CaptureError(
                    f"it reads {label.removeprefix('.')}, an array of {value.nbytes:,} "
                    "bytes, which takes long to compare; make it a tensor, or "
                    "write-protect it by array.flags.writeable = False"
                )
        elif isinstance(value, list | tuple | deque | Mapping):
            if len(value) > self._policy.max_items:
                if self._policy.refuses:
                    self._refuse_size()
                self._read_size(f"len({label})", value)
            elif isinstance(value, dict):
                self._read_entries(label, value)
            elif isinstance(value, Mapping):
                self._read_mapping(label, value)
            else:
                self._read_items(label, value)
        elif isinstance(value, bytearray | array):
            self._read_bytes(label, value, functools.partial(bytes, value), value[:])
        elif isinstance(value, memoryview):
            self._read_bytes(label, value, value.tobytes, value.tobytes())
        elif isinstance(value, set | frozenset):
            self._read_members(label, value)
        elif hasattr(kind, "_depends_on"):
            if hasattr(value, "_buffers"):
                self.read_variable(f"{label}.buffers", getattr, value, "_buffers")
            for component in value._depends_on():
                if isinstance(component, paddle.nn.Layer):
                    sublayers = component.sublayers(include_self=True)
                    self._private.update(map(id, sublayers))
                self.read_contents(label, component)
        self._read_object(label, value)

    def _read_getter(self, label: str, getter: Any) -> None:
        """Read the names of attributes that an ``attrgetter`` reads, or a method's."""
        _, args, *_ = getter.__reduce__()
        for value in args:
            if type(value) is str:
                self.names.update(value.split("."))
            else:
                self.read_contents(label, value)

    def _read_tensor(self, label: str, tensor: Tensor) -> None:
        """Read what code names of a tensor besides its numbers, which programs read."""
        for name in sorted(self.named & TENSOR_FLAGS):
            undo = functools.partial(setattr, tensor, name)
            self.read_variable(
                f"{label}.{name}", getattr, tensor, name, MISSING, undo=undo
            )
        attributes = vars(tensor)
        self._read_size(f"len(vars({label}))", attributes)
        for name in sorted(self.named & attributes.keys()):
            self._read_dict_entry(f"{label}.{name}", attributes, name)

    def _read_items(self, label: str, sequence: Any) -> None:
        """Read the items of a sequence, in order."""
        items, place = [*sequence], (label, id(sequence))
        excluded = self._excluded and {
            i for i in range(len(items)) if item_place(place, i) in self._excluded
        }

        def is_same() -> bool:
            if excluded:
                pairs = enumerate(zip(sequence, items, strict=True))
                return all(old is new or i in excluded for i, (new, old) in pairs)
            return len(sequence) == len(items) and all(map(is_, sequence, items))

        def undo() -> None:
            sequence.clear()
            sequence.extend(items)

        compared = [(i, x) for i, x in enumerate(items) if i not in excluded]
        key = tuple(self._key_of(item) for _, item in compared)
        if isinstance(sequence, tuple):
            self._add_read(place, key, always_same)
        else:
            fields = None, None, undo, None, None, (sequence, items)
            self._add_read(place, key, is_same, *fields)
        for i, item in compared:
            self.read_contents(f"{label}[{i}]", item)

    def _read_mapping(self, label: str, mapping: Mapping[Any, Any]) -> None:
        """Read a mapping that is no dict.

        Raises:
            CaptureError: it makes other objects at each look.
        """
        entries = {**mapping}

        def is_same() -> bool:
            new_entries = {**mapping}
            if [*new_entries] != [*entries]:
                return False
            return all(map(_same_or_equal, new_entries.values(), entries.values()))

        if not is_same():
            raise CaptureError(
                f"it reads {label}, a mapping that makes its values anew at each look; "
                "give them as arguments"
            )
        key = tuple((_key_of(k), self._key_of(item)) for k, item in entries.items())
        self._add_read((label, id(mapping)), key, is_same)
        for name, value in entries.items():
            self.read_contents(f"{label}[{name!r}]", value)

    def _read_bytes(
        self, label: str, buffer: Any, get: Callable[[], Any], copy: Any
    ) -> None:
        """Read what is compared by its content; ``copy`` is a copy of it."""
        content, full_index = (
            get(),
            ... if isinstance(buffer, np.ndarray) else slice(None),
        )

        def undo() -> None:
            buffer[full_index] = copy

        is_same = lambda: get() == content  # noqa: E731
        self._add_read((label, id(buffer)), content, is_same, None, None, undo)

    def _read_object_array(self, label: str, object_array: Any) -> None:
        items = object_array.ravel().tolist()

        def is_same() -> bool:
            return all(map(is_, object_array.ravel().tolist(), items))

        def undo() -> None:
            for i, item in enumerate(items):
                object_array.flat[i] = item

        key = tuple(map(self._key_of, items))
        self._add_read((label, id(object_array)), key, is_same, None, None, undo)
        for i, item in enumerate(items):
            self.read_contents(f"{label}[{i}]", item)

    def _read_members(self, label: str, container: Any) -> None:
        """Read the members of a set."""
        members = frozenset(container)

        def undo() -> None:
            container.clear()
            container.update(members)

        key = _keys_of_members(container)
        is_same = lambda: _keys_of_members(container) == key  # noqa: E731
        changes = isinstance(container, set)
        place = label, id(container)
        self._add_read(place, key, is_same, None, None, undo if changes else None)
        for member in container:
            self.read_contents(f"a member of {label}", member)

    def _read_entries(
        self, label: str, dictionary: dict[Any, Any], form: str = "[{!r}]"
    ) -> None:
        keys = (*dictionary,)

        def undo() -> None:
            for key in dictionary.keys() - {*keys}:
                del dictionary[key]

        key = tuple(map(_key_of, keys))
        is_same = lambda: (*dictionary,) == keys  # noqa: E731
        fields = None, None, undo, None, (dictionary, keys)
        place = f"keys of {label}", id(dictionary)
        self._add_read(place, key, is_same, *fields)
        for key in keys:
            self._read_dict_entry(label + form.format(key), dictionary, key)

    def _read_size(self, label: str, container: Sized) -> None:
        """Read the number of a container's items."""
        size = len(container)
        is_same = lambda: len(container) == size  # noqa: E731
        place = label, id(container)
        self._add_read(place, size, is_same, None, (container, size))

    def _read_function(self, label: str, fn: types.FunctionType) -> None:
        """Read what a function closes over, its defaults, and globals it names."""
        module = fn.__module__ or ""
        if self._is_constant(module):  # or it wraps a function of that module
            module = fn.__globals__.get("__name__", "")
        if _is_within(module, ("paddle", *self._policy.without_state)):
            return
        cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True)
        if self._is_constant(module):  # none of its own variables changes
            for name, cell in cells:
                self.read_contents(name, _cell_value(cell))
            return
        suffix = f"of {fn.__name__}"
        for name, get in FUNCTION_ATTRIBUTES.items():
            value = get(fn)
            if value is not None:
                self._read_special(f"{name} {suffix}", SpecialAttribute(get, fn, value))
        for name, cell in cells:
            undo = functools.partial(_set_cell, cell)
            self.read_variable(f"{name} {suffix}", _cell_value, cell, undo=undo)
        code = names_read(fn.__code__)
        if code.unknowable:
            raise CaptureError(
                f"{fn.__name__} calls {code.unknowable}, so its code does not tell "
                "which variables or modules it reads; name them, or give them as "
                "arguments"
            )
        named = code.names | code.attributes
        if not ENVIRONMENT_NAMES.isdisjoint(named):
            self.read_contents("os.environ", os.environ)
        if "get_flags" in named:
            flags = _flags()
            place = "Paddle's flags", 0
            self._add_read(place, flags, lambda: _flags() == flags, None, None, None)
        self.names |= code.attributes
        for name in sorted(code.names):  # also those to come
            self._read_dict_entry(name, fn.__globals__, name)
        for name, level in sorted(code.imports):
            package = fn.__globals__.get("__package__")
            with suppress(ImportError):  # which the call raises
                self._read_import(resolve_name("." * level + name, package))

    def _read_import(self, name: str) -> None:
        """Read a module that code imports, and the packages that it is in."""
        if self._is_constant(name):
            return
        components = name.split(".")
        for i in range(1, len(components) + 1):
            module = ".".join(components[:i])
            if module in sys.modules:
                self._read_dict_entry(module, sys.modules, module)
            else:
                self._add_read(
                    (f"import {module}", 0),
                    MISSING_KEY,
                    functools.partial(_is_missing, module),
                )

    def _read_special(self, label: str, special: SpecialAttribute) -> None:
        """Read an attribute of a function, class or object, and what it holds."""
        is_same = lambda: special.get(special.owner) is special.value  # noqa: E731
        key = self._key_of(special.value)
        place = label, id(special.owner)
        self._add_read(place, key, is_same, None, None, None, special)
        if special.get in CONTAINING:
            self.read_contents(label, special.value)

    def _read_object(self, label: str, value: Any) -> None:
        """Read the attributes of an object that code names, and code of its class."""
        kind = type(value)
        if _is_within(module_of(kind), self._policy.without_state):
            return
        if id(value) in self._private:
            self._read_private(label, value)
            return
        user_classes = self._read_class(label, kind)
        if user_classes:
            owner: Any = value
            get: Callable[[Any], Any] = BASES_OF_CLASS
            if label == "self":  # which its own programs do not keep alive
                with suppress(TypeError):  # of slots without weak references
                    owner, get = weakref.ref(value), bases_of_weak
            bases = SpecialAttribute(get, owner, kind.__mro__)
            self._read_special(f"class of {label}", bases)
        for base in user_classes:
            for name in sorted(self.named.intersection(getattr(base, "__slots__", ()))):
                undo = functools.partial(_set_attribute, value, name)
                slot = value, name, MISSING
                self.read_variable(f"{label}.{name}", getattr, *slot, undo=undo)
        attributes = getattr(value, "__dict__", None)
        if (
            type(attributes) is not dict
            or isinstance(value, NOT_STATE)
            or _is_ours(kind)
        ):
            return
        if kind is types.FunctionType:
            own = self.named - pure_attribute_names() - IMPLICIT_METHODS - EVERY_NAME
            if id(value) in self._methods:  # which have none but those of decorators
                own = frozenset()
            for name in sorted(own | (self.named & attributes.keys())):
                self._read_dict_entry(f"{label}.{name}", attributes, name)
            return
        names = {*(self.named - IMPLICIT_METHODS)} - EVERY_NAME
        all_count = self._all_attributes_count(value)
        if ANY_NAME in self.named or isinstance(value, ALL_ATTRIBUTES_COUNT):
            names |= attributes.keys()
        elif all_count:
            names = {*attributes} - IMPLICIT_METHODS
        if all_count or COUNTED in self.named:
            self._read_size(f"len(vars({label}))", attributes)
        if _is_paddles(kind):
            names |= {
                name
                for name, attribute in attributes.items()
                if _is_value_attribute(attribute)
            }
        if isinstance(value, enum.Enum):
            names.add("_value_")
        if isinstance(value, paddle.nn.Layer):
            names -= CONSTRUCTION_ATTRIBUTES - self.named
        for name in sorted(names):
            self._read_dict_entry(f"{label}.{name}", attributes, name)
        if isinstance(value, paddle.nn.Layer):
            self._read_dict_entry(f"{label}.forward", attributes, "forward")
            for name in ("_parameters", "_sub_layers", "_buffers"):
                self._read_entries(label, attributes[name], ".{}")
            for name in HOOKS:
                self._read_entries(f"{label}.{name}", attributes[name])

    def _read_private(self, label: str, layer: paddle.nn.Layer) -> None:
        """Read what a layer's code reads that a net holds as its own copy.

        Nobody sets the copy's attributes, and changes by its code are undone. But these
        may hold functions and other objects of the user's.
        """
        attributes = vars(layer)
        for name in ("_sub_layers", *HOOKS):
            for key, value in attributes[name].items():
                self.read_contents(f"{label}.{key}", value)
        if self._read_class(label, type(layer)):
            for name in attributes.keys() - ATTRIBUTES_OF_LAYERS:
                self.read_contents(f"{label}.{name}", attributes[name])

    def _is_constant_class(self, kind: type) -> bool:
        module = module_of(kind) or "builtins"
        if module == "builtins":  # or of code that has no name, where it is on the heap
            return not kind.__flags__ & HEAP
        return self._is_constant(module)

    def _all_attributes_count(self, value: Any) -> bool:
        """Tell whether those of an object count that no code names."""
        if not self._policy.all_attributes or id(value) in self._policy.named_alone:
            return False
        names = {f"{kind.__module__}.{kind.__name__}" for kind in type(value).__mro__}
        return names.isdisjoint(self._policy.trainers)

    def _is_small(self, value: Any) -> bool:
        """Tell whether it is an array that is compared by its contents."""
        return (
            isinstance(value, np.ndarray)
            and value.dtype != object
            and value.nbytes <= self._policy.max_bytes
        )

    def _read_class(self, label: str, kind: type) -> list[type]:
        """Read the named variables of a class; return those of its bases that count."""
        user_classes = [
            base for base in kind.__mro__ if not self._is_constant_class(base)
        ]
        if kind in self._classes:
            return user_classes
        self._classes.add(kind)
        inherited: set[str] = set()  # which the base may come to shadow
        for base in reversed(user_classes):
            attributes = vars(base)
            self._methods.update(map(id, attributes.values()))
            names = {
                n
                for n in attributes
                if self._policy.all_attributes
                or not self.named.isdisjoint((n, ANY_NAME))
                or _is_special(n, attributes[n])
            }
            for name in sorted(names | inherited):
                qualified = f"{base.__name__}.{name}" if name in inherited else name
                self.read_variable(
                    f"{label}.{qualified}", attributes.get, name, MISSING, owner=base
                )
            inherited |= names
        return user_classes

    def _read_attributes(self, label: str, variables: dict[str, Any]) -> None:
        """Read the named variables of a module, also those it lacks.

        By names that code computes it may read all that are no functions nor modules.
        """
        names = self.named - IMPLICIT_METHODS - EVERY_NAME
        if ANY_NAME in self.named:
            names |= {
                name
                for name, value in variables.items()
                if not name.startswith("__") and not isinstance(value, NOT_VALUES)
            }
        if COUNTED in self.named:
            self._read_size(f"len(vars({label}))", variables)
        for name in sorted(names):
            self._read_dict_entry(f"{label}.{name}", variables, name)


ATTRIBUTES_OF_LAYERS = frozenset(paddle.nn.Layer.__init__.__code__.co_names)
"""What each layer has of Paddle's, among other names in its construction."""

HOOKS = "_forward_pre_hooks", "_forward_post_hooks"

CONSTRUCTION_ATTRIBUTES = frozenset(
    {
        *("_helper", "_op_recorder", "_full_name", "_built", "_init_in_dynamic_mode"),
        *("_bias_attr", "_weight_attr"),
    }
)
"""Attributes of Paddle's layers that matter only while these are made."""

NOT_VALUES = types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type
"""Kinds of a module's variables that count only where code names them."""

NOT_STATE = (types.ModuleType, functools.partial, type)
"""Kinds whose attributes do not count as state."""


def _is_ours(kind: type) -> bool:
    return module_of(kind).startswith("paddle_chainrules.")


def _is_paddles(kind: type) -> bool:
    """Tell whether it is a class of Paddle's, or one that a user made of it."""
    modules = map(module_of, kind.__mro__)
    return any(module.partition(".")[0] == "paddle" for module in modules)


def _is_value_attribute(value: Any) -> bool:
    """Tell whether an attribute of Paddle's object is a value or Paddle's object."""
    return type(value) in ATOMS or isinstance(value, Tensor) or _is_paddles(type(value))


def _is_special(name: str, value: Any) -> bool:
    """Tell whether it is a method that runs without being named, as operators do."""
    is_dunder = name.startswith("__") and name.endswith("__")
    return (
        is_dunder
        and type(value) is types.FunctionType
        and name not in UNUSED_SPECIAL_METHODS
    )


def _is_missing(module: str) -> bool:
    return module not in sys.modules


def _is_installed(module: types.ModuleType) -> bool:
    """Tell whether a module is of a package that was installed."""
    file = getattr(module, "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def _flags() -> tuple[tuple[str, Any], ...]:
    """Return all of Paddle's flags, which ``paddle.get_flags`` reads one by one."""
    flags = paddle.base.core.globals()
    return tuple((name, flags[name]) for name in flags.keys())  # noqa: SIM118


def _cell_value(cell: types.CellType) -> Any:
    """Return the value in a cell, or ``MISSING``."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _same_or_equal(value: Any, other: Any) -> bool:
    """Tell whether they are one object, or equal ones that never change."""
    is_atom = type(value) in ATOMS and type(other) in ATOMS
    return value is other or (is_atom and _key_of(value) == _key_of(other))


def _content_of_array(value: np.ndarray) -> tuple[Any, ...]:
    return value.dtype.str, value.shape, value.tobytes()


def _keys_of_members(container: Iterable[Any]) -> frozenset[Any]:
    return frozenset(map(_key_of, container))


def _set_cell(cell: types.CellType, value: Any) -> None:
    """Put a value into a cell, or ``MISSING``."""
    if value is MISSING:
        del cell.cell_contents
    else:
        cell.cell_contents = value


def _set_attribute(owner: Any, name: str, value: Any) -> None:
    """Give an attribute a value, or ``MISSING``."""
    if value is MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


def _changes_with_use(value: Any) -> bool:
    """Tell whether its next use differs from the last; of open files output is seen."""
    if isinstance(value, types.MethodType | types.BuiltinMethodType):
        value = value.__self__
    return isinstance(value, STATEFUL) and not isinstance(value, io.IOBase)


def _is_within(module: str, packages: Iterable[str]) -> bool:
    """Tell whether a module is one of these packages, or within one."""
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def _key_of(value: Any) -> Any:
    """Return the key of a value, apart from what it holds."""
    if type(value) in ATOMS:
        is_plain = not isinstance(value, slice | range)
        return exactly(value) if is_plain else (type(value), repr(value))
    if value is MISSING:
        return MISSING_KEY
    if isinstance(value, types.MethodType):
        return IdentityKey(value.__func__)
    contents = (list, tuple, deque, dict, set, frozenset)
    is_array = isinstance(value, np.ndarray) and value.dtype != object
    if isinstance(value, contents) or (is_array and value.nbytes <= MAX_KEY_BYTES):
        return type(value)
    return IdentityKey(value)


MISSING_KEY = IdentityKey(MISSING)
