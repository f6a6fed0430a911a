"""State of Python that a net's value may depend on, to see whether it has changed."""

from __future__ import annotations

import contextvars
import io
import random
import sys
import threading
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Set
from operator import attrgetter, getitem, is_
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from ..nets.layers.attribute_walk import ATOMS, is_bound, walk
from ..nets.layers.functional_module import globals_of
from ..transforms.as_programs.dependencies import codes_of
from .constant import is_constant, is_standard
from .hook_outputs import AttributeKey

MAX_VALUES = 20_000
"""Values beyond which a net is taken to hold more than itself."""

MAX_STATE_BYTES = 1 << 20
"""Bytes of arrays that are compared by content, in a tenth of a millisecond."""

VALUES = (str, bytes, int, float, complex, type(None), np.ndarray, np.generic, Tensor)
CONTAINERS = (set, tuple, Mapping, MutableSequence, types.SimpleNamespace)
STATEFUL = (
    *(Iterator, random.Random, np.random.Generator, np.random.RandomState),
    *(contextvars.ContextVar, threading.local),
)
"""Types of objects that each use changes, and that don't show their state."""

WITHOUT_STATE = (
    *("logging", "threading", "sympy", "paddle_chainrules"),
    *("deepxde.geometry", "deepxde.gradients", "ppsci.geometry", "ppsci.autodiff"),
)
"""Packages whose objects are not compared where they are global variables.

Results do not depend on their state, such as caches.
"""

TRAINERS = ("deepxde.model.Model", "ppsci.solver.solver.Solver")
"""Classes that hold a whole training. Only attributes that code names count."""


CODE = attrgetter("__code__", "__defaults__", "__kwdefaults__")
"""Attributes of a function that say what it does."""


