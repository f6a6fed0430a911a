"""Changes that a call makes in a layer besides its attributes, to undo them.

These are the entries of containers, attributes of objects and of functions, and
variables that functions close over.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import paddle

from .attribute_walk import ATOMS, SlotAttributes, TensorMark, Visit, is_bound


class ContainerContents:
    """The initial contents of a container, with marks for its tensors.

    Args:
        owner: the container, or the object that has it.
        read: returns its present contents, as a dict, list or set.
        write: replaces its contents.
    """

    def __init__(
        self,
        owner: Any,
        read: Callable[[], Any],
        write: Callable[[Any], object],
    ) -> None:
        self.owner, self._read, self._write = owner, read, write
        self._start = read()

    def has_changed(self) -> bool:
        current, start = self._read(), self._start
        if isinstance(start, dict):
            if [*current] != [*start]:
                return True
            current, start = [*current.values()], [*start.values()]
        elif isinstance(start, set):
            return bool(current != start)
        return len(current) != len(start) or not all(map(is_same, current, start))

    def restore(self) -> None:
        self._write(self._start)


def contents_of(
    layer: paddle.nn.Layer, visits: Iterable[Visit]
) -> dict[str, ContainerContents]:
    """Return all that the layer holds, by paths, but attributes of the layers in it."""
    excluded_ids = {
        id(layer_dict)
        for sublayer in layer.sublayers(include_self=True)
        for layer_dict in (
            vars(sublayer),
            sublayer._buffers,
            sublayer._sub_layers,
            sublayer._parameters,
        )
    }
    results: dict[str, ContainerContents] = {}
    for path, _, _, value in visits:
        if value is None or isinstance(value, _NO_CONTENTS):
            continue
        for suffix, owner, read, write in _accessors(value):
            if id(owner) not in excluded_ids:
                excluded_ids.add(id(owner))
                results[path + suffix] = ContainerContents(owner, read, write)
    return results


_NO_CONTENTS = (*ATOMS, paddle.Tensor, TensorMark)


def _accessors(value: Any) -> Iterator[tuple[str, Any, Callable[[], Any], Any]]:
    """Yield path suffix, owner, reader and writer of each container of a value."""
    if isinstance(value, dict | set):
        yield "", value, value.copy, functools.partial(_replace_entries, value)
    elif isinstance(value, list | deque):
        yield (
            "",
            value,
            functools.partial(list, value),
            functools.partial(_replace_items, value),
        )
    elif isinstance(value, np.ndarray) and value.dtype == object:
        yield (
            "",
            value,
            lambda: [*value.flat],
            functools.partial(_set_flat_items, value),
        )
    elif isinstance(value, types.FunctionType):
        names = value.__code__.co_freevars
        for name, cell in zip(names, value.__closure__ or (), strict=True):
            read, write = (
                functools.partial(_cell_contents, cell),
                functools.partial(_set_cell_contents, cell),
            )
            yield f" closing over {name}", cell, read, write
    elif slots := _slot_names(value):
        yield (
            " in slots",
            value,
            lambda: {n: getattr(value, n) for n in slots if hasattr(value, n)},
            functools.partial(_set_slots, value, slots),
        )
    attribute_dict = getattr(value, "__dict__", None)
    if isinstance(attribute_dict, dict):
        yield (
            ", its attributes",
            attribute_dict,
            attribute_dict.copy,
            functools.partial(_replace_entries, attribute_dict),
        )


def _cell_contents(cell: types.CellType) -> list[Any]:
    return [cell.cell_contents] if is_bound(cell) else []


def _set_cell_contents(cell: types.CellType, start: list[Any]) -> None:
    if start:
        cell.cell_contents = start[0]
    elif is_bound(cell):
        del cell.cell_contents


def _set_flat_items(array: Any, start: list[Any]) -> None:
    for i, value in enumerate(start):
        array.flat[i] = value


def _slot_names(value: Any) -> list[str]:
    names = [vars(kind).get("__slots__", ()) for kind in type(value).__mro__]
    return [
        name
        for slots in names
        for name in ((slots,) if isinstance(slots, str) else slots)
        if name not in ("__dict__", "__weakref__")
    ]


def _replace_entries(container: Any, start: Any) -> None:
    container.clear()
    container.update(start)


def _replace_items(container: Any, start: list[Any]) -> None:
    container.clear()
    container.extend(start)


def _set_slots(owner: Any, names: Iterable[str], start: dict[str, Any]) -> None:
    for name in names:
        if name in start:
            SlotAttributes(owner)[name] = start[name]
        elif hasattr(owner, name):
            object.__delattr__(owner, name)


def is_same(value: Any, before: Any) -> bool:
    """Tell whether a value is the same as before; any tensor matches a mark."""
    if value is before or isinstance(before, TensorMark):
        return True
    if type(value) is not type(before):
        return False
    if isinstance(before, tuple):
        return len(value) == len(before) and all(map(is_same, value, before))
    return isinstance(before, ATOMS) and bool(value == before)
