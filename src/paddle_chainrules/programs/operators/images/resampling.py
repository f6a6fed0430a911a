"""Images and sequences in other sizes, patches of them, and padding around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from ....paddle_side.autograd.grad_mode import grad_mode
from ....paddle_side.interception import RAW
from ....paddle_side.rules.wrong_at_values import refuse_where
from ..axes import FIRST, Images
from ..calls import Call, NoRule
from ..entry import TABLE, define, formula_of, reverse_of
from ..kernels import linear_in_first
from ..shared import ops

RESAMPLING = (
    *("linear_interp", "bilinear_interp", "nearest_interp", "bicubic_interp"),
    *("trilinear_interp", "interp_antialias"),
)


def is_linear_interp_wrong(y: Tensor, x: Tensor, *attrs: Any, **_: Any) -> bool:
    """Tell whether Paddle's gradient has the first pixel alone for the only result."""
    corners, mode = attrs[-2:]
    return not corners and mode == 0 and 1 in (y.shape[-1], y.shape[1])


TAPES = {
    "linear_interp": refuse_where(
        "linear_interp", "for one pixel", is_linear_interp_wrong
    )
}
for name in (*RESAMPLING, "unfold", "fold"):
    define(name, axes=Images(), differentiable=(0,), tape=TAPES.get(name))
define("affine_grid", axes=FIRST, differentiable=(0,))
define("pad3d", differentiable=(0, 3), axes=Images(3))
linear_in_first(*RESAMPLING, "affine_grid", "unfold", "fold")
linear_in_first("pad3d", pad_value=0.0)


def _linear_interp_grad(x: Tensor, *attrs: Any) -> Any:
    """Return Paddle's gradient, or where that is wrong the weights times cotangents."""
    *sizes, g, layout = attrs[:5]
    axis = 2 if layout.startswith("NC") else 1
    if attrs[-2] or attrs[-1] != 0 or g.shape[axis] != 1:
        return RAW.linear_interp_grad(x, *attrs)
    width = x.shape[axis]
    with grad_mode(False):
        units = paddle.eye(width, dtype=x.dtype).unsqueeze(0)
        weights = RAW.linear_interp(units, *sizes, "NCHW", *attrs[5:])
        return g * weights.reshape([1] * axis + [width] + [1] * (2 - axis))


def _linear_interp_reverse(call: Call) -> list[Any]:
    x, *attrs = call.args
    args = x, *attrs[:3], call.cotangent, *attrs[3:]
    return [TABLE["linear_interp_grad"].bind(args)[0], *(None for _ in attrs)]


TABLE["linear_interp"].reverse = _linear_interp_reverse
TABLE["linear_interp_grad"].run = _linear_interp_grad


