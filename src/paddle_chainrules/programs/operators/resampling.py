"""Images and sequences in other sizes, patches of them, and padding around them."""

from __future__ import annotations

from typing import Any

from paddle import Tensor

from .calls import Call
from .entry import define, reverse_of
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