class ObjectState:
    """The attributes of objects and all below them, and what their functions read.

    That is attributes of objects and classes, what containers hold, what functions
    close over, and what methods and the functions that they call name among the global
    variables: numbers, strings, arrays, tensors, containers and objects of these. The
    modes of a layer, train or eval, are left out.

    Args:
        root: the layer, or a mapping of objects.
        ignored: attributes that its value does not depend on, each by the identity of
            the dict that it is in, and its name.
        arguments: objects that functions get as arguments. Only attributes that code
            names count, as for trainers among the global variables.

    Raises:
        ValueError: it holds far more than a net does, or large arrays, or what can't be
            read.
    """

    def __init__(
        self, root: Any, ignored: Set[AttributeKey], arguments: Iterable[Any] = ()
    ) -> None:
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
        self._functions: list[types.FunctionType] = []  # that are still to be read
        self._functions_read: list[types.FunctionType] = []
        self._codes: list[tuple[Any, ...]] = []
        self._names: set[str] = set()  # of attributes and globals, in code
        self._trainers: list[Any] = []
        sublayers = (
            root.sublayers(include_self=True)
            if isinstance(root, paddle.nn.Layer)
            else []
        )
        self._ignored = ignored | {
            (id(vars(sublayer)), "training") for sublayer in sublayers
        }
        try:
            self._note_contents(root)
            for sublayer in sublayers:
                self._read_class(type(sublayer))
            self._trainers += arguments
            self._read_functions()
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
                positions = [i for i, v in enumerate(self._values) if v is container]
                return str(
                    self._keys[positions[0]] if positions else type(container).__name__
                )
        for holder, key, value in zip(
            self._holders, self._keys, self._values, strict=True
        ):
            try:
                result = holder[key]
            except Exception:  # of an object of somebody's, which had it before
                return str(key)
            if result is not value and not _is_equal(result, value):
                return str(key)
        for function, code in zip(self._functions_read, self._codes, strict=True):
            if CODE(function) != code:
                return function.__name__
        return "one of them"

    def is_same(self) -> bool:
        """Tell whether nothing has changed."""
        if [*map(len, self._containers)] != self._sizes:
            return False
        try:
            if [*map(CODE, self._functions_read)] != self._codes:
                return False
            values = map(getitem, self._holders, self._keys)
            identical = map(is_, values, self._values)
            return all(
                _is_equal(self._holders[i][self._keys[i]], self._values[i])
                for i, is_identical in enumerate(identical)
                if not is_identical
            )
        except (
            Exception
        ):  # what an object of somebody's raises where it was read before
            return False

    def _note_contents(self, root: Any) -> None:
        """Note all that an object holds."""
        self._note_attributes(root)
        for _, container, key, value in walk(root, ""):
            if isinstance(key, str) and (id(container), key) in self._ignored:
                continue
            if isinstance(container, tuple | set | frozenset):
                self._note_functions_and_class(value)
                continue
            self._note_size(container)
            self._note_value(container, key, value)

    def _note_attributes(self, owner: Any) -> None:
        """Note how many attributes an object has, since it may have none yet."""
        if not isinstance(owner, (type, types.FunctionType, types.ModuleType)):
            self._note_size(getattr(owner, "__dict__", None))

    def _read_functions(self) -> None:
        """Note what functions read, and what they name of trainers."""
        read: set[tuple[int, str]] = set()
        while self._functions:
            while self._functions:
                self._read_globals(self._functions.pop())
            for owner in self._trainers:
                for name in sorted(self._names & vars(owner).keys()):
                    if (id(owner), name) not in read:
                        read.add((id(owner), name))
                        self._note_value(vars(owner), name, vars(owner)[name])
                        self._note_contents(vars(owner)[name])

    def _store(self, holder: Any, key: Any, value: Any) -> None:
        if _changes_with_use(value):
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

    def _note_value(self, container: Any, key: Any, value: Any) -> None:
        if isinstance(value, np.ndarray) and _is_too_large(value):
            raise ValueError(
                f"it reads an array of {value.nbytes:,} bytes, which takes long to "
                "compare; make it a tensor, or write-protect it by "
                "array.flags.writeable = False"
            )
        self._note_size(value)  # an empty one, too
        self._store(container, key, _snapshot(value))
        if len(self._values) > MAX_VALUES:
            raise ValueError(
                f"it holds more than {MAX_VALUES} things, so that changes would take "
                "long to see; keep data and whole configurations outside of the net"
            )
        self._note_functions_and_class(value)

    def _note_functions_and_class(self, value: Any) -> None:
        """Note the functions and the class of what something holds."""
        self._functions += _functions_in(value)
        if isinstance(value, types.FunctionType):
            self._held.add(id(value))
            if not is_constant(value.__module__):
                self._note_size(vars(value))
        elif isinstance(value, types.BuiltinMethodType):
            self._read_owner(value.__self__)
        elif not isinstance(value, VALUES):
            self._note_attributes(value)
            self._read_class(value if isinstance(value, type) else type(value))

    def _read_owner(self, owner: Any) -> None:
        """Note what a method of a container or an array reads."""
        has_content = isinstance(owner, (np.ndarray, *CONTAINERS))
        if has_content and id(owner) not in self._seen:
            self._seen.add(id(owner))
            self._note_contents([owner])

    def _read_class(self, kind: type) -> None:
        """Read its methods, and what is the same for all of its instances."""
        for owner in kind.__mro__:
            if id(owner) in self._seen or is_standard(owner.__module__):
                continue
            self._seen.add(id(owner))
            self._containers.append(vars(owner))
            self._sizes.append(len(vars(owner)))
            for name, value in [*vars(owner).items()]:
                if isinstance(value, (*VALUES, *CONTAINERS)):
                    if not name.startswith("__"):
                        self._note_value(vars(owner), name, value)
                        if isinstance(value, CONTAINERS):
                            self._note_contents(value)
                elif (functions := [*_functions_in(value)]) or _changes_with_use(value):
                    self._store(vars(owner), name, value)
                    self._functions += functions

    def _read_globals(self, function: types.FunctionType) -> None:
        """Note the global variables that a function names."""
        namespace = function.__globals__
        if id(function) in self._seen or is_constant(namespace.get("__name__", "")):
            return
        self._seen.add(id(function))
        self._functions_read.append(function)
        self._codes.append(CODE(function))
        if id(function) not in self._held:
            self._note_contents(function)
        if is_standard(namespace.get("__name__", "")):
            return
        cells = [c.cell_contents for c in function.__closure__ or () if is_bound(c)]
        for code in codes_of(function.__code__):
            modules: set[int] = set()
            global_values = {
                name: namespace[name] for name in globals_of(code) & namespace.keys()
            }
            for name, value in global_values.items():
                if not isinstance(value, types.ModuleType):
                    self._read_global(namespace, name)
            self._names.update(code.co_names)
            pending = [
                *global_values.values(),
                *cells,
                *_imported_modules(code, namespace),
            ]
            while pending:
                value = pending.pop()
                if not isinstance(value, types.ModuleType) or id(value) in modules:
                    continue
                modules.add(id(value))
                if is_standard(value.__name__):
                    continue
                for name in vars(value).keys() & {*code.co_names}:
                    pending.append(vars(value)[name])
                    self._read_global(vars(value), name)

    def _read_global(self, namespace: dict[str, Any], name: str) -> None:
        value = namespace[name]
        if isinstance(value, VALUES):
            self._note_value(namespace, name, value)
        elif _is_a_trainer(value):
            self._store(namespace, name, value)
            self._trainers.append(value)
            self._note_functions_and_class(value)
        elif id(value) not in self._seen and _is_mutable_object(value):
            self._seen.add(id(value))
            self._note_value(namespace, name, value)
            self._note_contents(value)
        else:
            self._store(namespace, name, value)
            if isinstance(value, types.FunctionType):
                self._functions.append(value)
            elif isinstance(value, (type, types.BuiltinMethodType)):
                self._note_functions_and_class(value)
            else:
                self._functions += _functions_in(value)


