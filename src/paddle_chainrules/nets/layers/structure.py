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

MODULE_PREFIXES = ("paddle.nn.", "paddle.vision.")
"""Prefixes of the modules whose classes may be named."""

_PLAIN = (bool, int, float, str, type(None))
_SEQUENCES: dict[str, Any] = {"tuple": tuple, "list": list, "set": set}
_MAPPINGS: dict[str, Any] = {"dict": dict, "ordered": OrderedDict}

_BASE_ATTRIBUTES = frozenset(vars(nn.Layer()))
"""Attributes that every layer has from the start."""

_WRITTEN_ATTRIBUTES = frozenset(
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
    layer: nn.Layer, net_fields: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Tensor]]:
    """Describe a layer with marks for tensors and what its net keeps; give the tensors.

    They are the net's buffers and other constants that the layer holds.

    Raises:
        TypeError: a class, a hook, a function or an attribute is not Paddle's own.
    """
    writer = _StructureWriter(layer)
    facts = {
        **net_fields,
        "_spec": [
            net_fields["_spec"].names,
            net_fields["_spec"].shapes,
            net_fields["_spec"].dtypes,
        ],
        "_frozen": sorted(net_fields["_frozen"]),
        "_ambiguous": sorted(net_fields["_ambiguous"]),
        "_buffers": [*net_fields["_buffers"]],
        "layers": writer.layers,
    }
    return facts, [*net_fields["_buffers"].values(), *writer.constants]


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
        net_fields = {
            "_spec": ParamSpec(
                tuple(names), tuple(tuple(shape) for shape in shapes), tuple(dtypes)
            ),
            "_frozen": {*facts["_frozen"]},
            "_ambiguous": {*facts["_ambiguous"]},
            "_buffers": dict(zip(facts["_buffers"], tensors[:count], strict=True)),
            "_aliases": facts["_aliases"],
            "_jit": facts["_jit"],
        }
        return _make_layers(facts["layers"], tensors[count:]), net_fields
    except Exception as error:
        raise ValueError(
            f"no description of a layer of Paddle's ({error!r}); write it anew, by "
            "the versions that read it"
        ) from error


def _make_layers(layers: list[Any], constants: Sequence[Tensor]) -> nn.Layer:
    new_layers = [nn.Layer.__new__(_class_named(name)) for name, _ in layers]
    for layer, (_, attributes) in zip(new_layers, layers, strict=True):
        nn.Layer.__init__(layer)
        for name, value in attributes.items():
            if name in _BASE_ATTRIBUTES - _WRITTEN_ATTRIBUTES:
                raise ValueError(f"{name} is not given; write the net anew")
            vars(layer)[name] = _from_json(value, new_layers, constants)
    return new_layers[0]


class _StructureWriter:
    """Writes layers as a list of classes and attributes, the root first."""

    def __init__(self, root: nn.Layer) -> None:
        self.layers: list[Any] = []
        self.constants: list[Tensor] = []
        self._root = type(root).__name__
        self._layer_indices: dict[int, int] = {}
        self._layer_index(root)

    def _layer_index(self, layer: nn.Layer) -> int:
        """Return the layer's index in the list; write the layer if it is new."""
        if id(layer) in self._layer_indices:
            return self._layer_indices[id(layer)]
        kind, attributes = type(layer), dict[str, Any]()
        self._layer_indices[id(layer)] = len(self.layers)
        self.layers.append([self._class_name(kind), attributes])
        for name, value in vars(layer).items():
            if name in _WRITTEN_ATTRIBUTES or name not in _BASE_ATTRIBUTES:
                attributes[name] = self._to_json(value, f"{kind.__name__}.{name}")
            elif isinstance(value, dict) and value:
                self._refuse(f"hooks or another forward ({kind.__name__}.{name})")
        return self._layer_indices[id(layer)]

    def _to_json(self, value: Any, path: str) -> Any:
        kind = type(value)
        if kind in _PLAIN:
            return value
        for name, container in _SEQUENCES.items():
            if kind is container:
                return [name, *(self._to_json(item, path) for item in value)]
        for name, container in _MAPPINGS.items():
            if kind is container:
                pairs = [item for pair in value.items() for item in pair]
                return [name, *(self._to_json(item, path) for item in pairs)]
        if isinstance(value, nn.Layer):
            return ["layer", self._layer_index(value)]
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
            return ["class", self._class_name(value)]
        if kind is MethodType and value.__func__ is type(value.__self__).forward:
            return ["forward", self._layer_index(value.__self__)]
        if kind is FunctionType:
            for name in functional.__all__:
                if getattr(functional, name) is value:
                    return ["function", name]
        self._refuse(f"a {kind.__name__} ({path})")

    def _class_name(self, kind: type) -> str:
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
    module, _, kind = name.rpartition(".")
    result = vars(sys.modules[module]).get(kind) if module in sys.modules else None
    if not (
        name.startswith(MODULE_PREFIXES)
        and isinstance(result, type)
        and issubclass(result, nn.Layer)
        and result.__module__ == module
    ):
        raise ValueError(f"{name} is no layer of Paddle's; give one that is")
    return result


def _from_json(value: Any, layers: list[nn.Layer], constants: Sequence[Tensor]) -> Any:
    if not isinstance(value, list):
        return value
    kind, *items = value
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](_from_json(item, layers, constants) for item in items)
    if kind in _MAPPINGS:
        entries = [_from_json(item, layers, constants) for item in items]
        return _MAPPINGS[kind](zip(entries[::2], entries[1::2], strict=True))
    (item,) = items
    if kind == "layer":
        return layers[item]
    if kind == "constant":
        return constants[item]
    if kind == "forward":
        return layers[item].forward
    if kind == "tensor":
        return TensorMark(str(item))
    if kind == "class":
        return _class_named(item)
    if kind == "function" and item in functional.__all__:
        return getattr(functional, item)
    if kind in ("dtype", "empty") and isinstance(
        dtype := getattr(paddle, item), paddle.dtype
    ):
        return dtype if kind == "dtype" else nn.Layer().create_variable(dtype=dtype)
    raise ValueError(f"{kind} {item!r} is no value; write the net anew")
