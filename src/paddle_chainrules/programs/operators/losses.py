"""Losses with operators of their own."""

from __future__ import annotations

from typing import Any

from .calls import Call, NoRule
from .entry import define, reverse_of
from .shared import ops

define(
    "cross_entropy_with_softmax",
    "input label soft_label use_softmax numeric_stable_mode ignore_index axis",
    differentiable=(0,),
)
define("cross_entropy_with_softmax_grad")
define("bce_loss", differentiable=(0,))
define("sigmoid_cross_entropy_with_logits", differentiable=(0,))


@reverse_of("cross_entropy_with_softmax")
def _(call: Call) -> list[Any]:
    _, label, *how = call.args
    if call.cotangents[0] is not None:
        raise NoRule("the softmax that a cross entropy gives; use F.softmax")
    grad = ops.cross_entropy_with_softmax_grad(
        label, call.outputs[0], call.cotangents[1], *how
    )
    return [grad, None, *(None for _ in how)]
