"""Normalization of channels, over batches, images, or groups of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ....paddle_side.autograd.grad_mode import grad_mode
from ....paddle_side.dtypes import single
from ....paddle_side.interception import RAW, by_older_interface
from ....paddle_side.rules.derivatives import norms
from ....paddle_side.rules.derivatives.norms import Layout, has_small_scale
from ....paddle_side.rules.requested_gradients import differentiate_all
from ....paddle_side.rules.wrong_at_values import refuse_where
from ..axes import FIRST, Images
from ..calls import BatchCall, Call, NoRule
from ..entry import batch_of, define, formula_of, reverse_of
from ..shared import ops, shaped_as


def _instance_norm(x: Tensor, scale: Any, bias: Any, epsilon: float) -> Any:
    """Normalize each instance. Also give mean and variance, for the backward pass."""
    if scale is None:  # which crashes there
        scale = paddle.ones([x.shape[1]], x.dtype)
    if bias is None:
        bias = paddle.zeros([x.shape[1]], x.dtype)
    return by_older_interface("instance_norm", x, scale, bias, "epsilon", epsilon)


def _batch_norm(x: Tensor, mean: Tensor, variance: Tensor, *attrs: Any) -> Any:
    """Normalize a batch without writing into the statistics."""
    return RAW.batch_norm(x, RAW.assign(mean), RAW.assign(variance), *attrs)


define(
    "batch_norm",
    run=_batch_norm,
    writes={1: 1, 2: 2},
    writes_nothing=lambda *args: bool(args[5] or args[9]),  # in evaluation
    differentiable=(0, 3, 4),
    fixed=(1, 2, 3, 4, 5),
    axes=FIRST,
    tape=norms.batch_norm,
)
define("batch_norm_grad", axes=FIRST)
define(
    "instance_norm",
    run=_instance_norm,
    shown=1,
    fixed=(1, 2),
    lean=RAW.instance_norm,
    axes=Images(1, 2),
    tape=norms.instance_norm,
)
define("instance_norm_grad", axes=FIRST)
define(
    "group_norm",
    axes=Images(1, 2),
    tape=refuse_where(
        "group_norm",
        "where a scale is small beside the shift, or zero",
        norms.is_group_norm_wrong,
        otherwise=norms.group_norm,
    ),
)


define(
    "affine_channel", axes=FIRST, tape=differentiate_all("affine_channel")
)  # Paddle's is wrong by the scale or the bias alone


@formula_of("affine_channel")
def _affine_channel_formula(
    x: Tensor, scale: Tensor, bias: Tensor, layout: str
) -> Tensor:
    shape = [-1] if layout == "NHWC" else [-1, *[1] * (x.ndim - 2)]
    return x * scale.reshape(shape) + bias.reshape(shape)


def _group_norm_grad(x: Tensor, scale: Tensor, bias: Tensor, *others: Any) -> Any:
    """Return Paddle's gradients, or where they are wrong those of the formula."""
    if has_small_scale(scale, bias):
        with grad_mode(False):
            return _group_norm_grad_formula(x, scale, bias, *others)
    return RAW.group_norm_grad(x, scale, bias, *others)


GROUP_NORM_GRAD = define("group_norm_grad", run=_group_norm_grad, axes=FIRST)


class Standardized(NamedTuple):
    """The result ``y = (x - mean) * scale``, of mean 0 and variance 1 along axes."""

    y: Tensor
    mean: Tensor
    variance: Tensor
    scale: Tensor


def standardize(x: Tensor, axes: Sequence[int], epsilon: float) -> Standardized:
    """Return x normalized to mean 0 and variance 1 along axes, except for epsilon.

    The kernels of all norms but those of groups round epsilon to float32.
    """
    mean = ops.mean(x, axes, True)
    centred = x - mean
    variance = ops.mean(centred * centred, axes, True)
    scale = ops.rsqrt(variance + epsilon)
    return Standardized(centred * scale, mean, variance, scale)


def standardize_gradient(
    g: Tensor, normalized: Standardized, axes: Sequence[int]
) -> Any:
    """Return the gradient by x of the result of :func:`standardize`."""
    mean, projection = ops.mean(g, axes, True), ops.mean(g * normalized.y, axes, True)
    return (g - mean - normalized.y * projection) * normalized.scale


