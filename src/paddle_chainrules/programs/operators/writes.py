"""What operators in place write, as results in memory of their own."""

from __future__ import annotations

import math
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.interception import RAW
from .calls import Call, NoRule
from .entry import TABLE, define, overwrites, reverse_of
from .shared import ops, summed_to

_set: Any = vars(paddle.Tensor)["_setitem_dygraph"]


def _with_item(x: Tensor, index: Any, value: Any) -> Tensor:
    return _over_item(RAW.assign(x), index, value)


def _over_item(x: Tensor, index: Any, value: Any) -> Tensor:
    parts = index if isinstance(index, tuple) else (index,)
    if _tensors(index) and any(part is None for part in parts):
        raise NotImplementedError(
            "x[None, index] = y with a tensor as an index ends Paddle's process; "
            "assign without the new axis"
        )
    _set(x, index, value)
    return x


define("Tensor._setitem_dygraph", "x index value", run=_with_item, complex=True)
TABLE["Tensor._setitem_dygraph"].in_place[0] = _over_item, (0, 1, 2)


def _tensors(index: Any) -> list[Tensor]:
    parts = index if isinstance(index, tuple | list) else (index,)
    return [part for part in parts if isinstance(part, Tensor)]


@reverse_of("Tensor._setitem_dygraph")
def _(call: Call) -> list[Any]:
    _, index, value = call.args
    g = call.cotangent
    by_x = by_value = None
    if 0 in call.wanted:
        by_x = TABLE["Tensor._setitem_dygraph"].every([g, index, 0.0])[0]
    if 2 in call.wanted:
        by_value = summed_to(_taken(g, index, value), value)
    return [by_x, None, by_value]


def _taken(g: Tensor, index: Any, value: Tensor) -> Tensor:
    """Of what was written, the cotangents; zero where it was written over again."""
    asked = _tensors(index)
    if any(part.dtype == paddle.bool for part in asked):
        raise NoRule("an assigned tensor where the index is a mask; use paddle.where")
    found = g[index]
    if not asked:
        return found
    item = TABLE["Tensor._setitem_dygraph"]
    slots = paddle.arange(math.prod(found.shape)).reshape(found.shape)
    (owner,) = item.every([paddle.full(g.shape, -1, "int64"), index, slots])
    return ops.where(owner[index] == slots, found, paddle.zeros_like(found))


define("fill_diagonal", differentiable=(0,))
overwrites("fill_diagonal", "fill_diagonal_", 0)


@reverse_of("fill_diagonal")
def _(call: Call) -> list[Any]:
    _, _, *how = call.args
    return [
        TABLE["fill_diagonal"].every([call.cotangent, 0.0, *how])[0],
        *(None for _ in range(3)),
    ]


for name in ("uniform_inplace", "gaussian_inplace"):
    define(name, random=True, differentiable=())
