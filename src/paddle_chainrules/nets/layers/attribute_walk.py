"""Places of a layer's tensors: every place that Python lets it keep one.

A walk of attributes, containers and closures finds them.
"""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import (
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSequence,
)
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

Slot = tuple[Any, Any]
"""A container, and the key or index under which it holds a tensor."""


ATOMS = (str, bytes, int, float, complex, type, types.ModuleType, types.CodeType)


class TensorMark:
    """A placeholder for the tensor of this name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __deepcopy__(self, memo: Any) -> TensorMark:
        return self


class _ClosureCell:
    """A closed-over variable of a function, as a container of one."""

    def __init__(self, cell: types.CellType) -> None:
        self._cell = cell

    def __setitem__(self, key: int, value: Any) -> None:
        self._cell.cell_contents = value

    def __getitem__(self, key: int) -> Any:
        return self._cell.cell_contents


class SlotAttributes:
    """The attributes of an object of a class with ``__slots__``."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def __setitem__(self, name: str, value: Any) -> None:
        object.__setattr__(self._owner, name, value)  # of frozen ones too

    def __getitem__(self, name: str) -> Any:
        return getattr(self._owner, name)


class _Arguments:
    """The positional arguments of a partial function."""

    def __init__(self, owner: functools.partial[Any]) -> None:
        self._owner = owner

    def __setitem__(self, index: int, value: Any) -> None:
        owner, args = self._owner, [*self._owner.args]
        args[index] = value
        state: Any = owner.func, tuple(args), owner.keywords, vars(owner)
        owner.__setstate__(state)  # type: ignore[attr-defined]

    def __getitem__(self, index: int) -> Any:
        return self._owner.args[index]


class _TupleItems:
    """The items of a tuple in a container, where a new tuple replaces it.

    Attributes:
        slot: the container, and its key or index.
    """

    def __init__(self, *slot: Any) -> None:
        self.slot = slot

    def __setitem__(self, index: int, value: Any) -> None:
        container, key = self.slot
        kind, items = type(container[key]), [*container[key]]
        items[index] = value
        container[key] = kind(items) if kind is tuple else kind._make(items)

    def __getitem__(self, index: int) -> Any:
        container, key = self.slot
        return container[key][index]


MutableMapping.register(SlotAttributes)
MutableSequence.register(np.flatiter)
MutableSequence.register(_Arguments)
MutableSequence.register(_ClosureCell)
MutableSequence.register(_TupleItems)


Visit = tuple[str, Any, Any, Any]
"""A path to print, a container, a key of it, and the value under the key."""


def walk(root: Any, name: str) -> Iterator[Visit]:
    """Yield everything that Python's objects below the root hold, each object once.

    A tuple comes once for each of its slots.
    """
    visited: set[int] = set()
    pending: list[tuple[str, Any, Slot | None]] = [(name, root, None)]
    while pending:
        path, owner, slot = pending.pop()
        if id(owner) in visited or isinstance(owner, ATOMS) or owner is None:
            continue
        is_tuple = type(owner) is tuple or (
            hasattr(owner, "_make") and not getattr(owner, "__dict__", None)
        )
        if not is_tuple:
            visited.add(id(owner))
        for child_path, container, key, value in iter_held(path, owner):
            if is_tuple and slot is not None and can_replace_items(slot[0]):
                container = _TupleItems(*slot)
            yield child_path, container, key, value
            if can_replace_items(container):
                value = container[key]  # which may have been replaced meanwhile
            if not isinstance(value, Tensor | TensorMark):
                pending.append((child_path, value, (container, key)))


def can_replace_items(container: Any) -> bool:
    """Tell whether its items can be replaced."""
    return isinstance(container, MutableMapping | MutableSequence)


def iter_held(path: str, owner: Any) -> Iterator[Visit]:
    if isinstance(owner, Mapping):
        for i, (key, value) in enumerate(list(owner.items())):
            yield f"{path}[{key!r}]", owner, key, value
            if isinstance(key, Tensor | TensorMark):
                yield f"key {i} of {path}", owner.keys(), i, key
    elif isinstance(owner, np.ndarray) and owner.dtype == object:
        for i, value in enumerate(owner.flat):
            yield f"{path}.flat[{i}]", owner.flat, i, value
    elif isinstance(owner, list | tuple | set | frozenset | MutableSequence):
        for i, value in enumerate(list(owner)):
            yield f"{path}[{i}]", owner, i, value
    elif isinstance(owner, types.FunctionType):
        names = owner.__code__.co_freevars
        for name, cell in zip(names, owner.__closure__ or (), strict=True):
            if is_bound(cell):
                yield (
                    f"{path} closing over {name}",
                    _ClosureCell(cell),
                    0,
                    cell.cell_contents,
                )
        for i, value in enumerate(owner.__defaults__ or ()):
            yield f"{path} default {i}", owner.__defaults__, i, value
        for name, value in (owner.__kwdefaults__ or {}).items():
            yield f"{path} default {name}", owner.__kwdefaults__, name, value
        for name in attributes_of(owner):
            yield f"{path}.{name}", vars(owner), name, vars(owner)[name]
    elif isinstance(owner, types.MethodType):
        yield f"{path}.__self__", (), 0, owner.__self__
    elif isinstance(owner, functools.partial):
        yield f"{path}.func", (), 0, owner.func
        for i, value in enumerate(owner.args):
            yield f"{path}.args[{i}]", _Arguments(owner), i, value
        for name, value in owner.keywords.items():
            yield f"{path}.keywords[{name!r}]", owner.keywords, name, value
    elif not isinstance(owner, Tensor | types.BuiltinFunctionType):
        yield from _held_by_object(path, owner)


def _held_by_object(path: str, owner: Any) -> Iterator[Visit]:
    """Yield attributes, and tensors that Python does not show."""
    attributes: list[Any] = []
    attribute_dict = getattr(owner, "__dict__", None)
    if isinstance(attribute_dict, dict):
        attributes += [attribute_dict, *attribute_dict.values()]
        for name, value in list(attribute_dict.items()):
            yield f"{path}.{name}", attribute_dict, name, value
    for kind in type(owner).__mro__:
        names = vars(kind).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__") and hasattr(owner, name):
                value = getattr(owner, name)
                attributes.append(value)
                yield f"{path}.{name}", SlotAttributes(owner), name, value
    known_ids = {*map(id, attributes)}
    for referent in gc.get_referents(owner):
        for value in referent if type(referent) is tuple else (referent,):
            if isinstance(value, Tensor | TensorMark) and not known_ids & {
                id(referent),
                id(value),
            }:
                yield path, owner, None, value


def attributes_of(function: types.FunctionType) -> list[str]:
    """Return names of attributes that a user has put on it, without Python's own."""
    return [name for name in vars(function) if not name.startswith("__")]


def is_bound(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def slots_of(layer: paddle.nn.Layer, visits: Iterable[Visit]) -> dict[str, list[Slot]]:
    """Return the slots of tensor marks by name, among all that the layer holds."""
    results: dict[str, list[Slot]] = {}
    for path, container, key, value in visits:
        if not isinstance(value, TensorMark):
            continue
        if not can_replace_items(container):
            raise TypeError(
                f"{type(layer).__name__} holds the parameter or buffer {value.name!r} "
                f"in a {type(container).__name__} ({path}), where stateless can't "
                "replace it; keep it in an attribute, a list or a dict instead"
            )
        results.setdefault(value.name, []).append((container, key))
    return results
