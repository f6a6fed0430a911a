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
"""A lock to hold while a patched attribute changes."""


class TakenSlot:
    """An attribute or module name that a listener replaces.

    Attributes:
        number: the index, in a list, of the value to restore.
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
        """The value to restore."""
        return self._beneath[self.number]

    @beneath.setter
    def beneath(self, value: Any) -> None:
        self._beneath[self.number] = value


listener_slots: dict[tuple[int, str], TakenSlot] = {}
"""Slots by owner and name, each with a listener in it; see :mod:`..interception`."""


def install_value(owner: Any, name: str, value: Any) -> None:
    """Set a name of a namespace or a type, or the value beneath a listener."""
    result = listener_slots.get((id(owner), name))
    if result is None:
        set_slot(owner, name, value)
    else:
        result.beneath = value
        result.passing[0] = callable_of(owner, value)


def set_slot(owner: Any, name: str, value: Any) -> None:
    if type(owner) is dict:
        owner[name] = value
    else:
        setattr(owner, name, value)


def current_value(owner: Any, name: str) -> Any:
    """Return the value of a name, beneath a listener if there is one, or None."""
    result = listener_slots.get((id(owner), name))
    if result is not None:
        return result.beneath
    return owner.get(name) if type(owner) is dict else getattr(owner, name, None)


_STDLIB_PATH = sysconfig.get_path("stdlib")


def _is_standard_library(module_name: str, module: Any) -> bool:
    """Tell whether a module is Python's own, as a fifth of all are.

    No operator stands there.
    """
    if (
        module_name == "builtins"
        or module_name.partition(".")[0] not in sys.stdlib_module_names
    ):
        return False
    file = getattr(module, "__file__", None) or _STDLIB_PATH
    return file.startswith(_STDLIB_PATH) and "site-packages" not in file


_KERNELS = "paddle.base.libpaddle.eager.ops"
"""The module that ``paddle._C_ops`` copies functions from; Paddle calls the copies."""


def operator_namespaces(module_names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Return the namespaces of modules that may call operators.

    These are all but Python's own, Paddle's of static graphs, and its kernels.
    """
    for module_name in module_names:
        module = sys.modules.get(module_name)
        of_graphs = ".pir" in module_name or "_pir" in module_name
        if not isinstance(module, ModuleType) or of_graphs or module_name == _KERNELS:
            continue
        if not _is_standard_library(module_name, module):
            yield vars(module)


class ScannedModules(NamedTuple):
    """Modules that were scanned, and the operators bound there."""

    module_names: Sequence[str]
    sites: list[tuple[dict[str, Any], str, str]]
    """Namespaces, names there, and the operators bound to them."""


def find_operators(
    module_names: Sequence[str], operators: Mapping[int, str]
) -> ScannedModules:
    """Find names bound to operators, or to functions that replace them.

    Args:
        operators: their names, by the identity of each function that is one.
    """
    results = []
    for namespace in operator_namespaces(module_names):
        for name, value in namespace.copy().items():
            operator = operators.get(id(value))
            if operator is None and type(value) is FunctionType:
                if not hasattr(value, "__wrapped__"):
                    continue
                operator = operators.get(id(original(value)))
            if operator is not None:
                results.append((namespace, name, operator))
    return ScannedModules(module_names, results)


def callable_of(owner: Any, value: Any) -> Any:
    """Return the callable that a value stands for; it may be a function's code."""
    return _with_code(owner, value) if isinstance(value, CodeType) else value


def undecorated(function: Any) -> Any:
    """Return a Python function beneath its decorators, or None."""
    result = inspect.unwrap(function)
    has_code = type(result) is FunctionType and not result.__closure__
    return result if has_code else None


def without_listener(function: Any) -> Any:
    """Return the function without a listener's replacement.

    The listener will leave again, so it does not count.
    """
    result = undecorated(function)
    if result is None:
        return function
    return _with_code(result, current_value(result, "__code__"))


def _with_code(function: Any, code: CodeType) -> Any:
    copy = FunctionType(code, function.__globals__, function.__name__)
    copy.__defaults__, copy.__kwdefaults__ = (
        function.__defaults__,
        function.__kwdefaults__,
    )
    return copy


def _forward_call(*args: Any, **kwargs: Any) -> Any:
    call: Any = "call"
    return call(*args, **kwargs)


def code_calling(function: Any, call: Callable[..., Any]) -> CodeType:
    """Return code for a function that calls another one instead."""
    code, target = _forward_call.__code__, function.__code__
    return code.replace(
        co_consts=tuple(
            call if constant == "call" else constant for constant in code.co_consts
        ),
        co_name=target.co_name,
        co_filename=target.co_filename,
        co_firstlineno=target.co_firstlineno,
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
    """Replacements of some of Paddle's functions, wherever these are bound.

    An operator may stand in many modules. All loaded modules are looked through, once
    for every number of modules.
    """

    def __init__(self, pairs: Mapping[str, Pair]) -> None:
        self._by_id: dict[int, Pair] = {}
        self._codes: list[tuple[Any, tuple[CodeType, CodeType]]] = []
        for function, stand_in in pairs.values():
            inner = undecorated(function)
            if inner is None:
                self._by_id[id(function)] = function, stand_in
            else:
                inner.__signature__ = inspect.signature(inner)
                codes = current_value(inner, "__code__"), code_calling(inner, stand_in)
                self._codes.append((inner, codes))
        self._sites: list[tuple[dict[str, Any], str, Pair]] = []
        self._modules = 0

    def switch(self, which: int, scanned: ScannedModules | None = None) -> None:
        """Bind the replacements (1), or the functions themselves (0).

        Args:
            scanned: where operators are bound, if that is known.
        """
        with lock:
            if which and len(sys.modules) != self._modules:
                self._modules = len(sys.modules)
                if scanned is not None and len(scanned.module_names) == self._modules:
                    self._sites = self._known_sites(scanned)
                else:
                    self._sites = self._find_sites()
            for namespace, name, pair in self._sites:
                install_value(namespace, name, pair[which])
            for inner, codes in self._codes:
                install_value(inner, "__code__", codes[which])

    def _known_sites(
        self, scanned: ScannedModules
    ) -> list[tuple[dict[str, Any], str, Pair]]:
        by_id = self._by_id
        return [
            (namespace, name, by_id[id(value)])
            for namespace, name, _ in scanned.sites
            if id(value := current_value(namespace, name)) in by_id
        ]

    def _find_sites(self) -> list[tuple[dict[str, Any], str, Pair]]:
        by_id = self._by_id
        results = [
            (namespace, name, by_id[id(value)])
            for namespace in operator_namespaces([*sys.modules])
            for name, value in namespace.copy().items()
            if id(value) in by_id
        ]
        for slot in listener_slots.values():
            if type(slot.owner) is dict and id(slot.beneath) in by_id:
                results.append((slot.owner, slot.name, by_id[id(slot.beneath)]))
        return results
