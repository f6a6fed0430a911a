"""A net of Paddle's own layers as plain values without its tensors, and back.

The values are those of JSON: numbers, strings, containers of these, and names of the
classes and functions of ``paddle.nn``. Reading them makes layers and runs nobody's
code: what is written is neither a pickle nor a program.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any, NoReturn

import paddle
from paddle import ParamAttr, Tensor, nn
from paddle.nn import functional

from ...paddle_side.dtypes import dtype_name
from ..parameters.params import ParamSpec
from .attribute_walk import TensorMark

ROOMS = ("paddle.nn.", "paddle.vision.")
"""Prefixes of the modules whose classes may be named."""

_PLAIN = (bool, int, float, str, type(None))
_SEQUENCES: dict[str, Any] = {"tuple": tuple, "list": list, "set": set}
_MAPPINGS: dict[str, Any] = {"dict": dict, "ordered": OrderedDict}

_MADE = frozenset(vars(nn.Layer()))
"""Attributes that every layer has from the start."""

_KEPT = frozenset(
    {
        "training",
        "_dtype",
        "_built",
        "_cast_to_low_precision",
        "_parameters",
        "_buffers",
        "_sub_layers",
        "_non_persistable_buffer_names_set",
    }
)
"""Those of these attributes that are written. Names and recorders are made anew; there
are no hooks."""


def describe(
    layer: nn.Layer, kept: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Tensor]]:
    """Describe a layer with marks for tensors and what its net keeps; give the tensors.

    They are the net's buffers and other constants that the layer holds.

    Raises:
        TypeError: a class, a hook, a function or an attribute is not Paddle's own.
    """
    writer = _StructureWriter(layer)
    facts = {
        **kept,
        "_spec": [kept["_spec"].names, kept["_spec"].shapes, kept["_spec"].dtypes],
        "_frozen": sorted(kept["_frozen"]),
        "_ambiguous": sorted(kept["_ambiguous"]),
        "_buffers": [*kept["_buffers"]],
        "layers": writer.layers,
    }
    return facts, [*kept["_buffers"].values(), *writer.constants]


def construct(
    facts: Mapping[str, Any], tensors: Sequence[Tensor]
) -> tuple[nn.Layer, dict[str, Any]]:
    """Return the layer and the rest, with these tensors.

    Raises:
        ValueError: it tells of none.
    """
    try:
        names, shapes, dtypes = facts["_spec"]
        count = len(facts["_buffers"])
        kept = {
            "_spec": ParamSpec(
                tuple(names), tuple(tuple(shape) for shape in shapes), tuple(dtypes)
            ),
            "_frozen": {*facts["_frozen"]},
            "_ambiguous": {*facts["_ambiguous"]},
            "_buffers": dict(zip(facts["_buffers"], tensors[:count], strict=True)),
            "_aliases": facts["_aliases"],
            "_jit": facts["_jit"],
        }
        return _made(facts["layers"], tensors[count:]), kept
    except Exception as error:
        raise ValueError(
            f"no description of a layer of Paddle's ({error!r}); write it anew, by "
            "the versions that read it"
        ) from error


def _made(layers: list[Any], constants: Sequence[Tensor]) -> nn.Layer:
    made = [nn.Layer.__new__(_class_named(name)) for name, _ in layers]
    for layer, (_, attributes) in zip(made, layers, strict=True):
        nn.Layer.__init__(layer)
        for name, value in attributes.items():
            if name in _MADE - _KEPT:
                raise ValueError(f"{name} is not given; write the net anew")
            vars(layer)[name] = _read(value, made, constants)
    return made[0]


class _StructureWriter:
    """Layers in a row, each as its class and attributes, the root first."""

    def __init__(self, root: nn.Layer) -> None:
        self.layers: list[Any] = []
        self.constants: list[Tensor] = []
        self._root = type(root).__name__
        self._places: dict[int, int] = {}
        self._place(root)

    def _place(self, layer: nn.Layer) -> int:
        """Return the layer's place in the row, and write the layer if it is new."""
        if id(layer) in self._places:
            return self._places[id(layer)]
        kind, attributes = type(layer), dict[str, Any]()
        self._places[id(layer)] = len(self.layers)
        self.layers.append([self._class(kind), attributes])
        for name, value in vars(layer).items():
            if name in _KEPT or name not in _MADE:
                attributes[name] = self._written(value, f"{kind.__name__}.{name}")
            elif isinstance(value, dict) and value:
                self._refuse(f"hooks or another forward ({kind.__name__}.{name})")
        return self._places[id(layer)]

    def _written(self, value: Any, path: str) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        for name, container in _SEQUENCES.items():
            if kind is container:
                return [name, *(self._written(part, path) for part in value)]
        for name, container in _MAPPINGS.items():
            if kind is container:
                pairs = [part for pair in value.items() for part in pair]
                return [name, *(self._written(part, path) for part in pairs)]
        if isinstance(value, nn.Layer):
            return ["layer", self._place(value)]
        if kind is TensorMark:
            return ["tensor", value.name]
        if kind is ParamAttr:
            return None  # how a parameter was to be made, which it is
        if kind is paddle.dtype:
            return ["dtype", dtype_name(value)]
        if isinstance(value, Tensor):
            if not value._is_initialized():
                return ["empty", dtype_name(value.dtype)]
            self.constants.append(value)
            return ["constant", len(self.constants) - 1]
        if isinstance(value, type):
            return ["class", self._class(value)]
        if kind is MethodType and value.__func__ is type(value.__self__).forward:
            return ["forward", self._place(value.__self__)]
        if kind is FunctionType:
            for name in functional.__all__:
                if getattr(functional, name) is value:
                    return ["function", name]
        self._refuse(f"a {kind.__name__} ({path})")

    def _class(self, kind: type) -> str:
        name = f"{kind.__module__}.{kind.__qualname__}"
        try:
            if _class_named(name) is kind:
                return name
        except ValueError:
            pass
        self._refuse(f"the class {kind.__qualname__}")

    def _refuse(self, what: str) -> NoReturn:
        raise TypeError(
            f"{self._root} has {what}, which is not of paddle.nn, and only what is can "
            "be made anew elsewhere without running code of others; write its "
            "parameters with save_params, make the net where they are needed, and read "
            "them there with load_params"
        )