def _affine_gradients(
    g: Tensor, layout: Layout, y: Tensor, scale: Any, bias: Any
) -> list[Any]:
    scale_grad = None if scale is None else ops.sum(g * y, layout.others, None, False)
    bias_grad = None if bias is None else ops.sum(g, layout.others, None, False)
    return [scale_grad, bias_grad]


# Of a batch, or by what is stored.


@reverse_of("batch_norm")
def _batch_norm_reverse(call: Call) -> list[Any]:
    x, *running, scale, bias, is_test, momentum, epsilon, layout, use_global, train = (
        call.args
    )
    scale, bias = Layout(x, layout).affine(x, scale, bias)
    _, *updated, saved_mean, saved_variance, _ = call.outputs
    if use_global or (is_test and not train):  # nothing else is read
        updated = saved_mean, saved_variance = running
    mean, variance = updated
    x_grad, scale_grad, bias_grad = ops.batch_norm_grad(
        *(x, scale, bias, mean, variance, saved_mean, saved_variance, None),
        *(call.cotangent, momentum, epsilon, layout, is_test, use_global, train),
    )
    return [x_grad, None, None, scale_grad, bias_grad, *(None for _ in range(6))]


def _standardize_by_running(
    x: Tensor, mean: Tensor, variance: Tensor, *layout_and_epsilon: Any
) -> Standardized:
    """Normalize by a stored mean and variance for each channel."""
    layout, epsilon = layout_and_epsilon
    mean, variance = (
        ops.reshape(statistic, layout.shape) for statistic in (mean, variance)
    )
    scale = ops.rsqrt(variance + single(epsilon))
    return Standardized((x - mean) * scale, mean, variance, scale)


@formula_of("batch_norm")
def _batch_norm_formula(
    x: Tensor, mean: Tensor, variance: Tensor, scale: Any, bias: Any, *attrs: Any
) -> Any:
    is_test, momentum, epsilon, data_format, use_global, train = attrs
    layout = Layout(x, data_format)
    if use_global or (is_test and not train):
        normalized = _standardize_by_running(x, mean, variance, layout, epsilon)
        return (layout.scaled(normalized.y, scale, bias), *(None for _ in range(5)))
    if x.size == layout.channels:  # of one value each, which Paddle leaves as it is
        return (ops.assign(x), mean, variance, *(None for _ in range(3)))
    normalized = standardize(x, layout.others, single(epsilon))
    batch_statistics = [
        ops.reshape(statistic, [-1])
        for statistic in (normalized.mean, normalized.variance, normalized.scale)
    ]
    decay = single(momentum)
    weight = 1.0 - decay
    updated = (
        running * decay + statistic * weight
        for running, statistic in zip(
            (mean, variance), batch_statistics[:2], strict=True
        )
    )
    return (
        layout.scaled(normalized.y, scale, bias),
        *updated,
        batch_statistics[0],
        batch_statistics[2],
        None,
    )


@formula_of("batch_norm_grad")
def _batch_norm_grad_formula(*args: Any) -> Any:
    x, scale, bias, mean, variance, _, _, _, g, *attrs = args
    _, epsilon, data_format, is_test, use_global, train = attrs
    layout = Layout(x, data_format)
    scaled = layout.scaled(g, scale)
    if use_global or (is_test and not train):
        normalized = _standardize_by_running(x, mean, variance, layout, epsilon)
        x_grad = scaled * normalized.scale
    elif x.size == layout.channels:
        zeros = [
            None if parameter is None else paddle.zeros_like(parameter)
            for parameter in (scale, bias)
        ]
        return (ops.assign(g), *zeros)
    else:
        normalized = standardize(x, layout.others, single(epsilon))
        x_grad = standardize_gradient(scaled, normalized, layout.others)
    return (x_grad, *_affine_gradients(g, layout, normalized.y, scale, bias))


