"""Results of in-place operators, in memory of their own."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.index_lists import squeeze_leading_ones
from ....paddle_side.interception import RAW
from ..calls import Call, NoRule
from ..entry import (
    TABLE,
    define,
    formula_of,
    holds_for_complex,
    overwrites,
    reverse_of,
)
from ..shared import ops, summed_to
from .brackets import Indexed, basic
from .putting import last_written, masked

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
    _set(x, index, squeeze_leading_ones(x, index, value))
    return x


_ITEM = define(
    "Tensor._setitem_dygraph",
    "x index value",
    run=_with_item,
    axes=Indexed(batches=False),
)
_ITEM.in_place[0] = _over_item, (0, 1, 2)
holds_for_complex("Tensor._setitem_dygraph")


def _tensors(index: Any) -> list[Tensor]:
    parts = index if isinstance(index, tuple | list) else (index,)
    return [part for part in parts if isinstance(part, Tensor)]


@reverse_of("Tensor._setitem_dygraph")
def _setitem_reverse(call: Call) -> list[Any]:
    _, index, value = call.args
    g = call.cotangent
    by_x = by_value = None
    if 0 in call.wanted:
        by_x = _ITEM.every([g, index, 0.0])[0]
    if 2 in call.wanted:
        by_value = summed_to(_taken(g, index), value)
    return [by_x, None, by_value]


@formula_of("Tensor._setitem_dygraph")
def _setitem_formula(x: Tensor, index: Any, value: Any) -> Tensor:
    """Write by a mask, or by slices."""
    parts = index if isinstance(index, tuple | list) else (index,)
    is_number = type(value) in (int, float)
    if [getattr(part, "dtype", None) for part in parts] == [paddle.bool]:
        if not is_number or parts[0].shape != x.shape:
            raise NoRule("a mask of another shape; use paddle.where")
        return ops.masked_fill(x, parts[0], paddle.full([], value, x.dtype))
    where = None if _tensors(index) else basic(index, x.shape)
    if where is None or where.has_new or len(where.drop) == x.ndim:
        raise NoRule("such an index; put the values by another operator")
    if is_number:
        value = paddle.full([1], value, x.dtype)
    elif not isinstance(value, Tensor) or value.dtype != x.dtype:
        raise NoRule("a value of another dtype; cast it")
    axes, starts, ends, steps, drop, *_ = where
    if not all(map(len, map(range, starts, ends, steps))):  # nothing is written
        return ops.assign(x)
    return ops.set_value_with_tensor(x, value, starts, ends, steps, axes, drop, [])


def _taken(g: Tensor, index: Any) -> Tensor:
    """Return the cotangents of the written values; zero where they were overwritten."""
    requested = _tensors(index)
    if any(part.dtype == paddle.bool for part in requested):
        raise NoRule("an assigned tensor where the index is a mask; use paddle.where")
    result = _items(g, index)
    if not requested:
        return result
    zeros = paddle.zeros(g.shape, "int64")
    last = last_written(
        result.shape,
        lambda numbers: _ITEM.every([zeros, index, numbers])[0],
        lambda owner: _items(owner, index),
    )
    return masked(result, last)


def _items(x: Tensor, index: Any) -> Tensor:
    """Return ``x[index]``, also of an x with gaps, where Paddle alone is wrong."""
    result: Tensor = TABLE["Tensor._getitem_dygraph"].every([x, index])[0]
    return result


define("fill_diagonal", differentiable=(0,))
overwrites("fill_diagonal", "fill_diagonal_", 0)


@reverse_of("fill_diagonal")
def _fill_diagonal_reverse(call: Call) -> list[Any]:
    _, _, *attrs = call.args
    return [
        TABLE["fill_diagonal"].every([call.cotangent, 0.0, *attrs])[0],
        *(None for _ in range(3)),
    ]


for name in ("uniform_inplace", "gaussian_inplace"):
    define(name, random=True, differentiable=())
