"""Normalization over features, groups and batches."""

from __future__ import annotations

import math
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.interception import RAW
from .entry import Call, define, formula_of, reverse_of
from .shared import ops


def _layer_norm(
    x: Tensor, scale: Any, bias: Any, epsilon: float, begin_norm_axis: int
) -> Any:
    """With mean and variance, which the way back needs."""
    width = math.prod(x.shape[begin_norm_axis:])
    if scale is None:  # which crashes there
        scale = paddle.ones([width], x.dtype)
    if bias is None:
        bias = paddle.zeros([width], x.dtype)
    attributes = ("epsilon", epsilon, "begin_norm_axis", begin_norm_axis)
    return RAW.legacy.layer_norm(x, scale, bias, *attributes)


define("layer_norm", run=_layer_norm, shown=1, fixed=(1, 2), lean=RAW.layer_norm)
define("layer_norm_grad")
define(
    "batch_norm",
    writes={1: 1, 2: 2},
    still=lambda *args: bool(args[5] or args[9]),  # in evaluation
    differentiable=(0, 3, 4),
    fixed=(1, 2, 3, 4, 5),
)


@reverse_of("layer_norm")
def _(call: Call) -> list[Any]:
    x, scale, bias, epsilon, axis = call.args
    if scale is None:
        scale = paddle.ones([math.prod(x.shape[axis:])], x.dtype)
    if bias is None:
        bias = paddle.zeros([math.prod(x.shape[axis:])], x.dtype)
    _, mean, variance = call.outputs
    found = ops.layer_norm_grad(
        x, scale, bias, mean, variance, call.cotangent, epsilon, axis
    )
    return [*found, None, None]


@formula_of("layer_norm_grad")
def _(
    x: Tensor,
    scale: Any,
    bias: Any,
    mean: Tensor,
    variance: Tensor,
    out_grad: Tensor,
    epsilon: float,
    begin_norm_axis: int,
) -> Any:
    n = math.prod(x.shape[begin_norm_axis:])
    rows = ops.reshape(x, [-1, n])
    g = ops.reshape(out_grad, [-1, n])
    centred = rows - ops.mean(rows, [1], True)
    deviation = ops.sqrt(ops.mean(centred * centred, [1], True) + epsilon)
    y = centred / deviation
    scaled = g if scale is None else g * ops.reshape(scale, [1, n])
    by_x = (
        scaled - ops.mean(scaled, [1], True) - y * ops.mean(scaled * y, [1], True)
    ) / deviation
    by_scale = None if scale is None else ops.sum(g * y, [0], None, False)
    by_bias = None if bias is None else ops.sum(g, [0], None, False)
    return ops.reshape(by_x, x.shape), by_scale, by_bias


@reverse_of("batch_norm")
def _(call: Call) -> list[Any]:
    x, _, _, scale, bias, is_test, momentum, epsilon, layout, use_global, train = (
        call.args
    )
    _, mean, variance, saved_mean, saved_variance, reserve = call.outputs
    by_x, by_scale, by_bias = ops.batch_norm_grad(
        *(x, scale, bias, mean, variance, saved_mean, saved_variance, reserve),
        *(call.cotangent, momentum, epsilon, layout, is_test, use_global, train),
    )
    return [by_x, None, None, by_scale, by_bias, *(None for _ in range(6))]


define("batch_norm_grad")