@batch_of("batch_norm")
def _batch_norm_batch(call: BatchCall) -> list[Any]:
    """Normalize the batches of many samples by the running statistics."""
    x, *running, scale, bias, is_test, _, epsilon, data_format, use_global, train = (
        call.args
    )
    if not use_global and (train or not is_test):
        raise NoRule(
            "batch_norm in training, whose statistics are of each sample; call eval() "
            "of the layer, or use GroupNorm"
        )
    y = x if 0 in call.batched else ops.unsqueeze(x, [0])
    layout = Layout(y[0], data_format)

    def of_channels(i: int, values: Tensor) -> Tensor:
        return ops.reshape(values, [-1 if i in call.batched else 1, *layout.shape])

    mean, variance = (of_channels(i, values) for i, values in enumerate(running, 1))
    y = (y - mean) * ops.rsqrt(variance + single(epsilon))
    if scale is not None:
        y = y * of_channels(3, scale)
    if bias is not None:
        y = y + of_channels(4, bias)
    moments = [
        values if i in call.batched else ops.expand(values, [call.size, *values.shape])
        for i, values in enumerate(running, 1)
    ]
    return [y, *moments, *moments, None]


# Of an image.


@reverse_of("instance_norm")
def _instance_norm_reverse(call: Call) -> list[Any]:
    x, scale, bias, epsilon = call.args
    scale, bias = Layout(x).affine(x, scale, bias)
    _, mean, variance = call.outputs
    grad_args = (x, scale, bias, mean, variance, call.cotangent, epsilon)
    return [*ops.instance_norm_grad(*grad_args), None]


@formula_of("instance_norm")
def _instance_norm_formula(x: Tensor, scale: Any, bias: Any, epsilon: float) -> Any:
    normalized = standardize(x, [*range(2, x.ndim)], single(epsilon))
    moments = (
        ops.reshape(statistic, [-1])
        for statistic in (normalized.mean, normalized.scale)
    )
    return (Layout(x).scaled(normalized.y, scale, bias), *moments)


@formula_of("instance_norm_grad")
def _instance_norm_grad_formula(
    x: Tensor,
    scale: Any,
    bias: Any,
    saved_mean: Tensor,
    saved_variance: Tensor,
    grad_y: Tensor,
    epsilon: float,
) -> Any:
    layout, axes = Layout(x), [*range(2, x.ndim)]
    normalized = standardize(x, axes, single(epsilon))
    x_grad = standardize_gradient(layout.scaled(grad_y, scale), normalized, axes)
    return (x_grad, *_affine_gradients(grad_y, layout, normalized.y, scale, bias))


# Of groups of channels.


@reverse_of("group_norm")
def _group_norm_reverse(call: Call) -> list[Any]:
    x, scale, bias, epsilon, groups, data_format = call.args
    layout = Layout(x, data_format)
    scale, bias = layout.affine(x, scale, bias)  # without which Paddle's are wrong
    grouped, axes = layout.grouped(x, groups)
    mean = ops.mean(grouped, axes, True)
    variance = ops.mean(ops.square(grouped - mean), axes, False)
    mean = shaped_as(mean, variance)
    grad_args = (x, scale, bias, call.out, mean, variance, call.cotangent)
    grads = GROUP_NORM_GRAD.bind([*grad_args, epsilon, groups, data_format])
    return [*grads, None, None, None]


@formula_of("group_norm")
def _group_norm_formula(
    x: Tensor, scale: Any, bias: Any, epsilon: float, groups: int, data_format: str
) -> Any:
    layout = Layout(x, data_format)
    normalized = standardize(*layout.grouped(x, groups), epsilon)
    moments = (
        ops.reshape(statistic, [x.shape[0], -1])
        for statistic in (normalized.mean, normalized.variance)
    )
    return (layout.scaled(shaped_as(normalized.y, x), scale, bias), *moments)


@formula_of("group_norm_grad")
def _group_norm_grad_formula(
    x: Tensor,
    scale: Any,
    bias: Any,
    y: Tensor,
    mean: Tensor,
    variance: Tensor,
    y_grad: Tensor,
    epsilon: float,
    groups: int,
    data_format: str,
) -> Any:
    layout = Layout(x, data_format)
    grouped, axes = layout.grouped(x, groups)
    normalized = standardize(grouped, axes, epsilon)
    scaled, _ = layout.grouped(layout.scaled(y_grad, scale), groups)
    x_grad = shaped_as(standardize_gradient(scaled, normalized, axes), x)
    return (
        x_grad,
        *_affine_gradients(y_grad, layout, shaped_as(normalized.y, x), scale, bias),
    )
