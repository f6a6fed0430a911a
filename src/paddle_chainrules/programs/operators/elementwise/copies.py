"""Operators that repeat values: copies, casts, constants of the same shape."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.interception import RAW
from ....paddle_side.rules import integer_results
from ..axes import ELEMENTS, IN_ORDER
from ..calls import BatchCall, Call
from ..entry import (
    batch_of,
    define,
    holds_for_complex,
    reverse_of,
)
from ..shared import ops

define("assign", alias=True, axes=IN_ORDER)
define("Tensor.clone", "x", alias=True, axes=IN_ORDER)
define("Tensor.contiguous", "x", alias=True, axes=IN_ORDER)
define("Tensor._tensor_use_gpudnn", "x use", alias=True)
define("Tensor.detach", "x", alias=True, differentiable=(), axes=IN_ORDER)
define(
    "Tensor.data",
    "x",
    run=paddle.Tensor.detach,
    alias=True,
    differentiable=(),
    axes=IN_ORDER,
)
define("share_data", "x", alias=True, differentiable=(), axes=IN_ORDER)
define(
    "cast",
    "x dtype",
    view=True,
    axes=ELEMENTS,
    linear=(0,),
    tape=integer_results.detach_integers,
)
define("copy", "x", run=RAW.assign, axes=IN_ORDER, linear=(0,))
"""A copy in new memory. Passes do not remove it."""
define(
    "stop_gradient",
    "x",
    run=paddle.Tensor.detach,
    view=True,
    differentiable=(),
    axes=IN_ORDER,
)
"""An operator that gradients do not pass. Passes do not remove it."""
holds_for_complex("assign", "copy", "cast", "Tensor.clone", "Tensor.contiguous")
holds_for_complex("Tensor._tensor_use_gpudnn")


@reverse_of(
    "assign", "copy", "Tensor.clone", "Tensor.contiguous", "Tensor._tensor_use_gpudnn"
)
def _assign_reverse(call: Call) -> list[Any]:
    return [call.cotangent, *(None for _ in call.args[1:])]


@reverse_of("cast")
def _cast_reverse(call: Call) -> list[Any]:
    x: Tensor = call.args[0]
    if not (x.is_floating_point() or x.is_complex()):
        return [None, None]
    return [ops.cast(call.cotangent, x.dtype), None]


@batch_of("copy")
def _copy_batch(call: BatchCall) -> list[Any]:
    return [ops.assign(call.args[0])]
