"""A layer's structure, with places for the tensors that come with every call.

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
    held_by,
    is_bound,
    slots_of,
    takes,
    walk,
)
from .state import contents_of, is_same


class FunctionalModule:
    """A layer without its tensors, which are put into it for a call.

    Args:
        beside: that of the layer which this one is a copy of; what both layers hold is
            not this one's, and stays as a call leaves it.

    Attributes:
        layer: the layer, with None where tensors belong.
    """

    def __init__(
        self, layer: paddle.nn.Layer, beside: FunctionalModule | None = None
    ) -> None:
        self.layer = layer
        visits = [*walk(layer, type(layer).__name__)]
        self._slots = slots_of(layer, visits)
        self._every = [slot for slots in self._slots.values() for slot in slots]
        self._caches = [*_caches_of(layer)]
        self._contents = contents_of(layer, visits)
        if beside is not None:
            shared = {id(held.owner) for held in beside._contents.values()}
            self._contents = {
                path: held
                for path, held in self._contents.items()
                if id(held.owner) not in shared
            }
        self._start = self.attributes()
        self.release()
        self._places = {name for name, _ in self._parameters()}

    def set_tensors(self, values: Mapping[str, Any]) -> None:
        """Put tensors by name in all of their places."""
        slots = self._slots
        for name, value in values.items():
            for container, key in slots.get(name, ()):
                container[key] = value

    def get(self, name: str) -> Tensor:
        """Return the tensor that stands there now."""
        container, key = self._slots[name][0]
        result: Tensor = container[key]
        return result

    def buffer(self, name: str) -> Tensor:
        """Return the tensor that a call has left there, off the graph.

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
        """Put marks where tensors belong, for a copy of the layer."""
        self.set_tensors({name: TensorMark(name) for name in self._slots})

    def release(self) -> None:
        """Leave no tensor of a caller in the layer."""
        for container, key in self._every:
            container[key] = None
        for cache in self._caches:
            cache.cache_clear()

    def attributes(self) -> dict[tuple[str, str], Any]:
        """Return all attributes of the layer and those in it, by layer and name."""
        return {
            (path, name): value
            for path, layer in self.layer.named_sublayers(include_self=True)
            for held in _held_by(layer)
            for name, value in held.items()
            if name not in _PADDLES
        }

    def _parameters(self) -> Iterator[tuple[str, Any]]:
        """Yield names and values of all parameters."""
        for path, layer in self.layer.named_sublayers(include_self=True):
            for name, value in layer._parameters.items():
                yield f"{path}.{name}" if path else name, value

    def made_parameters(self) -> list[str]:
        """Return names of trainable parameters that were not there at first."""
        return [
            name
            for name, value in self._parameters()
            if name not in self._places
            if isinstance(value, Tensor) and not value.stop_gradient
        ]

    def changed(self) -> set[Place]:
        """Return places that have changed: caches, counters, hidden states."""
        now, before = self.attributes(), self._start
        return {
            *(
                place
                for place in {*now, *before}
                if not is_same(now.get(place, _ABSENT), before.get(place, _ABSENT))
            ),
            *((path, None) for path, h in self._contents.items() if h.has_changed()),
        }

    def restore(self, places: Iterable[Place]) -> None:
        """Put places back to what they were."""
        layers = dict(self.layer.named_sublayers(include_self=True))
        for path, name in places:
            if name is None:
                self._contents[path].restore()
                continue
            layer, value = layers[path], self._start.get((path, name), _ABSENT)
            if value is not _ABSENT:
                setattr(layer, name, value)
            elif any(name in held for held in _held_by(layer)):
                delattr(layer, name)


Place = tuple[str, str | None]
"""A layer and the name of its attribute; the path of a container and None."""


def _held_by(layer: paddle.nn.Layer) -> tuple[dict[str, Any], ...]:
    """Return the dicts in which Paddle keeps attributes, tensors and layers."""
    return vars(layer), layer._buffers, layer._sub_layers


_ABSENT = object()
_PADDLES = frozenset(vars(paddle.nn.Layer()))
"""Attributes that every layer has, which are Paddle's to change."""


