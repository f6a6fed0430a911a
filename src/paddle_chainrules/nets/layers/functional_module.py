"""A layer's structure, with slots for the tensors that come with every call.

That is a functional module. The structure is copied once. Wherever the layer holds a
parameter or buffer, in a registry, an attribute of any object, a list or dict, or what
a function closes over, its copy has a slot.
"""

from __future__ import annotations

import copy
import dis
import functools
import inspect
import sys
import types
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
)
from typing import Any

import paddle
from paddle import Tensor

from ...transforms.as_programs.dependencies import codes_of
from .attribute_walk import (
    ATOMS,
    TensorMark,
    attributes_of,
    can_replace_items,
    is_bound,
    iter_held,
    slots_of,
    walk,
)
from .state import contents_of, is_same


class FunctionalModule:
    """A layer without its tensors, which are put into it for a call.

    Args:
        original: the module that this layer is a copy of; objects that both hold are
            not restored after a call.

    Attributes:
        layer: the layer, with None where tensors belong.
    """

    def __init__(
        self, layer: paddle.nn.Layer, original: FunctionalModule | None = None
    ) -> None:
        self.layer = layer
        visits = [*walk(layer, type(layer).__name__)]
        self._slots = slots_of(layer, visits)
        self._all_slots = [slot for slots in self._slots.values() for slot in slots]
        self._caches = [*_caches_of(layer)]
        self._contents = contents_of(layer, visits)
        if original is not None:
            shared_ids = {
                id(contents.owner) for contents in original._contents.values()
            }
            self._contents = {
                path: contents
                for path, contents in self._contents.items()
                if id(contents.owner) not in shared_ids
            }
        self._start = self.attributes()
        self.release()
        self._parameter_names = {name for name, _ in self._parameters()}

    def set_tensors(self, values: Mapping[str, Any]) -> None:
        """Set tensors by name in all of their slots."""
        slots = self._slots
        for name, value in values.items():
            for container, key in slots.get(name, ()):
                container[key] = value

    def get(self, name: str) -> Tensor:
        """Return the tensor that is now in the slot of this name."""
        container, key = self._slots[name][0]
        result: Tensor = container[key]
        return result

    def buffer(self, name: str) -> Tensor:
        """Return a buffer as a call has left it, off the graph.

        Raises:
            TypeError: that is no tensor.
        """
        result: Any = self.get(name)
        if not isinstance(result, Tensor):
            raise TypeError(
                f"the layer has put {type(result).__name__} in the place of its buffer "
                f"{name!r}, which has to stay a tensor where buffers= is given; call "
                "it without, where the buffer is put back after every call"
            )
        return result.detach()

    def mark(self) -> None:
        """Set marks in all slots, for a copy of the layer."""
        self.set_tensors({name: TensorMark(name) for name in self._slots})

    def release(self) -> None:
        """Leave no tensor of a caller in the layer."""
        for container, key in self._all_slots:
            container[key] = None
        for cache in self._caches:
            cache.cache_clear()

    def attributes(self) -> dict[tuple[str, str], Any]:
        """Return all attributes of the layer and those in it, by layer and name."""
        return {
            (path, name): value
            for path, layer in self.layer.named_sublayers(include_self=True)
            for layer_dict in _layer_dicts(layer)
            for name, value in layer_dict.items()
            if name not in _PADDLE_ATTRIBUTES
        }

    def _parameters(self) -> Iterator[tuple[str, Any]]:
        """Yield names and values of all parameters."""
        for path, layer in self.layer.named_sublayers(include_self=True):
            for name, value in layer._parameters.items():
                yield f"{path}.{name}" if path else name, value

    def new_parameters(self) -> list[str]:
        """Return names of trainable parameters that were not there at first."""
        return [
            name
            for name, value in self._parameters()
            if name not in self._parameter_names
            if isinstance(value, Tensor) and not value.stop_gradient
        ]

    def changed_keys(self) -> set[StateKey]:
        """Return keys of state that has changed: caches, counters, hidden states."""
        current, before = self.attributes(), self._start
        return {
            *(
                key
                for key in {*current, *before}
                if not is_same(current.get(key, _ABSENT), before.get(key, _ABSENT))
            ),
            *(
                (path, None)
                for path, contents in self._contents.items()
                if contents.has_changed()
            ),
        }

    def restore(self, keys: Iterable[StateKey]) -> None:
        """Restore the state of these keys to what it was."""
        layers = dict(self.layer.named_sublayers(include_self=True))
        for path, name in keys:
            if name is None:
                self._contents[path].restore()
                continue
            layer, value = layers[path], self._start.get((path, name), _ABSENT)
            if value is not _ABSENT:
                setattr(layer, name, value)
            elif any(name in layer_dict for layer_dict in _layer_dicts(layer)):
                delattr(layer, name)


