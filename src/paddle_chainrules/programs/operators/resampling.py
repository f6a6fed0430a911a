"""Images and sequences in other sizes, patches of them, and padding around them."""

from __future__ import annotations

from typing import Any

import numpy as np
from paddle import Tensor

from .calls import Call, NoRule
from .entry import define, formula_of, reverse_of
from .kernels import linear
from .shared import ops

RESAMPLING = (
    *("linear_interp", "bilinear_interp", "nearest_interp", "bicubic_interp"),
    *("trilinear_interp", "interp_antialias"),
)
for name in (*RESAMPLING, "affine_grid", "unfold", "fold"):
    define(name, differentiable=(0,))
define("pad3d", differentiable=(0, 3))
linear(*RESAMPLING, "affine_grid", "unfold", "fold")
linear("pad3d", pad_value=0.0)


def _repeats(size: list[int], how: Any) -> list[int]:
    """How often each number of an image is repeated along each axis.

    Raises:
        NoRule: not each as often.
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
def _(x: Tensor, *how: Any) -> Tensor:
    if any(isinstance(part, Tensor | list) for part in how[:3]):
        raise NoRule("a size that is in a tensor; give numbers")
    n, channels, height, width = x.shape
    down, along = _repeats([height, width], how[3:])
    apart = ops.reshape(x, [n, channels, height, 1, width, 1])
    repeated = ops.expand(apart, [n, channels, height, down, width, along])
    return ops.reshape(repeated, [n, channels, height * down, width * along])


@formula_of("nearest_interp_grad")
def _(x: Tensor, *how: Any) -> Tensor:
    *others, g = how[:4]
    if any(isinstance(part, Tensor | list) for part in others):
        raise NoRule("a size that is in a tensor; give numbers")
    n, channels, height, width = x.shape
    down, along = _repeats([height, width], how[4:])
    parts = ops.reshape(g, [n, channels, height, down, width, along])
    return ops.sum(parts, [3, 5], None, False)


@reverse_of("pad3d")
def _(call: Call) -> list[Any]:
    x, paddings, mode, value, layout = call.args
    g = call.cotangent
    inner = ops.pad3d_grad(x, g, paddings, mode, 0.0, layout)
    by_value = None
    if 3 in call.wanted and mode == "constant":
        by_value = ops.reshape(_total(g) - _total(inner), value.shape)
    return [inner, None, None, by_value, None]


def _total(x: Tensor) -> Tensor:
    return ops.sum(x, [], None, False)
