"""Pooling over windows, and its backward pass."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.dtypes import single
from ....paddle_side.rules import integer_results
from ....paddle_side.rules.wrong_at_values import (
    DUPLICATES,
    EMPTY_WINDOWS,
    has_empty_windows,
    is_unpooled_twice,
    refuse_where,
)
from ..axes import FIRST, Images
from ..calls import Call, NoRule
from ..entry import define, formula_of, reverse_of
from ..kernels import by_kernel
from ..shared import ops

for name in ("pool2d", "pool3d"):
    define(name, axes=Images(), differentiable=(0,))
WITH_INDEX = "max_pool2d_with_index", "max_pool3d_with_index"
for name in WITH_INDEX:
    define(
        name,
        axes=Images(),
        differentiable=(0,),
        fixed=(1,),
        tape=refuse_where(
            name, EMPTY_WINDOWS, has_empty_windows, integer_results.detach_indices
        ),
    )
for name in ("fractional_max_pool2d", "fractional_max_pool3d"):
    define(name, axes=FIRST, differentiable=(0,), fixed=(1,), random=True)
by_kernel("pool2d", "pool3d", *WITH_INDEX)
by_kernel("fractional_max_pool2d", "fractional_max_pool3d")
define("lp_pool2d", differentiable=(0,), axes=Images())
by_kernel("lp_pool2d")
define(
    "unpool",
    differentiable=(0,),
    axes=Images(),
    tape=refuse_where("unpool", DUPLICATES, is_unpooled_twice),
)
define(
    "unpool3d",
    differentiable=(0,),
    axes=Images(),
    tape=refuse_where("unpool3d", DUPLICATES, is_unpooled_twice),
)

AXES = {"pool2d_grad": 2, "pool3d_grad": 3}


def gather_pixels(x: Tensor, index: Tensor) -> Tensor:
    """Take elements of the image of each sample and channel, by their index in it.

    Args:
        x: of shape ``[n, c, *size]``.
        index: of shape ``[n, c, *places]``, into the flattened image.
    """
    planes = x.shape[0] * x.shape[1]
    size = math.prod(x.shape[2:])
    starts = paddle.arange(planes, dtype="int64") * size
    index = ops.reshape(ops.cast(index, paddle.int64), [planes, -1])
    index = ops.reshape(index + ops.reshape(starts, [planes, 1]), [-1])
    return ops.gather(ops.reshape(x, [-1]), index, 0)


# Where each number came from is known, or found again.


@reverse_of(*WITH_INDEX)
def _max_pool_with_index_reverse(call: Call) -> list[Any]:
    """Leave out windows without a pixel, for which the kernel writes elsewhere."""
    x, *attrs = call.args
    mask, g = call.outputs[1], call.cotangent
    has_pixel = mask >= 0
    g = ops.where(has_pixel, g, paddle.zeros_like(g))
    mask = ops.where(has_pixel, mask, paddle.zeros_like(mask))
    kernel = getattr(ops, f"max_pool{x.ndim - 2}d_with_index_grad")
    return [kernel(x, mask, g, *attrs), *(None for _ in attrs)]


@reverse_of(
    *("max_pool2d_with_index_grad", "max_pool3d_with_index_grad"),
    *("fractional_max_pool2d_grad", "fractional_max_pool3d_grad"),
)
def _max_pool2d_with_index_grad_reverse(call: Call) -> list[Any]:
    _, mask, g, *attrs = call.args
    result = ops.reshape(gather_pixels(call.cotangent, mask), g.shape)
    return [None, None, result, *(None for _ in attrs)]


@reverse_of("pool2d_grad", "pool3d_grad")
def _pool2d_grad_reverse(call: Call) -> list[Any]:
    x, _, g, *attrs = call.args
    if 2 not in call.wanted:
        return [None] * len(call.args)
    name = "pool2d" if len(attrs[0]) == 2 else "pool3d"
    if attrs[6] == "avg":
        result = getattr(ops, name)(call.cotangent, *attrs)
    else:
        result = _gather_at_maxima(call.cotangent, x, g.shape, *attrs)
    return [None, None, result, *(None for _ in attrs)]


def _gather_at_maxima(
    u: Tensor,
    x: Tensor,
    shape: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int],
    ceil_mode: bool,
    exclusive: bool,
    layout: str,
    kind: str,
    is_global: bool,
    adaptive: bool,
    algorithm: str,
) -> Tensor:
    """Return the elements of u at the index of the maximum of x in each window."""
    if adaptive:  # of which Paddle's kernel makes the maximum of all
        raise NoRule("adaptive maxima by pool2d; use adaptive_max_pool2d")
    channels_last = not layout.startswith("NC")
    rank = len(kernel)
    if channels_last:
        to_first = [0, rank + 1, *range(1, rank + 1)]
        u, x = ops.transpose(u, to_first), ops.transpose(x, to_first)
    if not is_global:
        pairs = _paddings(x.shape[2:], kernel, strides, paddings, algorithm)
        padding_of_axes = [0] * 4 + [size for pair in pairs for size in pair]
        if any(padding_of_axes):
            u, x = (
                ops.pad(u, padding_of_axes, 0.0),
                ops.pad(x, padding_of_axes, PADDING_VALUE),
            )
    indexed = getattr(ops, f"max_pool{rank}d_with_index")
    mask = indexed(x, kernel, strides, [0] * rank, is_global, False, ceil_mode)[1]
    result = ops.reshape(gather_pixels(u, mask), mask.shape)
    if channels_last:
        result = ops.transpose(result, [0, *range(2, rank + 2), 1])
    if result.shape != [*shape]:
        raise NoRule("windows that these paddings give twice; pad before pooling")
    return result


PADDING_VALUE = -1e38
"""The padding, which is no maximum, and is above the kernel's start value."""


