"""Activations of several elements: with weights, gates, or groups of channels."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.rules.derivatives.formulas import by_rules
from ....paddle_side.rules.requested_gradients import differentiate_all
from ..axes import ANYWHERE, FIRST
from ..calls import Call
from ..entry import define, formula_of, reverse_of
from ..shared import ops, summed_to

define("prelu", axes=ANYWHERE, tape=differentiate_all("prelu"))
define("maxout", differentiable=(0,), axes=FIRST)
define("swiglu", defaults={"y": None}, axes=FIRST)
define("fused_softmax_mask", axes=ANYWHERE, tape=by_rules("fused_softmax_mask", 1))


@formula_of("prelu")
def _prelu_formula(x: Tensor, alpha: Tensor, data_format: str, mode: str) -> Tensor:
    shape = [1] * x.ndim
    if mode == "channel":
        shape[1 if data_format.startswith("NC") else -1] = -1
    elif mode == "element":
        shape[1:] = x.shape[1:]
    return ops.where(x > 0, x, x * ops.reshape(alpha, shape))


@formula_of("maxout")
def _maxout_formula(x: Tensor, groups: int, axis: int) -> Tensor:
    axis %= x.ndim
    shape = [*x.shape]
    shape[axis : axis + 1] = [shape[axis] // groups, groups]
    grouped = ops.reshape(x, shape)
    first = ops.argmax(grouped, axis + 1, True, paddle.int64)
    indices = paddle.arange(groups, dtype="int64")
    chosen = first == indices.reshape([groups, *[1] * (x.ndim - axis - 1)])
    maxima = ops.where(chosen, grouped, paddle.zeros_like(grouped))
    return ops.sum(maxima, [axis + 1], None, False)


@formula_of("swiglu")
def _swiglu_formula(x: Tensor, y: Any) -> Tensor:
    if y is None:
        x, y = ops.split_with_num(x, 2, x.ndim - 1)
    return ops.silu(x) * y


@reverse_of("fused_softmax_mask")
def _fused_softmax_mask_reverse(call: Call) -> list[Any]:
    mask = call.args[1]
    grad = ops.softmax_grad(call.out, call.cotangent, -1)
    mask_grad = summed_to(grad, mask) if 1 in call.wanted else None
    return [grad, mask_grad]
