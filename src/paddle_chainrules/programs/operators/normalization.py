"""Normalization over features, groups and batches."""

from __future__ import annotations

import math
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.interception import RAW
from .calls import BatchCall, Call, JetCall, JuliaCall
from .entry import TABLE, batch_of, define, formula_of, jet_of, julia_of, reverse_of
from .series import linear, power, product, total
from .shared import ops, single


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


def _batch_norm(x: Tensor, mean: Tensor, variance: Tensor, *how: Any) -> Any:
    """Without a write into the statistics."""
    return RAW.batch_norm(x, RAW.assign(mean), RAW.assign(variance), *how)


define(
    "batch_norm",
    run=_batch_norm,
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
    deviation = ops.sqrt(ops.mean(centred * centred, [1], True) + single(epsilon))
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


# In Taylor series.


@jet_of("layer_norm")
def _(call: JetCall) -> list[Any]:
    x, scale, bias, epsilon, axis = call.args
    shape = call.out.shape
    n = math.prod(shape[axis:])

    def averaged(part: Tensor) -> Tensor:
        return ops.mean(part, [1], True)

    rows = linear(lambda part: ops.reshape(part, [-1, n]), x)
    mean = linear(averaged, rows)
    centred = [None if r is None else r - m for r, m in zip(rows, mean, strict=True)]
    variance = linear(averaged, product(centred, centred))
    found = product(
        centred, power([variance[0] + single(epsilon), *variance[1:]], -0.5)
    )
    if scale is not None:
        found = product(found, linear(lambda part: ops.reshape(part, [1, n]), scale))
    if bias is not None:
        spread = linear(lambda part: ops.expand(part, found[0].shape), bias)
        found = [*map(total, zip(found, spread, strict=True))]
    y = linear(lambda part: ops.reshape(part, shape), found[1:])
    both = (linear(lambda part: ops.reshape(part, [-1]), s) for s in (mean, variance))
    results = [y, *(series[1:] for series in both)]
    return [[v, *r] for v, r in zip(call.outputs, results, strict=True)]


# Of many samples.


@batch_of("layer_norm")
def _(call: BatchCall) -> list[Any]:
    x, scale, bias, epsilon, axis = call.args
    if 0 not in call.batched:
        x = ops.expand(x, [call.size, *x.shape])
    own = not call.batched.isdisjoint((1, 2))
    pair = (None, None) if own else (scale, bias)
    y, *moments = TABLE["layer_norm"].every([x, *pair, epsilon, axis + 1])
    if own:
        lead, inner = [1] * axis, x.shape[axis + 1 :]
        for i, part in ((1, scale), (2, bias)):
            if part is not None:
                size = [call.size] if i in call.batched else [1]
                part = ops.reshape(part, [*size, *lead, *inner])
                y = y * part if i == 1 else y + part
    shapes = call.shapes[1:]
    pairs = zip(moments, shapes, strict=True)
    return [y, *(ops.reshape(m, [call.size, *shape]) for m, shape in pairs)]


# In Julia.


@julia_of("layer_norm")
def _(call: JuliaCall) -> str:
    x, scale, bias, epsilon, axis = call.args
    inner = call.out[axis:]
    dims = ", ".join(str(i + 1) for i in range(len(inner)))
    sizes = "".join(f"{n}, " for n in reversed(inner))
    variance = f"sum(abs2, c; dims = ({dims},)) ./ n"
    text = f"c ./ sqrt.({variance} .+ {call.number(single(epsilon))})"
    text = text if scale is None else f"({text}) .* reshape({scale}, ({sizes}))"
    text = text if bias is None else f"{text} .+ reshape({bias}, ({sizes}))"
    n = call.number(math.prod(inner))
    return f"let n = {n}, c = {x} .- sum({x}; dims = ({dims},)) ./ n; {text} end"
