"""Parts of tensors."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from .calls import Call, NoRule
from .entry import define, holds_for_complex, reverse_of
from .shared import ops

define("slice", "x axes starts ends infer_flags decrease_axis", view=True)
define(
    "slice_grad",
    "x out_grad axes starts ends infer_flags decrease_axis",
    differentiable=(1,),
    shapes=(0,),
)
define("Tensor._getitem_dygraph", "x index", view=True)
define("gather", "x index axis", differentiable=(0,), defaults={"axis": 0})
define("index_select", "x index axis", differentiable=(0,))
define("embedding", "x weight padding_idx sparse", differentiable=(1,))
define(
    "put_along_axis", "x index values axis reduce include_self", differentiable=(0, 2)
)
holds_for_complex("slice", "slice_grad", "Tensor._getitem_dygraph")
holds_for_complex("gather", "index_select", "embedding")


@reverse_of("slice")
def _(call: Call) -> list[Any]:
    x, *where = call.args
    return [ops.slice_grad(x, call.cotangent, *where), *(None for _ in where)]


@reverse_of("slice_grad")
def _(call: Call) -> list[Any]:
    _, _, *where = call.args
    return [None, ops.slice(call.cotangent, *where), *(None for _ in where)]


def basic(index: Any, shape: list[int]) -> tuple[Any, ...] | None:
    """Axes, starts, ends, axes to drop, of an index of ints and slices of step one."""
    parts = [*index] if isinstance(index, tuple) else [index]
    if any(part is Ellipsis for part in parts):
        at = next(i for i, part in enumerate(parts) if part is Ellipsis)
        parts[at : at + 1] = [slice(None)] * (len(shape) - len(parts) + 1)
    axes, starts, ends, drop = [], [], [], []
    for axis, part in enumerate(parts):
        n = shape[axis] if axis < len(shape) else 0
        if type(part) is int:
            start = part % n if n else part
            axes.append(axis)
            starts.append(start)
            ends.append(start + 1)
            drop.append(axis)
        elif type(part) is slice and all(
            p is None or type(p) is int for p in (part.start, part.stop, part.step)
        ):
            start, stop, step = part.indices(n)
            if step != 1 or stop < start:
                return None
            if (start, stop) != (0, n):
                axes.append(axis)
                starts.append(start)
                ends.append(stop)
        else:
            return None
    return axes, starts, ends, [1] * len(axes), drop


@reverse_of("Tensor._getitem_dygraph")
def _(call: Call) -> list[Any]:
    x, index = call.args
    where = basic(index, x.shape)
    if where is None:
        raise NoRule("an index that is not of ints and slices; use paddle.gather")
    if not where[0]:
        return [ops.reshape(call.cotangent, x.shape), None]
    return [ops.slice_grad(x, call.cotangent, *where), None]


@reverse_of("gather", "index_select")
def _(call: Call) -> list[Any]:
    x, index, axis = call.args
    axis = int(axis) % x.ndim
    return [_scattered(x, index, call.cotangent, axis), None, None]


@reverse_of("embedding")
def _(call: Call) -> list[Any]:
    x, weight, padding_idx, _ = call.args
    g = ops.reshape(call.cotangent, [-1, weight.shape[1]])
    index = ops.reshape(x, [-1])
    if padding_idx != -1:
        kept = ops.cast(index != padding_idx, g.dtype)
        g = g * ops.unsqueeze(kept, [1])
    return [None, _scattered(weight, index, g, 0), None, None]


def _scattered(x: Tensor, index: Tensor, g: Tensor, axis: int) -> Tensor:
    if g.is_complex():  # Paddle adds real numbers alone
        parts = ops.as_real(paddle.zeros_like(x)), index, ops.as_real(g)
        return ops.as_complex(ops.index_add(*parts, axis))
    return ops.index_add(paddle.zeros_like(x), index, g, axis)


define("index_add", "x index add_value axis", differentiable=(0, 2))


@reverse_of("index_add")
def _(call: Call) -> list[Any]:
    _, index, _, axis = call.args
    return [
        call.cotangent,
        None,
        ops.index_select(call.cotangent, index, axis) if 2 in call.wanted else None,
        None,
    ]
