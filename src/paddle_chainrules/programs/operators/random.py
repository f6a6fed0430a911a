"""Random numbers, and what draws them."""

from __future__ import annotations

from typing import Any

from .calls import Call
from .entry import define, reverse_of
from .shared import ops

define("dropout", random=True, shown=2, differentiable=(0,))
define("dropout_grad", differentiable=(1,))
for name in ("gaussian", "uniform", "randint", "randperm", "bernoulli"):
    define(name, random=True, differentiable=())


@reverse_of("dropout")
def _(call: Call) -> list[Any]:
    _, _, p, is_test, mode, _, _ = call.args
    grad = ops.dropout_grad(call.outputs[1], call.cotangent, p, is_test, mode)
    return [grad, *(None for _ in range(6))]


@reverse_of("dropout_grad")
def _(call: Call) -> list[Any]:
    mask, _, p, is_test, mode = call.args
    grad = ops.dropout_grad(mask, call.cotangent, p, is_test, mode)
    return [None, grad, None, None, None]
