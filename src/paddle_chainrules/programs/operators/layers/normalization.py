"""Normalization over features, and of weights."""

from __future__ import annotations

import math
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.dtypes import single
from ....paddle_side.interception import RAW
from ..axes import ANYWHERE
from ..calls import BatchCall, Call, JetCall
from ..entry import TABLE, batch_of, define, formula_of, jet_of, reverse_of
from ..series import linear_series, power, product_series, total
from ..shared import ops
from .channel_norms import standard, standard_back


def _layer_norm(
    x: Tensor, scale: Any, bias: Any, epsilon: float, begin_norm_axis: int
) -> Any:
    """Normalize a layer. Also give mean and variance, for the backward pass."""
    width = math.prod(x.shape[begin_norm_axis:])
    if scale is None:  # which crashes there
        scale = paddle.ones([width], x.dtype)
    if bias is None:
        bias = paddle.zeros([width], x.dtype)
    attributes = ("epsilon", epsilon, "begin_norm_axis", begin_norm_axis)
    return RAW.legacy.layer_norm(x, scale, bias, *attributes)


define(
    "layer_norm",
    run=_layer_norm,
    shown=1,
    fixed=(1, 2),
    lean=RAW.layer_norm,
    axes=ANYWHERE,
)
define("layer_norm_grad", axes=ANYWHERE)
define("spectral_norm", "weight u v dim power_iters eps")


@reverse_of("layer_norm")
def _layer_norm_reverse(call: Call) -> list[Any]:
    x, scale, bias, epsilon, axis = call.args
    if scale is None:
        scale = paddle.ones([math.prod(x.shape[axis:])], x.dtype)
    if bias is None:
        bias = paddle.zeros([math.prod(x.shape[axis:])], x.dtype)
    _, mean, variance = call.outputs
    results = ops.layer_norm_grad(
        x, scale, bias, mean, variance, call.cotangent, epsilon, axis
    )
    return [*results, None, None]


@formula_of("layer_norm")
def _layer_norm_formula(
    x: Tensor, scale: Any, bias: Any, epsilon: float, begin_norm_axis: int
) -> Any:
    axes, y_shape = _features(x, begin_norm_axis)
    by = standard(x, axes, single(epsilon))
    y = by.y
    if scale is not None:
        y = y * ops.reshape(scale, y_shape)
    if bias is not None:
        y = y + ops.reshape(bias, y_shape)
    moments = (ops.reshape(part, [-1]) for part in (by.mean, by.variance))
    return (y, *moments)


def _features(x: Tensor, begin_norm_axis: int) -> tuple[list[int], list[int]]:
    """Return the axes of the features, and their sizes."""
    return [*range(begin_norm_axis, x.ndim)], x.shape[begin_norm_axis:]


@formula_of("layer_norm_grad")
def _layer_norm_grad_formula(
    x: Tensor,
    scale: Any,
    bias: Any,
    mean: Tensor,
    variance: Tensor,
    out_grad: Tensor,
    epsilon: float,
    begin_norm_axis: int,
) -> Any:
    axes, shape = _features(x, begin_norm_axis)
    by, g = standard(x, axes, single(epsilon)), out_grad
    scaled = g if scale is None else g * ops.reshape(scale, shape)

    def summed(part: Tensor) -> Tensor:
        rows = [*range(begin_norm_axis)]
        return ops.reshape(ops.sum(part, rows, None, False), [-1])

    by_scale = None if scale is None else summed(g * by.y)
    by_bias = None if bias is None else summed(g)
    return standard_back(scaled, by, axes), by_scale, by_bias


@formula_of("spectral_norm", keeps_kernel=True)
def _spectral_norm_formula(
    weight: Tensor, u: Tensor, v: Tensor, dim: int, power_iters: int, eps: float
) -> Tensor:
    """Differentiate through the iterations. Paddle's own gradient there is wrong."""
    first = [dim, *(i for i in range(weight.ndim) if i != dim)]
    rows = ops.transpose(weight, first) if dim else weight
    rows = ops.reshape(rows, [weight.shape[dim], -1])
    u, v = ops.reshape(u, [-1, 1]), ops.reshape(v, [-1, 1])
    for _ in range(power_iters):
        v = _unit(ops.matmul(rows, u, True, False), eps)
        u = _unit(ops.matmul(rows, v, False, False), eps)
    sigma = ops.matmul(u, ops.matmul(rows, v, False, False), True, False)
    return weight / ops.reshape(sigma, [1] * weight.ndim)


def _unit(column: Tensor, eps: float) -> Tensor:
    return column / (ops.sqrt(ops.sum(column * column, [], None, False)) + single(eps))


# In Taylor series.


@jet_of("layer_norm")
def _layer_norm_jet(call: JetCall) -> list[Any]:
    x, scale, bias, epsilon, axis = call.args
    shape = call.out.shape
    n = math.prod(shape[axis:])

    def averaged(part: Tensor) -> Tensor:
        return ops.mean(part, [1], True)

    rows = linear_series(lambda part: ops.reshape(part, [-1, n]), x)
    mean = linear_series(averaged, rows)
    centred = [None if r is None else r - m for r, m in zip(rows, mean, strict=True)]
    variance = linear_series(averaged, product_series(centred, centred))
    outcomes = product_series(
        centred, power([variance[0] + single(epsilon), *variance[1:]], -0.5)
    )
    if scale is not None:
        outcomes = product_series(
            outcomes, linear_series(lambda part: ops.reshape(part, [1, n]), scale)
        )
    if bias is not None:
        spread = linear_series(lambda part: ops.expand(part, outcomes[0].shape), bias)
        outcomes = [*map(total, zip(outcomes, spread, strict=True))]
    y = linear_series(lambda part: ops.reshape(part, shape), outcomes[1:])
    both = (
        linear_series(lambda part: ops.reshape(part, [-1]), s) for s in (mean, variance)
    )
    results = [y, *(series[1:] for series in both)]
    return [[v, *r] for v, r in zip(call.outputs, results, strict=True)]


# Of many samples.


@batch_of("layer_norm")
def _layer_norm_batch(call: BatchCall) -> list[Any]:
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