def _caches_of(layer: paddle.nn.Layer) -> Iterator[Any]:
    """Yield methods that remember their results (``functools.lru_cache``)."""
    for kind in {kind for part in layer.sublayers(True) for kind in type(part).__mro__}:
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
    made: dict[int, Any] = {}
    for path, container, key, value in walk(root, type(root).__name__):
        if not isinstance(value, types.FunctionType | functools.partial):
            continue
        new = _rebound(value, memo, made)
        if new is value:
            continue
        if not takes(container):
            raise TypeError(
                f"{type(root).__name__} holds a function that closes over part of it "
                f"in a {type(container).__name__} ({path}), where stateless can't "
                "replace it; keep the function in an attribute, a list or a dict"
            )
        container[key] = new


def _rebound(value: Any, memo: dict[int, Any], made: dict[int, Any]) -> Any:
    """Return a function like it on copies, if it holds any of what was copied."""

    copies = set(map(id, memo.values()))

    def of(part: Any) -> Any:
        if isinstance(part, types.FunctionType | functools.partial):
            return _rebound(part, memo, made)
        if id(part) in copies:
            return part
        return copy.deepcopy(part, memo) if _is_copied(part, memo) else part

    if id(value) in made:
        return made[id(value)]
    held = [visit[3] for visit in held_by("", value)]
    if isinstance(value, functools.partial):
        parts = [*map(of, held)]
        if all(a is b for a, b in zip(parts, held, strict=True)):
            return value
        count = 1 + len(value.args)
        named = dict(zip(value.keywords, parts[count:], strict=True))
        rebuilt = functools.partial(parts[0], *parts[1:count], **named)
        made[id(rebuilt)] = rebuilt
        return rebuilt
    cells = value.__closure__ or ()
    new_cells = tuple(types.CellType() for _ in cells)
    new = types.FunctionType(
        value.__code__, value.__globals__, value.__name__, None, new_cells
    )
    functools.update_wrapper(new, value)
    vars(new).pop("__wrapped__")
    made[id(value)] = new  # a function may close over itself
    made[id(new)] = new  # and is not to be rebound again
    parts = [*map(of, held)]
    if not _has_state(value) and all(
        (a is b and not isinstance(a, TensorMark)) or a is new
        for a, b in zip(parts, held, strict=True)
    ):
        made[id(value)] = value
        return value
    rest = iter(parts)
    for cell, new_cell in zip(cells, new_cells, strict=True):
        if is_bound(cell):
            new_cell.cell_contents = next(rest)
    if value.__defaults__:
        new.__defaults__ = tuple(next(rest) for _ in value.__defaults__)
    if value.__kwdefaults__:
        new.__kwdefaults__ = {name: next(rest) for name in value.__kwdefaults__}
    for name in attributes_of(value):
        part = next(rest)
        own = type(part) in (dict, list, set)
        vars(new)[name] = copy.deepcopy(part, memo) if own else part
    return new


def _has_state(function: types.FunctionType) -> bool:
    """Tell whether it has attributes and is no function of a module, found by name."""
    return "<locals>" in function.__qualname__ and bool(attributes_of(function))


def _is_copied(part: Any, memo: dict[int, Any]) -> bool:
    """Tell whether it is, or holds, any copied object or a mark."""

    def is_one(value: Any) -> bool:
        known = id(value) in memo and not isinstance(value, ATOMS)
        return known or isinstance(value, TensorMark)

    return is_one(part) or any(is_one(value) for _, _, _, value in walk(part, ""))


def _refuse_globals(layer: paddle.nn.Layer, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a layer whose code reads it, or what it trains, as a global variable."""
    names = {id(value): f"the parameter {name!r}" for name, value in tensors.items()}
    for prefix, part in layer.named_sublayers(include_self=True):
        names[id(part)] = f"the layer {prefix!r}" if prefix else "the layer itself"
    functions: list[tuple[str, Callable[..., Any]]] = [
        (f"{type(part).__name__}.forward", type(part).forward)
        for part in layer.sublayers(include_self=True)
        if not getattr(type(part), "__module__", "").startswith("paddle.")
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
                what = names.get(id(function.__globals__.get(name)))
                if what is not None:
                    raise TypeError(
                        f"{path} reads {what} as the global variable {name!r}, where "
                        "stateless can't replace it; reach it through an attribute of "
                        "the layer"
                    )


def globals_of(code: types.CodeType) -> set[str]:
    """Return names of the global variables that it reads."""
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    return {step.argval for step in dis.get_instructions(code) if step.opname in loads}


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
