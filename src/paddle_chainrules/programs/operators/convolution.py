"""Convolutions and pooling."""

from __future__ import annotations

from typing import Any

from .calls import Call
from .entry import define, reverse_of
from .shared import ops

define(
    "conv2d",
    "input filter strides paddings padding_algorithm dilations groups data_format",
    differentiable=(0, 1),
)
define("conv2d_grad")
define("depthwise_conv2d", differentiable=(0, 1))
define("pool2d", differentiable=(0,))
define("pool2d_grad")
define("max_pool2d_with_index", differentiable=(0,))
define("max_pool2d_with_index_grad")


@reverse_of("conv2d")
def _(call: Call) -> list[Any]:
    x, filter, strides, paddings, algorithm, dilations, groups, layout = call.args
    by_x, by_filter = ops.conv2d_grad(
        *(x, filter, call.cotangent, strides, paddings, algorithm, dilations),
        *(groups, layout),
    )
    return [by_x, by_filter, *(None for _ in range(6))]


@reverse_of("pool2d")
def _(call: Call) -> list[Any]:
    x, *how = call.args
    return [ops.pool2d_grad(x, call.out, call.cotangent, *how), *(None for _ in how)]


@reverse_of("max_pool2d_with_index")
def _(call: Call) -> list[Any]:
    x, *how = call.args
    grad = ops.max_pool2d_with_index_grad(x, call.outputs[1], call.cotangent, *how)
    return [grad, *(None for _ in how)]
