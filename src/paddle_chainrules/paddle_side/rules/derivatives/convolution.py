"""Convolutions with derivatives of every order, as matrix products of patches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from .every_order import gathered, placed, scattered


def convolution(
    x: Tensor,
    weight: Tensor,
    strides: Sequence[int],
    paddings: Sequence[int],
    algorithm: str,
    dilations: Sequence[int],
    groups: int,
    data_format: str,
) -> Tensor:
    """What ``conv2d`` and ``conv3d`` give; weight of shape [out, in / groups, ...]."""
    if not data_format.startswith("NC"):
        x = x.moveaxis(-1, 1)
    size, kernel = tuple(x.shape[2:]), tuple(weight.shape[2:])
    pads, dilations = _padding(size, kernel, strides, paddings, algorithm, dilations)
    index, out = _patches(size, kernel, tuple(strides), pads, dilations)
    n, channels = x.shape[:2]
    count, length = math.prod(kernel), math.prod(out)
    rows = placed(
        x.reshape([n * channels, math.prod(size)]), 1, 0, 1
    )  # a zero for the padding
    patches = gathered(rows, paddle.to_tensor(index, place=x.place))
    patches = patches.reshape([n, groups, channels // groups * count, length])
    depth = channels // groups * count
    columns = patches.transpose([1, 2, 0, 3]).reshape([groups, depth, n * length])
    rows = weight.reshape([groups, weight.shape[0] // groups, depth])
    y = paddle.matmul(rows, columns)
    y = y.reshape([weight.shape[0], n, *out])
    y = y.transpose([1, 0, *range(2, y.ndim)])
    return y if data_format.startswith("NC") else y.moveaxis(1, -1)


def transposed_convolution(
    x: Tensor,
    weight: Tensor,
    strides: Sequence[int],
    paddings: Sequence[int],
    output_padding: Sequence[int],
    output_size: Any,
    algorithm: str,
    groups: int,
    dilations: Sequence[int],
    data_format: str,
) -> Tensor | None:
    """What ``conv2d_transpose`` gives; weight of shape [in, out / groups, ...]."""
    if algorithm != "EXPLICIT" or (isinstance(output_size, Tensor)):
        return None
    if not data_format.startswith("NC"):
        x = x.moveaxis(-1, 1)
    size, kernel = tuple(x.shape[2:]), tuple(weight.shape[2:])
    pads, _ = _padding(size, kernel, strides, paddings, algorithm, dilations)
    more = [*output_padding] or [0] * len(size)
    whole = [
        (s - 1) * stride - low - high + d * (k - 1) + 1 + extra
        for s, stride, (low, high), d, k, extra in zip(
            size, strides, pads, dilations, kernel, more, strict=True
        )
    ]
    if output_size:
        whole = [int(n) for n in output_size]
    index, _ = _patches(
        tuple(whole), kernel, tuple(strides), pads, tuple(dilations), size
    )
    n, channels = x.shape[:2]
    outputs = weight.shape[1] * groups
    length = math.prod(size)
    columns = x.reshape([n, groups, channels // groups, length])
    columns = columns.transpose([1, 2, 0, 3]).reshape([groups, -1, n * length])
    rows = weight.reshape([groups, channels // groups, -1]).transpose([0, 2, 1])
    patches = paddle.matmul(rows, columns)
    patches = patches.reshape([outputs, -1, n, length]).transpose([2, 0, 1, 3])
    total = math.prod(whole)
    y = scattered(
        patches.reshape([n * outputs, -1]),
        paddle.to_tensor(index, place=x.place),
        total + 1,
    )
    y = paddle.slice(y, [1], [0], [total]).reshape([n, outputs, *whole])
    return y if data_format.startswith("NC") else y.moveaxis(1, -1)


def _padding(
    size: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    paddings: Sequence[int],
    algorithm: str,
    dilations: Sequence[int],
) -> tuple[tuple[tuple[int, int], ...], tuple[int, ...]]:
    """Before and after each axis, and the dilations, as Paddle's algorithms say."""
    if algorithm == "VALID":
        return ((0, 0),) * len(size), tuple(dilations)
    if algorithm == "SAME":
        sums = [
            max((-(-n // s) - 1) * s + k - n, 0)
            for n, k, s in zip(size, kernel, strides, strict=True)
        ]
        return tuple((p // 2, p - p // 2) for p in sums), (1,) * len(size)
    if len(paddings) == len(size):
        return tuple((p, p) for p in paddings), tuple(dilations)
    pairs = zip(paddings[::2], paddings[1::2], strict=True)
    return tuple(pairs), tuple(dilations)


@lru_cache(maxsize=64)
def _patches(
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    pads: tuple[tuple[int, int], ...],
    dilations: tuple[int, ...],
    out: tuple[int, ...] | None = None,
) -> tuple[np.ndarray[Any, Any], tuple[int, ...]]:
    """Where the entries of all patches are in a flattened image, and how many patches.

    Offsets in the kernel first, then positions of the patch; what is outside is at the
    place after the last.
    """
    if out is None:
        out = tuple(
            (n + low + high - d * (k - 1) - 1) // s + 1
            for n, k, s, (low, high), d in zip(
                size, kernel, strides, pads, dilations, strict=True
            )
        )
    axes = len(size)
    flat: Any = np.zeros((1,) * (2 * axes), np.int64)
    inside: Any = np.ones((1,) * (2 * axes), bool)
    for i in range(axes):
        offsets = dilations[i] * np.arange(kernel[i])[:, None]
        places = offsets + strides[i] * np.arange(out[i])[None, :] - pads[i][0]
        shape = [1] * (2 * axes)
        shape[i], shape[axes + i] = kernel[i], out[i]
        places = places.reshape(shape)
        flat = flat * size[i] + places
        inside = inside & (places >= 0) & (places < size[i])
    return np.where(inside, flat, math.prod(size)).reshape(-1), out


def ordered(*order: int) -> Callable[..., Any]:
    """As :func:`convolution`, whose arguments an operator has in another order."""

    def formula(*args: Any) -> Tensor:
        return convolution(*(args[i] for i in order))

    return formula