StateKey = tuple[str, str | None]
"""A layer and the name of its attribute; the path of a container and None."""


def _layer_dicts(layer: paddle.nn.Layer) -> tuple[dict[str, Any], ...]:
    """Return the dicts in which Paddle keeps attributes, tensors and layers."""
    return vars(layer), layer._buffers, layer._sub_layers


_ABSENT = object()
_PADDLE_ATTRIBUTES = frozenset(vars(paddle.nn.Layer()))
"""Attributes that every layer has, which are Paddle's to change."""


def _caches_of(layer: paddle.nn.Layer) -> Iterator[Any]:
    """Yield methods that remember their results (``functools.lru_cache``)."""
    for kind in {
        kind for sublayer in layer.sublayers(True) for kind in type(sublayer).__mro__
    }:
        for value in vars(kind).values():
            if callable(getattr(value, "cache_clear", None)):
                yield value


def copied(
    layer: paddle.nn.Layer, tensors: Mapping[str, Tensor], shared: bool = False
) -> paddle.nn.Layer:
    """Return a deep copy that holds marks in place of the named tensors.

    Every other tensor is copied, or shared. Functions that close over part of the layer
    close over its copy in the copy.

    Raises:
        TypeError: it holds what can't be copied, or a tensor where no mark can stand.
        RecursionError: layers are nested too deeply.
    """
    _refuse_globals(layer, tensors)
    marks = {id(value): TensorMark(name) for name, value in tensors.items()}
    memo: dict[int, Any] = dict(marks)
    for value in _tensors_in(layer):
        if id(value) not in memo and value._is_initialized():
            memo[id(value)] = value if shared else _own_copy(value)
    try:
        result = copy.deepcopy(layer, memo)
    except RecursionError:
        raise RecursionError(
            f"the layers in {type(layer).__name__} are nested too deeply to be copied "
            f"within {sys.getrecursionlimit()} calls of Python's; nest them less, or "
            "call sys.setrecursionlimit(10_000) first"
        ) from None
    except Exception as error:
        raise TypeError(
            f"stateless copies a layer's structure, and {type(layer).__name__} holds "
            f"something that can't be copied ({error}); keep such state outside the "
            "layer, or give its class a __deepcopy__"
        ) from error
    _rebind(result, memo)
    return result


def derives(layer: paddle.nn.Layer) -> bool:
    """Tell whether it holds tensors computed from parameters."""
    return any(not value.is_leaf for value in _tensors_in(layer))


def _own_copy(value: Tensor) -> Tensor:
    """Copy a value; one computed from parameters keeps its graph, which shows that."""
    return (value.detach() if value.is_leaf else value).clone()


def _tensors_in(layer: paddle.nn.Layer) -> Iterator[Tensor]:
    for _, _, _, value in walk(layer, ""):
        if isinstance(value, Tensor):
            yield value


def _rebind(root: Any, memo: dict[int, Any]) -> None:
    """Replace functions that close over originals with some that close over copies."""
    rebuilt_by_id: dict[int, Any] = {}
    for path, container, key, value in walk(root, type(root).__name__):
        if not isinstance(value, types.FunctionType | functools.partial):
            continue
        rebuilt = _rebind_function(value, memo, rebuilt_by_id)
        if rebuilt is value:
            continue
        if not can_replace_items(container):
            raise TypeError(
                f"{type(root).__name__} holds a function that closes over part of it "
                f"in a {type(container).__name__} ({path}), where stateless can't "
                "replace it; keep the function in an attribute, a list or a dict"
            )
        container[key] = rebuilt


