"""Images and sequences in other sizes, patches of them, and padding around them."""

from __future__ import annotations

from typing import Any

import numpy as np
from paddle import Tensor

from ..axes import FIRST
from ..calls import Call, NoRule
from ..entry import define, formula_of, reverse_of
from ..kernels import linear_in_first
from ..shared import ops

RESAMPLING = (
    *("linear_interp", "bilinear_interp", "nearest_interp", "bicubic_interp"),
    *("trilinear_interp", "interp_antialias"),
)
for name in (*RESAMPLING, "affine_grid", "unfold", "fold"):
    define(name, axes=FIRST, differentiable=(0,))
define("pad3d", differentiable=(0, 3), axes=FIRST)
linear_in_first(*RESAMPLING, "affine_grid", "unfold", "fold")
linear_in_first("pad3d", pad_value=0.0)


def _repeats(size: list[int], how: Any) -> list[int]:
    """Return how often each pixel of an image is repeated along each axis.

    Raises:
        NoRule: pixels are repeated different numbers of times.
    """
    data_format, _, height, width, scale, kind, corners, _ = how
    wanted = [height, width]
    if data_format != "NCHW" or len(size) != 2 or corners or kind != "nearest":
        raise NoRule("another kind of resampling than nearest; use that for a formula")
    if scale:
        wanted = [int(n * s) for n, s in zip(size, scale, strict=True)]
    for n, m in zip(size, wanted, strict=True):
        places = np.arange(m, dtype=np.float32) * np.float32(np.float32(n) / m)
        if m % n or (places.astype(int) != np.arange(m) // (m // n)).any():
            raise NoRule(
                "a size that is no multiple; give a whole number as scale_factor"
            )
    return [m // n for n, m in zip(size, wanted, strict=True)]


@formula_of("nearest_interp")
def _nearest_interp_formula(x: Tensor, *how: Any) -> Tensor:
    if any(isinstance(part, Tensor | list) for part in how[:3]):
        raise NoRule("a size that is in a tensor; give numbers")
    n, channels, height, width = x.shape
    down, along = _repeats([height, width], how[3:])
    apart = ops.reshape(x, [n, channels, height, 1, width, 1])
    repeated = ops.expand(apart, [n, channels, height, down, width, along])
    return ops.reshape(repeated, [n, channels, height * down, width * along])


@formula_of("nearest_interp_grad")
def _nearest_interp_grad_formula(x: Tensor, *how: Any) -> Tensor:
    *others, g = how[:4]
    if any(isinstance(part, Tensor | list) for part in others):
        raise NoRule("a size that is in a tensor; give numbers")
    n, channels, height, width = x.shape
    down, along = _repeats([height, width], how[4:])
    parts = ops.reshape(g, [n, channels, height, down, width, along])
    return ops.sum(parts, [3, 5], None, False)


def _around(x: Tensor, paddings: Any, mode: str, layout: str) -> list[Any]:
    """Return each dimension with the padding before and after it.

    Raises:
        NoRule: the padding is another value.
    """
    if mode == "constant" or layout != "NCDHW" or type(paddings) is not list:
        raise NoRule("padding by a number; pad has it")
    pairs = [*zip(paddings[::2], paddings[1::2], strict=True)][::-1]
    return [(2 + k, *pair) for k, pair in enumerate(pairs) if any(pair)]


def _end(x: Tensor, axis: int, start: int, count: int) -> Tensor:
    """Return this many places from one on."""
    return ops.slice(x, [axis], [start], [start + count], [1], [])


def _borders(mode: str, size: int, before: int, after: int) -> tuple[int, int]:
    """Return where the repeated parts before and after a dimension begin."""
    if mode == "reflect":
        return 1, size - 1 - after
    return size - before, 0


@formula_of("pad3d")
def _pad3d_formula(
    x: Tensor, paddings: Any, mode: str, value: Any, layout: str
) -> Tensor:
    """Pad along one dimension after another."""
    for axis, before, after in _around(x, paddings, mode, layout):
        size, parts = x.shape[axis], [x]
        if mode == "replicate":
            wide = [*x.shape]
            for place, count, at in ((0, before, 0), (size - 1, after, 2)):
                wide[axis] = count
                if count:
                    edge = ops.expand(_end(x, axis, place, 1), wide)
                    parts.insert(at, edge)
        else:
            places = _borders(mode, size, before, after)
            for place, count, at in zip(places, (before, after), (0, 2), strict=True):
                if count:
                    part = _end(x, axis, place, count)
                    part = ops.flip(part, [axis]) if mode == "reflect" else part
                    parts.insert(at, part)
        x = ops.concat(parts, axis)
    return x


@formula_of("pad3d_grad")
def _pad3d_grad_formula(
    x: Tensor, out_grad: Tensor, paddings: Any, mode: str, value: Any, layout: str
) -> Tensor:
    g = out_grad
    for axis, before, after in _around(x, paddings, mode, layout)[::-1]:
        size = x.shape[axis]
        result = _end(g, axis, before, size)
        if mode == "replicate":
            places, ends = (0, size - 1), (1, 1)
        else:
            places, ends = _borders(mode, size, before, after), (before, after)
        starts = (0, before + size)
        for place, end, start, count in zip(
            places, ends, starts, (before, after), strict=True
        ):
            if not count:
                continue
            part = _end(g, axis, start, count)
            if mode == "reflect":
                part = ops.flip(part, [axis])
            if mode == "replicate":
                part = ops.sum(part, [axis], None, True)
            around = [0] * (2 * g.ndim)
            around[2 * axis : 2 * axis + 2] = [place, size - place - end]
            result = result + ops.pad(part, around, 0.0)
        g = result
    return g


@reverse_of("pad3d")
def _pad3d_reverse(call: Call) -> list[Any]:
    x, paddings, mode, value, layout = call.args
    g = call.cotangent
    inner = ops.pad3d_grad(x, g, paddings, mode, 0.0, layout)
    by_value = None
    if 3 in call.wanted and mode == "constant":
        by_value = ops.reshape(_total(g) - _total(inner), value.shape)
    return [inner, None, None, by_value, None]


def _total(x: Tensor) -> Tensor:
    return ops.sum(x, [], None, False)
