"""Normalization of channels, over batches, images, or groups of channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.dtypes import single
from ...paddle_side.interception import RAW
from .calls import Call
from .entry import define, formula_of, reverse_of
from .shared import ops, shaped_as


def _instance_norm(x: Tensor, scale: Any, bias: Any, epsilon: float) -> Any:
    """With mean and variance, which the way back needs."""
    if scale is None:  # which crashes there
        scale = paddle.ones([x.shape[1]], x.dtype)
    if bias is None:
        bias = paddle.zeros([x.shape[1]], x.dtype)
    return RAW.legacy.instance_norm(x, scale, bias, "epsilon", epsilon)


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
define("batch_norm_grad")
define(
    "instance_norm",
    run=_instance_norm,
    shown=1,
    fixed=(1, 2),
    lean=RAW.instance_norm,
)
define("instance_norm_grad")
define("group_norm")
define("group_norm_grad")


def standard(x: Tensor, axes: Sequence[int], epsilon: float) -> tuple[Tensor, Tensor]:
    """``(x - mean) / deviation`` along axes, and the deviation."""
    centred = x - ops.mean(x, axes, True)
    variance = ops.mean(centred * centred, axes, True)
    deviation = ops.sqrt(variance + single(epsilon))
    return centred / deviation, deviation


def standard_back(g: Tensor, y: Tensor, deviation: Tensor, axes: Sequence[int]) -> Any:
    """The gradient by x of what :func:`standard` gives."""
    mean, slope = ops.mean(g, axes, True), ops.mean(g * y, axes, True)
    return (g - mean - y * slope) / deviation


class Layout:
    """Where the channels of a tensor are."""

    def __init__(self, x: Tensor, data_format: str = "NCHW") -> None:
        last = x.ndim > 2 and not data_format.startswith("NC")
        self.axis = x.ndim - 1 if last else 1
        self.channels = x.shape[self.axis]
        self.others = [i for i in range(x.ndim) if i != self.axis]
        self.shape = [self.channels if i == self.axis else 1 for i in range(x.ndim)]

    def affine(self, x: Tensor, scale: Any, bias: Any) -> tuple[Tensor, Tensor]:
        """Scale and shift, where they are missing those that do nothing."""
        if scale is None:
            scale = paddle.ones([self.channels], x.dtype)
        if bias is None:
            bias = paddle.zeros([self.channels], x.dtype)
        return scale, bias

    def scaled(self, g: Tensor, scale: Any) -> Tensor:
        return g if scale is None else g * ops.reshape(scale, self.shape)

    def back(self, g: Tensor, y: Tensor, scale: Any, bias: Any) -> list[Any]:
        """Gradients by scale and shift."""
        by_scale = None if scale is None else ops.sum(g * y, self.others, None, False)
        by_bias = None if bias is None else ops.sum(g, self.others, None, False)
        return [by_scale, by_bias]


# Of a batch, or by what is stored.


@reverse_of("batch_norm")
def _(call: Call) -> list[Any]:
    x, _, _, scale, bias, is_test, momentum, epsilon, layout, use_global, train = (
        call.args
    )
    scale, bias = Layout(x, layout).affine(x, scale, bias)
    _, mean, variance, saved_mean, saved_variance, reserve = call.outputs
    by_x, by_scale, by_bias = ops.batch_norm_grad(
        *(x, scale, bias, mean, variance, saved_mean, saved_variance, reserve),
        *(call.cotangent, momentum, epsilon, layout, is_test, use_global, train),
    )
    return [by_x, None, None, by_scale, by_bias, *(None for _ in range(6))]


@formula_of("batch_norm_grad")
def _(*args: Any) -> Any:
    x, scale, bias, mean, variance, _, _, _, g, *how = args
    _, epsilon, data_format, is_test, use_global, train = how
    layout = Layout(x, data_format)
    scaled = layout.scaled(g, scale)
    if use_global or (is_test and not train):
        deviation = ops.sqrt(ops.reshape(variance, layout.shape) + single(epsilon))
        y = (x - ops.reshape(mean, layout.shape)) / deviation
        by_x = scaled / deviation
    else:
        y, deviation = standard(x, layout.others, epsilon)
        by_x = standard_back(scaled, y, deviation, layout.others)
    return (by_x, *layout.back(g, y, scale, bias))


# Of an image.


@reverse_of("instance_norm")
def _(call: Call) -> list[Any]:
    x, scale, bias, epsilon = call.args
    scale, bias = Layout(x).affine(x, scale, bias)
    _, mean, variance = call.outputs
    given = (x, scale, bias, mean, variance, call.cotangent, epsilon)
    return [*ops.instance_norm_grad(*given), None]


@formula_of("instance_norm_grad")
def _(
    x: Tensor,
    scale: Any,
    bias: Any,
    saved_mean: Tensor,
    saved_variance: Tensor,
    grad_y: Tensor,
    epsilon: float,
) -> Any:
    layout, axes = Layout(x), [*range(2, x.ndim)]
    y, deviation = standard(x, axes, epsilon)
    by_x = standard_back(layout.scaled(grad_y, scale), y, deviation, axes)
    return (by_x, *layout.back(grad_y, y, scale, bias))


# Of groups of channels.


def _grouped(x: Tensor, layout: Layout, groups: int) -> tuple[Tensor, list[int]]:
    """With the groups apart, and the axes that are normalized."""
    inner = [groups, layout.channels // groups]
    shape = [-1, *x.shape[1 : layout.axis], *inner, *x.shape[layout.axis + 1 :]]
    axes = [i for i in range(1, len(shape)) if i != layout.axis]
    return ops.reshape(x, shape), axes


@reverse_of("group_norm")
def _(call: Call) -> list[Any]:
    x, scale, bias, epsilon, groups, data_format = call.args
    layout = Layout(x, data_format)
    scale, bias = layout.affine(x, scale, bias)  # without which Paddle's are wrong
    parts, axes = _grouped(x, layout, groups)
    mean = ops.mean(parts, axes, True)
    variance = ops.mean(ops.square(parts - mean), axes, False)
    mean = shaped_as(mean, variance)
    given = (x, scale, bias, call.out, mean, variance, call.cotangent)
    found = ops.group_norm_grad(*given, epsilon, groups, data_format)
    return [*found, None, None, None]


@formula_of("group_norm_grad")
def _(
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
    parts, axes = _grouped(x, layout, groups)
    plain, deviation = standard(parts, axes, epsilon)
    scaled, _ = _grouped(layout.scaled(y_grad, scale), layout, groups)
    by_x = shaped_as(standard_back(scaled, plain, deviation, axes), x)
    return (by_x, *layout.back(y_grad, shaped_as(plain, x), scale, bias))
