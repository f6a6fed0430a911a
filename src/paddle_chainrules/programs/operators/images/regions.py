"""Pooling of regions of images; the regions themselves have no gradient."""

from __future__ import annotations

import math
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.interception import by_older_interface
from ....paddle_side.rules.derivatives.formulas import refuse_derivative
from ..calls import Call
from ..entry import define, reverse_of
from ..kernels import by_kernel, linear_in_first
from ..shared import ops


def _roi_pool(
    x: Tensor,
    boxes: Tensor,
    boxes_num: Any,
    pooled_height: int,
    pooled_width: int,
    spatial_scale: float,
) -> Any:
    """Return pooled regions and indices of maxima, which the backward pass needs."""
    attributes = ("pooled_height", pooled_height, "pooled_width", pooled_width)
    return by_older_interface(
        "roi_pool", x, boxes, boxes_num, *attributes, "spatial_scale", spatial_scale
    )


define("roi_align", differentiable=(0,), tape=refuse_derivative("roi_align", 1))
define("psroi_pool", differentiable=(0,))
define("roi_pool", run=_roi_pool, shown=1, fixed=(1,), differentiable=(0,))
linear_in_first("roi_align", "psroi_pool")
by_kernel("roi_pool")


@reverse_of("roi_pool_grad")
def _roi_pool_grad_reverse(call: Call) -> list[Any]:
    x, _, boxes_num, argmax, g, *attrs = call.args
    count, channels = g.shape[:2]
    size = math.prod(x.shape[2:])
    ends = ops.cast(ops.cumsum(boxes_num, 0, False, False, False), paddle.int64)
    is_later = ops.reshape(ends, [1, -1]) <= paddle.arange(count).reshape([-1, 1])
    image = ops.sum(ops.cast(is_later, paddle.int64), [1], None, True)
    plane = image * channels + paddle.arange(channels).reshape([1, -1])
    flat = ops.reshape(plane * size, [count, channels, 1, 1]) + argmax
    is_filled = argmax >= 0  # regions may be empty
    flat = ops.reshape(ops.where(is_filled, flat, paddle.zeros_like(flat)), [-1])
    g_grad = ops.gather(ops.reshape(call.cotangent, [-1]), flat, 0)
    g_grad = ops.reshape(g_grad, g.shape) * ops.cast(is_filled, g.dtype)
    return [None, None, None, None, g_grad, *(None for _ in attrs)]
