"""Fourier transforms, and signals in frames that overlap."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from .axes import AxesArgument
from .calls import Call, NoRule
from .entry import define, holds_for_complex, reverse_of
from .shared import ops

define(
    "fft_c2c",
    "x axes normalization forward",
    axes=AxesArgument("axes", depends_on_size=True),
)
define(
    "fft_r2c",
    "x axes normalization forward onesided",
    axes=AxesArgument("axes", depends_on_size=True),
)
define(
    "fft_c2r",
    "x axes normalization forward last_dim_size",
    axes=AxesArgument("axes", depends_on_size=True),
)
define("frame", "x frame_length hop_length axis")
define("overlap_add", "x hop_length axis")
holds_for_complex("fft_c2c", "fft_r2c", "fft_c2r", "frame", "overlap_add")

OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}
"""The normalization that gives the opposite transform the same factor."""


@reverse_of("fft_c2c")
def _fft_c2c_reverse(call: Call) -> list[Any]:
    _, axes, norm, forward = call.args
    grad = ops.fft_c2c(call.cotangent, axes, OPPOSITE[norm], not forward)
    return [grad, None, None, None]


@reverse_of("fft_r2c")
def _fft_r2c_reverse(call: Call) -> list[Any]:
    x, axes, norm, forward, onesided = call.args
    g, attrs = call.cotangent, (OPPOSITE[norm], not forward)
    if onesided:
        size = x.shape[axes[-1]]
        if not size:
            raise NoRule("a signal of length zero; leave it out")
        grad = ops.fft_c2r(g / _weights(g, axes[-1], size), axes, *attrs, size)
    else:
        grad = ops.real(ops.fft_c2c(g, axes, *attrs))
    return [grad, None, None, None, None]


@reverse_of("fft_c2r")
def _fft_c2r_reverse(call: Call) -> list[Any]:
    x, axes, norm, forward, _ = call.args
    g, last = call.cotangent, axes[-1]
    size = g.shape[last]
    if x.shape[last] != size // 2 + 1:
        raise NoRule(
            f"a half spectrum of {x.shape[last]} numbers for a signal of {size}; slice "
            f"it to {size // 2 + 1}"
        )
    half = ops.fft_r2c(g, axes, OPPOSITE[norm], not forward, True)
    return [half * _weights(half, last, size), None, None, None, None]


def _weights(half: Tensor, axis: int, size: int) -> Tensor:
    """Return how often each entry of half a spectrum occurs in the whole one.

    Args:
        size: of the signal, along the axis.
    """
    twice = (size - 1) // 2
    counts = [paddle.full([1], 1.0, half.dtype)]
    if twice:
        counts.append(paddle.full([twice], 2.0, half.dtype))
    if size % 2 == 0:
        counts.append(paddle.full([1], 1.0, half.dtype))
    shape = [1] * half.ndim
    shape[axis] = size // 2 + 1
    return ops.reshape(ops.concat(counts, 0), shape)


@reverse_of("frame")
def _frame_reverse(call: Call) -> list[Any]:
    x, length, hop, axis = call.args
    g = call.cotangent
    if length < hop:  # as frames that touch, which is the least Paddle adds up
        g = _padded_at_end(g, hop - length, 1 if axis == 0 else g.ndim - 2)
    g = ops.overlap_add(g, hop, axis)
    axis %= x.ndim
    missing = x.shape[axis] - g.shape[axis]
    if missing < 0:
        g = ops.slice(g, [axis], [0], [x.shape[axis]], [1], [])
    elif missing:
        g = _padded_at_end(g, missing, axis)
    return [g, None, None, None]


def _padded_at_end(x: Tensor, count: int, axis: int) -> Tensor:
    """Append this many zeros along an axis."""
    paddings = [0] * (2 * x.ndim)
    paddings[2 * axis + 1] = count
    return ops.pad(x, paddings, 0.0)


@reverse_of("overlap_add")
def _overlap_add_reverse(call: Call) -> list[Any]:
    x, hop, axis = call.args
    length = x.shape[1 if axis == 0 else -2]
    return [ops.frame(call.cotangent, length, hop, axis), None, None]
