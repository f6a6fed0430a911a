"""Functions of Paddle's, replaced for all callers.

Operators, written in C, are replaced wherever Paddle finds them, by their names.
Functions written in Python get other code. So they are replaced, too, for callers that
hold the function itself: by another name, in a class, a closure, or a
``functools.partial``.
"""

from __future__ import annotations

import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from ..locks import new_lock

Pair = tuple[Any, Any]
"""A function of Paddle's, and its replacement."""

lock = new_lock(held_at_fork=True)
"""A lock to hold while the function in a place changes."""


class TakenSlot:
    """A place that a listener takes.

    Attributes:
        number: where, in a list, stands what is to be there afterwards.
        passing: what the listener calls for other threads, alone in a list.
    """

    __slots__ = ("_beneath", "name", "number", "owner", "passing")

    def __init__(
        self, owner: Any, name: str, beneath: list[Any], number: int, passing: list[Any]
    ) -> None:
        self.owner, self.name = owner, name
        self._beneath, self.number, self.passing = beneath, number, passing

    @property
    def beneath(self) -> Any:
        """The value that is to stand there afterwards."""
        return self._beneath[self.number]

    @beneath.setter
    def beneath(self, value: Any) -> None:
        self._beneath[self.number] = value


taken: dict[tuple[int, str], TakenSlot] = {}
"""Places by owner and name, each with a listener in it; see :mod:`..interception`."""


def stand(owner: Any, name: str, value: Any) -> None:
    """Put it into a place, a module's namespace or a type, or beneath a listener."""
    result = taken.get((id(owner), name))
    if result is None:
        put(owner, name, value)
    else:
        result.beneath = value
        result.passing[0] = callable_of(owner, value)


def put(owner: Any, name: str, value: Any) -> None:
    if type(owner) is dict:
        owner[name] = value
    else:
        setattr(owner, name, value)


def standing(owner: Any, name: str) -> Any:
    """Return what stands in a place, beneath a listener if there is one, or None."""
    result = taken.get((id(owner), name))
    if result is not None:
        return result.beneath
    return owner.get(name) if type(owner) is dict else getattr(owner, name, None)


_STANDARD = sysconfig.get_path("stdlib")


def _is_pythons(label: str, module: Any) -> bool:
    """Tell whether a module is Python's own, as a fifth of all are.

    No operator stands there.
    """
    if label == "builtins" or label.partition(".")[0] not in sys.stdlib_module_names:
        return False
    file = getattr(module, "__file__", None) or _STANDARD
    return file.startswith(_STANDARD) and "site-packages" not in file


_KERNELS = "paddle.base.libpaddle.eager.ops"
"""The module that ``paddle._C_ops`` copies functions from; Paddle calls the copies."""


