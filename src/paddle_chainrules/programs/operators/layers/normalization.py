"""Normalization over features, and of weights."""

from __future__ import annotations

import math
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.dtypes import single
from ....paddle_side.interception import RAW, by_older_interface
from ....paddle_side.rules.derivatives import norms
from ....paddle_side.rules.derivatives.formulas import by_rules
from ..axes import ANYWHERE
from ..calls import BatchCall, Call, JetCall
from ..entry import TABLE, batch_of, define, formula_of, jet_of, reverse_of
from ..series import linear_series, power, product_series, total
from ..shared import ops
from .channel_norms import standardize, standardize_gradient


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
    return by_older_interface("layer_norm", x, scale, bias, *attributes)


define(
    "layer_norm",
    run=_layer_norm,
    shown=1,
    fixed=(1, 2),
    lean=RAW.layer_norm,
    axes=ANYWHERE,
    tape=norms.layer_norm,
)
define("layer_norm_grad", axes=ANYWHERE)
define(
    "spectral_norm", "weight u v dim power_iters eps", tape=by_rules("spectral_norm")
)


@reverse_of("layer_norm")
def _layer_norm_reverse(call: Call) -> list[Any]:
    x, scale, bias, epsilon, axis = call.args
    if scale is None:
        scale = paddle.ones([math.prod(x.shape[axis:])], x.dtype)
    if bias is None:
        bias = paddle.zeros([math.prod(x.shape[axis:])], x.dtype)
    _, mean, variance = call.outputs
    grads = ops.layer_norm_grad(
        x, scale, bias, mean, variance, call.cotangent, epsilon, axis
    )
    return [*grads, None, None]


@formula_of("layer_norm")
def _layer_norm_formula(
    x: Tensor, scale: Any, bias: Any, epsilon: float, begin_norm_axis: int
) -> Any:
    axes, y_shape = _feature_axes_and_shape(x, begin_norm_axis)
    normalized = standardize(x, axes, single(epsilon))
    y = normalized.y
    if scale is not None:
        y = y * ops.reshape(scale, y_shape)
    if bias is not None:
        y = y + ops.reshape(bias, y_shape)
    moments = (
        ops.reshape(statistic, [-1])
        for statistic in (normalized.mean, normalized.variance)
    )
    return (y, *moments)


def _feature_axes_and_shape(
    x: Tensor, begin_norm_axis: int
) -> tuple[list[int], list[int]]:
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
    axes, shape = _feature_axes_and_shape(x, begin_norm_axis)
    normalized, g = standardize(x, axes, single(epsilon)), out_grad
    scaled = g if scale is None else g * ops.reshape(scale, shape)

    def sum_rows(values: Tensor) -> Tensor:
        row_axes = [*range(begin_norm_axis)]
        return ops.reshape(ops.sum(values, row_axes, None, False), [-1])

    scale_grad = None if scale is None else sum_rows(g * normalized.y)
    bias_grad = None if bias is None else sum_rows(g)
    return standardize_gradient(scaled, normalized, axes), scale_grad, bias_grad


@formula_of("spectral_norm", keeps_kernel=True)
def _spectral_norm_formula(
    weight: Tensor, u: Tensor, v: Tensor, dim: int, power_iters: int, eps: float
) -> Tensor:
    """Differentiate through the iterations. Paddle's own gradient there is wrong."""
    order = [dim, *(i for i in range(weight.ndim) if i != dim)]
    rows = ops.transpose(weight, order) if dim else weight
    rows = ops.reshape(rows, [weight.shape[dim], -1])
    u, v = ops.reshape(u, [-1, 1]), ops.reshape(v, [-1, 1])
    for _ in range(power_iters):
        v = _normalize_column(ops.matmul(rows, u, True, False), eps)
        u = _normalize_column(ops.matmul(rows, v, False, False), eps)
    sigma = ops.matmul(u, ops.matmul(rows, v, False, False), True, False)
    return weight / ops.reshape(sigma, [1] * weight.ndim)


def _normalize_column(column: Tensor, eps: float) -> Tensor:
    return column / (ops.sqrt(ops.sum(column * column, [], None, False)) + single(eps))


# In Taylor series.


@jet_of("layer_norm")
def _layer_norm_jet(call: JetCall) -> list[Any]:
    x, scale, bias, epsilon, axis = call.args
    shape = call.out.shape
    n = math.prod(shape[axis:])

    def averaged(term: Tensor) -> Tensor:
        return ops.mean(term, [1], True)

    rows = linear_series(lambda term: ops.reshape(term, [-1, n]), x)
    mean = linear_series(averaged, rows)
    centred = [
        None if row is None else row - mean_of_row
        for row, mean_of_row in zip(rows, mean, strict=True)
    ]
    variance = linear_series(averaged, product_series(centred, centred))
    normalized = product_series(
        centred, power([variance[0] + single(epsilon), *variance[1:]], -0.5)
    )
    if scale is not None:
        normalized = product_series(
            normalized,
            linear_series(lambda term: ops.reshape(term, [1, n]), scale),
        )
    if bias is not None:
        spread = linear_series(lambda term: ops.expand(term, normalized[0].shape), bias)
        normalized = [*map(total, zip(normalized, spread, strict=True))]
    y = linear_series(lambda term: ops.reshape(term, shape), normalized[1:])
    statistics = (
        linear_series(lambda term: ops.reshape(term, [-1]), moment)
        for moment in (mean, variance)
    )
    results = [y, *(series[1:] for series in statistics)]
    return [[v, *row] for v, row in zip(call.outputs, results, strict=True)]


# Of many samples.


@batch_of("layer_norm")
def _layer_norm_batch(call: BatchCall) -> list[Any]:
    x, scale, bias, epsilon, axis = call.args
    if 0 not in call.batched:
        x = ops.expand(x, [call.size, *x.shape])
    is_per_sample = not call.batched.isdisjoint((1, 2))
    shared_affine = (None, None) if is_per_sample else (scale, bias)
    y, *moments = TABLE["layer_norm"].bind([x, *shared_affine, epsilon, axis + 1])
    if is_per_sample:
        lead, inner = [1] * axis, x.shape[axis + 1 :]
        for i, parameter in ((1, scale), (2, bias)):
            if parameter is not None:
                size = [call.size] if i in call.batched else [1]
                parameter = ops.reshape(parameter, [*size, *lead, *inner])
                y = y * parameter if i == 1 else y + parameter
    shapes = call.shapes[1:]
    pairs = zip(moments, shapes, strict=True)
    return [y, *(ops.reshape(moment, [call.size, *shape]) for moment, shape in pairs)]