def _imported_modules(code: types.CodeType, namespace: dict[str, Any]) -> Iterator[Any]:
    """Yield modules that a function may import itself."""
    package = namespace.get("__package__") or ""
    for name in code.co_names:
        for path in (name, f"{package}.{name}"):
            if path in sys.modules:
                yield sys.modules[path]


def _is_mutable_object(value: Any) -> bool:
    """Tell whether a value is a container, or an object that may change."""
    if isinstance(value, CONTAINERS):
        return True
    skipped = types.ModuleType, types.FunctionType, types.BuiltinFunctionType
    has_attributes = isinstance(getattr(value, "__dict__", None), dict) or any(
        "__slots__" in vars(kind) for kind in type(value).__mro__
    )
    return (
        has_attributes
        and not isinstance(value, skipped)
        and not _is_of_package(value, WITHOUT_STATE)
    )


def _is_a_trainer(value: Any) -> bool:
    names = [f"{kind.__module__}.{kind.__name__}" for kind in type(value).__mro__]
    return any(name in TRAINERS for name in names)


def _is_of_package(value: Any, packages: Iterable[str]) -> bool:
    """Tell whether the class of an object is of one of these packages."""
    module = f"{type(value).__module__}."
    return any(module.startswith(f"{package}.") for package in packages)


def _changes_with_use(value: Any) -> bool:
    """Tell whether its next use differs from the last; of open files output is seen."""
    if isinstance(value, types.MethodType | types.BuiltinMethodType):
        value = value.__self__
    return isinstance(value, STATEFUL) and not isinstance(value, io.IOBase)


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


def _snapshot(value: Any) -> Any:
    """Return the value, or a copy if it may change in place, to compare with later."""
    if isinstance(value, np.ndarray) and value.nbytes <= MAX_STATE_BYTES:
        return value.copy()
    return set(value) if type(value) is set else value


def _is_equal(current: Any, value: Any) -> bool:
    kind = type(value)
    if type(current) is not kind:
        return False
    if kind is np.ndarray:
        if (current.dtype, current.shape) != (value.dtype, value.shape):
            return False
        if current.dtype == object:
            return np.array_equal(current, value)
        return bool(current.tobytes() == value.tobytes())  # of zeros the sign, too
    if kind in (float, complex):
        return repr(current) == repr(value)
    if kind is set:
        return sorted(map(repr, current)) == sorted(map(repr, value))
    return kind in (*ATOMS, bool, set, tuple) and bool(current == value)