def spaces(labels: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Return the namespaces of modules that may call operators.

    These are all but Python's own, Paddle's of static graphs, and its kernels.
    """
    for label in labels:
        module = sys.modules.get(label)
        of_graphs = ".pir" in label or "_pir" in label
        if not isinstance(module, ModuleType) or of_graphs or label == _KERNELS:
            continue
        if not _is_pythons(label, module):
            yield vars(module)


class ScannedModules(NamedTuple):
    """Modules that were looked through, and what stands there."""

    labels: Sequence[str]
    found: list[tuple[dict[str, Any], str, str]]
    """Namespaces, names there, and the operators that these stand for."""


def look_through(labels: Sequence[str], operators: Mapping[int, str]) -> ScannedModules:
    """Find where operators stand, or functions that replace them.

    Args:
        operators: their names, by the identity of each function that is one.
    """
    results = []
    for space in spaces(labels):
        for name, value in space.copy().items():
            operator = operators.get(id(value))
            if operator is None and type(value) is FunctionType:
                if not hasattr(value, "__wrapped__"):
                    continue
                operator = operators.get(id(original(value)))
            if operator is not None:
                results.append((space, name, operator))
    return ScannedModules(labels, results)


def callable_of(owner: Any, value: Any) -> Any:
    """Return what is called if this stands in a place; it may be a function's code."""
    return _with_code(owner, value) if isinstance(value, CodeType) else value


def innermost(function: Any) -> Any:
    """Return a Python function beneath its decorators, or None."""
    result = inspect.unwrap(function)
    has_code = type(result) is FunctionType and not result.__closure__
    return result if has_code else None


def by_itself(function: Any) -> Any:
    """Return the function as it is while nothing more replaces it.

    A listener that stands in its place now does not count, since it will leave again.
    """
    result = innermost(function)
    if result is None:
        return function
    return _with_code(result, standing(result, "__code__"))


def _with_code(function: Any, code: CodeType) -> Any:
    made = FunctionType(code, function.__globals__, function.__name__)
    made.__defaults__, made.__kwdefaults__ = (
        function.__defaults__,
        function.__kwdefaults__,
    )
    return made


def _passed_on(*args: Any, **kwargs: Any) -> Any:
    call: Any = "call"
    return call(*args, **kwargs)


def code_calling(function: Any, call: Callable[..., Any]) -> CodeType:
    """Return code for a function that has something else called in its place."""
    code, own = _passed_on.__code__, function.__code__
    return code.replace(
        co_consts=tuple(call if part == "call" else part for part in code.co_consts),
        co_name=own.co_name,
        co_filename=own.co_filename,
        co_firstlineno=own.co_firstlineno,
    )


def original(function: Any) -> Any:
    """Return the function that a replacement wraps."""
    seen = set()
    while type(function) is FunctionType and hasattr(function, "__wrapped__"):
        if id(function) in seen:  # somebody's, that wraps itself
            break
        seen.add(id(function))
        function = function.__wrapped__
    return function


class PatchSet:
    """The places of some of Paddle's functions, to replace and restore them.

    An operator may stand in many modules. All loaded modules are looked through, once
    for every number of modules.
    """

    def __init__(self, pairs: Mapping[str, Pair]) -> None:
        self._by_id: dict[int, Pair] = {}
        self._codes: list[tuple[Any, tuple[CodeType, CodeType]]] = []
        for function, stand_in in pairs.values():
            inner = innermost(function)
            if inner is None:
                self._by_id[id(function)] = function, stand_in
            else:
                inner.__signature__ = inspect.signature(inner)
                codes = standing(inner, "__code__"), code_calling(inner, stand_in)
                self._codes.append((inner, codes))
        self._found: list[tuple[dict[str, Any], str, Pair]] = []
        self._modules = 0

    def put(self, which: int, looked: ScannedModules | None = None) -> None:
        """Put the replacements (1), or the functions themselves (0), into their places.

        Args:
            looked: where operators stand, if that is known.
        """
        with lock:
            if which and len(sys.modules) != self._modules:
                self._modules = len(sys.modules)
                if looked is not None and len(looked.labels) == self._modules:
                    self._found = self._among(looked)
                else:
                    self._found = self._look()
            for space, name, pair in self._found:
                stand(space, name, pair[which])
            for inner, codes in self._codes:
                stand(inner, "__code__", codes[which])

    def _among(self, looked: ScannedModules) -> list[tuple[dict[str, Any], str, Pair]]:
        by_id = self._by_id
        return [
            (space, name, by_id[id(value)])
            for space, name, _ in looked.found
            if id(value := standing(space, name)) in by_id
        ]

    def _look(self) -> list[tuple[dict[str, Any], str, Pair]]:
        by_id = self._by_id
        results = [
            (space, name, by_id[id(value)])
            for space in spaces([*sys.modules])
            for name, value in space.copy().items()
            if id(value) in by_id
        ]
        for place in taken.values():
            if type(place.owner) is dict and id(place.beneath) in by_id:
                results.append((place.owner, place.name, by_id[id(place.beneath)]))
        return results