def _repeats(size: list[int], attrs: Any) -> list[int]:
    """Return how often each pixel of an image is repeated along each axis.

    Raises:
        NoRule: pixels are repeated different numbers of times.
    """
    data_format, _, height, width, scale, kind, corners, _ = attrs
    out_size = [height, width]
    if data_format != "NCHW" or len(size) != 2 or corners or kind != "nearest":
        raise NoRule("another kind of resampling than nearest; use that for a formula")
    if scale:
        out_size = [int(n * s) for n, s in zip(size, scale, strict=True)]
    for n, m in zip(size, out_size, strict=True):
        sources = np.arange(m, dtype=np.float32) * np.float32(np.float32(n) / m)
        if m % n or (sources.astype(int) != np.arange(m) // (m // n)).any():
            raise NoRule(
                "a size that is no multiple; give a whole number as scale_factor"
            )
    return [m // n for n, m in zip(size, out_size, strict=True)]


@formula_of("nearest_interp")
def _nearest_interp_formula(x: Tensor, *attrs: Any) -> Tensor:
    if any(isinstance(size, Tensor | list) for size in attrs[:3]):
        raise NoRule("a size that is in a tensor; give numbers")
    if x.ndim != 4:
        raise NoRule("images of another rank; the operator itself has them")
    n, channels, height, width = x.shape
    repeat_y, repeat_x = _repeats([height, width], attrs[3:])
    split = ops.reshape(x, [n, channels, height, 1, width, 1])
    repeated = ops.expand(split, [n, channels, height, repeat_y, width, repeat_x])
    return ops.reshape(repeated, [n, channels, height * repeat_y, width * repeat_x])


@formula_of("nearest_interp_grad")
def _nearest_interp_grad_formula(x: Tensor, *attrs: Any) -> Tensor:
    *sizes, g = attrs[:4]
    if any(isinstance(size, Tensor | list) for size in sizes):
        raise NoRule("a size that is in a tensor; give numbers")
    if x.ndim != 4:
        raise NoRule("images of another rank; the operator itself has them")
    n, channels, height, width = x.shape
    repeat_y, repeat_x = _repeats([height, width], attrs[4:])
    blocks = ops.reshape(g, [n, channels, height, repeat_y, width, repeat_x])
    return ops.sum(blocks, [3, 5], None, False)


def _axis_paddings(x: Tensor, paddings: Any, mode: str, layout: str) -> list[Any]:
    """Return each dimension with the padding before and after it.

    Raises:
        NoRule: the padding is another value.
    """
    if mode == "constant" or layout != "NCDHW" or type(paddings) is not list:
        raise NoRule("padding by a number; pad has it")
    pairs = [*zip(paddings[::2], paddings[1::2], strict=True)][::-1]
    return [(2 + k, *pair) for k, pair in enumerate(pairs) if any(pair)]


def _slice_from(x: Tensor, axis: int, start: int, count: int) -> Tensor:
    """Return a slice of an axis by its start and length."""
    return ops.slice(x, [axis], [start], [start + count], [1], [])


def _border_starts(mode: str, size: int, before: int, after: int) -> tuple[int, int]:
    """Return the starts of the slices that pad a dimension before and after."""
    if mode == "reflect":
        return 1, size - 1 - after
    return size - before, 0


@formula_of("pad3d")
def _pad3d_formula(
    x: Tensor, paddings: Any, mode: str, value: Any, layout: str
) -> Tensor:
    """Pad along one dimension after another."""
    for axis, before, after in _axis_paddings(x, paddings, mode, layout):
        size, segments = x.shape[axis], [x]
        if mode == "replicate":
            edge_shape = [*x.shape]
            for start, count, slot in ((0, before, 0), (size - 1, after, 2)):
                edge_shape[axis] = count
                if count:
                    edge = ops.expand(_slice_from(x, axis, start, 1), edge_shape)
                    segments.insert(slot, edge)
        else:
            starts = _border_starts(mode, size, before, after)
            for start, count, slot in zip(starts, (before, after), (0, 2), strict=True):
                if count:
                    segment = _slice_from(x, axis, start, count)
                    segment = (
                        ops.flip(segment, [axis]) if mode == "reflect" else segment
                    )
                    segments.insert(slot, segment)
        x = ops.concat(segments, axis)
    return x


@formula_of("pad3d_grad")
def _pad3d_grad_formula(
    x: Tensor, out_grad: Tensor, paddings: Any, mode: str, value: Any, layout: str
) -> Tensor:
    g = out_grad
    for axis, before, after in _axis_paddings(x, paddings, mode, layout)[::-1]:
        size = x.shape[axis]
        inner = _slice_from(g, axis, before, size)
        if mode == "replicate":
            sources, source_counts = (0, size - 1), (1, 1)
        else:
            sources, source_counts = (
                _border_starts(mode, size, before, after),
                (before, after),
            )
        starts = (0, before + size)
        for source, source_count, start, count in zip(
            sources, source_counts, starts, (before, after), strict=True
        ):
            if not count:
                continue
            segment = _slice_from(g, axis, start, count)
            if mode == "reflect":
                segment = ops.flip(segment, [axis])
            if mode == "replicate":
                segment = ops.sum(segment, [axis], None, True)
            padding_of_axes = [0] * (2 * g.ndim)
            padding_of_axes[2 * axis : 2 * axis + 2] = [
                source,
                size - source - source_count,
            ]
            inner = inner + ops.pad(segment, padding_of_axes, 0.0)
        g = inner
    return g


@reverse_of("pad3d")
def _pad3d_reverse(call: Call) -> list[Any]:
    x, paddings, mode, value, layout = call.args
    g = call.cotangent
    inner = ops.pad3d_grad(x, g, paddings, mode, 0.0, layout)
    value_grad = None
    if 3 in call.wanted and mode == "constant":
        value_grad = ops.reshape(_sum_all(g) - _sum_all(inner), value.shape)
    return [inner, None, None, value_grad, None]


def _sum_all(x: Tensor) -> Tensor:
    return ops.sum(x, [], None, False)