def _paddings(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int],
    algorithm: str,
) -> list[tuple[int, int]]:
    """Return the padding before and after each axis, by Paddle's algorithms."""
    if algorithm == "VALID":
        return [(0, 0) for _ in size]
    if algorithm == "SAME":
        sums = [
            max((-(-n // s) - 1) * s + k - n, 0)
            for n, k, s in zip(size, kernel, strides, strict=True)
        ]
        return [(p // 2, p - p // 2) for p in sums]
    if len(paddings) == len(size):
        return [(p, p) for p in paddings]
    return [*zip(paddings[::2], paddings[1::2], strict=True)]


# Powers.


@formula_of("lp_pool2d_grad", keeps_kernel=True)
def _lp_pool2d_grad_formula(
    x: Tensor, out: Tensor, out_grad: Tensor, *attrs: Any
) -> Tensor:
    *window_attrs, power = attrs
    kernel, strides, paddings, ceil_mode, _, layout, _, *others = window_attrs
    if not 0 < power < math.inf:
        raise NoRule(f"the power {power}; use max_pool2d for an infinite one")
    counts = ops.lp_pool2d(paddle.ones(x.shape, x.dtype), *window_attrs, 1.0)
    if (counts == 0).any():
        raise NoRule("windows that hold padding alone; use less of it")
    pool_attrs = (kernel, strides, paddings, ceil_mode, True, layout, "avg", *others)
    slope = out_grad * ops.pow(out, 1.0 - single(power)) * counts
    return ops.pow(x, power - 1.0) * ops.pool2d_grad(x, out, slope, *pool_attrs)


# The way back from pooling.


@reverse_of("unpool", "unpool3d")
def _unpool_reverse(call: Call) -> list[Any]:
    x, index, *attrs = call.args
    channels_first = attrs[-1].startswith("NC")
    if not channels_first:
        raise NoRule("channels in the last place; transpose before")
    # Of several that go to one place, the one that stays there.
    name = "unpool" if x.ndim == 4 else "unpool3d"
    indices = ops.reshape(paddle.arange(x.size, dtype="float64"), x.shape)
    scattered = getattr(ops, name)(indices, index, *attrs)
    is_last_written = ops.reshape(gather_pixels(scattered, index), x.shape) == indices
    result = ops.reshape(gather_pixels(call.cotangent, index), x.shape)
    return [
        result * ops.cast(is_last_written, result.dtype),
        None,
        *(None for _ in attrs),
    ]
