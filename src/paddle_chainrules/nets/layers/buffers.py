"""Buffers that calls in training move on."""

from __future__ import annotations

from paddle import nn
from paddle.nn.layer.norm import _BatchNormBase


def moved_buffers(layer: nn.Layer) -> tuple[str, ...]:
    """Return the names of the statistics that batch normalization moves in training."""
    results = []
    for name, sublayer in layer.named_sublayers(include_self=True):
        if (
            isinstance(sublayer, _BatchNormBase)
            and sublayer.training
            and not sublayer._use_global_stats
        ):
            prefix = f"{name}." if name else ""
            results += [f"{prefix}_mean", f"{prefix}_variance"]
    return tuple(results)