def _class_named(name: str) -> Any:
    room, _, kind = name.rpartition(".")
    result = vars(sys.modules[room]).get(kind) if room in sys.modules else None
    if not (
        name.startswith(ROOMS)
        and isinstance(result, type)
        and issubclass(result, nn.Layer)
        and result.__module__ == room
    ):
        raise ValueError(f"{name} is no layer of Paddle's; give one that is")
    return result


def _read(value: Any, layers: list[nn.Layer], constants: Sequence[Tensor]) -> Any:
    if not isinstance(value, list):
        return value
    kind, *parts = value
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](_read(part, layers, constants) for part in parts)
    if kind in _MAPPINGS:
        each = [_read(part, layers, constants) for part in parts]
        return _MAPPINGS[kind](zip(each[::2], each[1::2], strict=True))
    (part,) = parts
    if kind == "layer":
        return layers[part]
    if kind == "constant":
        return constants[part]
    if kind == "forward":
        return layers[part].forward
    if kind == "tensor":
        return TensorMark(str(part))
    if kind == "class":
        return _class_named(part)
    if kind == "function" and part in functional.__all__:
        return getattr(functional, part)
    if kind in ("dtype", "empty") and isinstance(
        dtype := getattr(paddle, part), paddle.dtype
    ):
        return dtype if kind == "dtype" else nn.Layer().create_variable(dtype=dtype)
    raise ValueError(f"{kind} {part!r} is no value; write the net anew")