def _rebind_function(
    value: Any, memo: dict[int, Any], rebuilt_by_id: dict[int, Any]
) -> Any:
    """Return a function that closes over the copies, or itself if it needs none."""

    copies = set(map(id, memo.values()))

    def rebind_value(held_value: Any) -> Any:
        if isinstance(held_value, types.FunctionType | functools.partial):
            return _rebind_function(held_value, memo, rebuilt_by_id)
        if id(held_value) in copies:
            return held_value
        return (
            copy.deepcopy(held_value, memo)
            if _is_copied(held_value, memo)
            else held_value
        )

    if id(value) in rebuilt_by_id:
        return rebuilt_by_id[id(value)]
    old_values = [visit[3] for visit in iter_held("", value)]
    if isinstance(value, functools.partial):
        new_values = [*map(rebind_value, old_values)]
        if all(a is b for a, b in zip(new_values, old_values, strict=True)):
            return value
        count = 1 + len(value.args)
        keywords = dict(zip(value.keywords, new_values[count:], strict=True))
        rebuilt = functools.partial(new_values[0], *new_values[1:count], **keywords)
        rebuilt_by_id[id(rebuilt)] = rebuilt
        return rebuilt
    cells = value.__closure__ or ()
    new_cells = tuple(types.CellType() for _ in cells)
    new_function = types.FunctionType(
        value.__code__, value.__globals__, value.__name__, None, new_cells
    )
    functools.update_wrapper(new_function, value)
    vars(new_function).pop("__wrapped__")
    rebuilt_by_id[id(value)] = new_function  # a function may close over itself
    rebuilt_by_id[id(new_function)] = new_function  # and is not to be rebound again
    new_values = [*map(rebind_value, old_values)]
    if not _has_state(value) and all(
        (a is b and not isinstance(a, TensorMark)) or a is new_function
        for a, b in zip(new_values, old_values, strict=True)
    ):
        rebuilt_by_id[id(value)] = value
        return value
    values_left = iter(new_values)
    for cell, new_cell in zip(cells, new_cells, strict=True):
        if is_bound(cell):
            new_cell.cell_contents = next(values_left)
    if value.__defaults__:
        new_function.__defaults__ = tuple(next(values_left) for _ in value.__defaults__)
    if value.__kwdefaults__:
        new_function.__kwdefaults__ = {
            name: next(values_left) for name in value.__kwdefaults__
        }
    for name in attributes_of(value):
        held_value = next(values_left)
        is_container = type(held_value) in (dict, list, set)
        vars(new_function)[name] = (
            copy.deepcopy(held_value, memo) if is_container else held_value
        )
    return new_function


def _has_state(function: types.FunctionType) -> bool:
    """Tell whether it has attributes and is no function of a module, found by name."""
    return "<locals>" in function.__qualname__ and bool(attributes_of(function))


def _is_copied(root: Any, memo: dict[int, Any]) -> bool:
    """Tell whether a value is, or holds, any copied object or a mark."""

    def is_copy_or_mark(value: Any) -> bool:
        is_memoized = id(value) in memo and not isinstance(value, ATOMS)
        return is_memoized or isinstance(value, TensorMark)

    return is_copy_or_mark(root) or any(
        is_copy_or_mark(value) for _, _, _, value in walk(root, "")
    )


def _refuse_globals(layer: paddle.nn.Layer, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a layer whose code reads it, or what it trains, as a global variable."""
    names = {id(value): f"the parameter {name!r}" for name, value in tensors.items()}
    for prefix, sublayer in layer.named_sublayers(include_self=True):
        names[id(sublayer)] = f"the layer {prefix!r}" if prefix else "the layer itself"
    functions: list[tuple[str, Callable[..., Any]]] = [
        (f"{type(sublayer).__name__}.forward", type(sublayer).forward)
        for sublayer in layer.sublayers(include_self=True)
        if not getattr(type(sublayer), "__module__", "").startswith("paddle.")
    ]
    functions += [
        (path, value)
        for path, _, _, value in walk(layer, type(layer).__name__)
        if isinstance(value, types.FunctionType)
    ]
    for path, function in functions:
        function = getattr(function, "__wrapped__", function)
        if not isinstance(function, types.FunctionType):
            continue
        for code in codes_of(function.__code__):
            for name in globals_of(code):
                description = names.get(id(function.__globals__.get(name)))
                if description is not None:
                    raise TypeError(
                        f"{path} reads {description} as the global variable {name!r}, "
                        "where stateless can't replace it; reach it through an "
                        "attribute of the layer"
                    )


def globals_of(code: types.CodeType) -> set[str]:
    """Return names of the global variables that it reads."""
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    return {
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname in loads
    }


def keywords_of(function: Any) -> set[str]:
    try:
        return {*inspect.signature(function).parameters}
    except ValueError:  # of an object that Paddle has made of the function
        return set()


def required_arguments(function: Any) -> int:
    """Return the number of positional arguments without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of an object that Paddle has made of the function
        return 0
    positional = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    return sum(p.kind in positional and p.default is p.empty for p in parameters)
