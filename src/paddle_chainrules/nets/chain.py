"""Chains of affine maps with one activation between.

:class:`FCNet` is one, and a ``paddle.nn.Sequential`` of Linear layers often is. Their
derivatives by the input have formulas, and Julia can compute these nets itself.
"""

from __future__ import annotations

from typing import NamedTuple

from paddle import nn

from .activations import LAYERS
from .parameters.params import ParamSpec


class Chain(NamedTuple):
    """A net whose parameters are weight, bias, weight, bias, ..."""

    spec: ParamSpec
    activation: str


def chain_of(layer: nn.Layer, spec: ParamSpec) -> Chain | None:
    """Return a layer as a chain, or None if it is anything else.

    It is one when it is a Linear, or a Sequential of Linear layers with the same
    activation between every two, all of them Paddle's own classes with their default
    constants, without hooks, and with biases and distinct trained parameters. Layers
    that do nothing, such as dropout in evaluation, are skipped.
    """
    layers_by_prefix = {"": layer}
    if type(layer) is nn.Sequential:
        layers_by_prefix = {
            f"{name}.": sublayer for name, sublayer in layer._sub_layers.items()
        }
    if any(map(_is_hooked, (layer, *layers_by_prefix.values()))):
        return None
    layers_by_prefix = {
        name: sublayer
        for name, sublayer in layers_by_prefix.items()
        if not _is_idle(sublayer)
    }
    sublayers = list(layers_by_prefix.values())
    linears, activations = sublayers[::2], sublayers[1::2]
    if len(sublayers) % 2 == 0 or any(
        type(sublayer) is not nn.Linear for sublayer in linears
    ):
        return None
    kinds = {_activation(sublayer) for sublayer in activations} or {"identity"}
    names = [
        f"{prefix}{name}"
        for prefix in list(layers_by_prefix)[::2]
        for name in ("weight", "bias")
    ]
    if len(kinds) > 1 or list(spec.names) != names or len(set(spec.dtypes)) != 1:
        return None
    (kind,) = kinds
    return None if kind is None else Chain(spec, kind)


def _is_hooked(layer: nn.Layer) -> bool:
    return bool(
        layer._forward_pre_hooks
        or layer._forward_post_hooks
        or "forward" in vars(layer)
    )


def _is_idle(layer: nn.Layer) -> bool:
    """Tell whether a layer now returns its argument unchanged."""
    if type(layer) is nn.Dropout:
        return not layer.training and layer.mode == "upscale_in_train"
    return type(layer) is nn.Identity


def _activation(layer: nn.Layer) -> str | None:
    name, constants = LAYERS.get(type(layer), (None, {}))
    has_defaults = all(getattr(layer, k, None) == v for k, v in constants.items())
    return name if has_defaults else None
