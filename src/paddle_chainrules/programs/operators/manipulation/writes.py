"""In-place operators as operators with results in new memory."""

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
from .brackets import Indexed, parse_basic_index
from .scattering import last_write_mask, masked

_raw_setitem: Any = vars(paddle.Tensor)["_setitem_dygraph"]


def _set_item_of_copy(x: Tensor, index: Any, value: Any) -> Tensor:
    return _set_item_in_place(RAW.assign(x), index, value)


def _set_item_in_place(x: Tensor, index: Any, value: Any) -> Tensor:
    entries = index if isinstance(index, tuple) else (index,)
    if _index_tensors(index) and any(entry is None for entry in entries):
        raise NotImplementedError(
            "x[None, index] = y with a tensor as an index ends Paddle's process; "
            "assign without the new axis"
        )
    _raw_setitem(x, index, squeeze_leading_ones(x, index, value))
    return x


_SET_ITEM = define(
    "Tensor._setitem_dygraph",
    "x index value",
    run=_set_item_of_copy,
    axes=Indexed(batches=False),
)
_SET_ITEM.in_place[0] = _set_item_in_place, (0, 1, 2)
holds_for_complex("Tensor._setitem_dygraph")


def _index_tensors(index: Any) -> list[Tensor]:
    entries = index if isinstance(index, tuple | list) else (index,)
    return [entry for entry in entries if isinstance(entry, Tensor)]


@reverse_of("Tensor._setitem_dygraph")
def _setitem_reverse(call: Call) -> list[Any]:
    _, index, value = call.args
    g = call.cotangent
    x_grad = value_grad = None
    if 0 in call.wanted:
        x_grad = _SET_ITEM.bind([g, index, 0.0])[0]
    if 2 in call.wanted:
        value_grad = summed_to(_value_cotangents(g, index), value)
    return [x_grad, None, value_grad]


@formula_of("Tensor._setitem_dygraph")
def _setitem_formula(x: Tensor, index: Any, value: Any) -> Tensor:
    """Write by a mask, or by slices."""
    entries = index if isinstance(index, tuple | list) else (index,)
    is_number = type(value) in (int, float)
    if [getattr(entry, "dtype", None) for entry in entries] == [paddle.bool]:
        if not is_number or entries[0].shape != x.shape:
            raise NoRule("a mask of another shape; use paddle.where")
        return ops.masked_fill(x, entries[0], paddle.full([], value, x.dtype))
    parsed = None if _index_tensors(index) else parse_basic_index(index, x.shape)
    if parsed is None or parsed.has_new or len(parsed.dropped_axes) == x.ndim:
        raise NoRule("such an index; put the values by another operator")
    if is_number:
        value = paddle.full([1], value, x.dtype)
    elif not isinstance(value, Tensor) or value.dtype != x.dtype:
        raise NoRule("a value of another dtype; cast it")
    axes, starts, ends, steps, dropped, *_ = parsed
    if not all(map(len, map(range, starts, ends, steps))):  # nothing is written
        return ops.assign(x)
    return ops.set_value_with_tensor(x, value, starts, ends, steps, axes, dropped, [])


def _value_cotangents(g: Tensor, index: Any) -> Tensor:
    """Return the cotangents of the written values; zero where they were overwritten."""
    index_tensors = _index_tensors(index)
    if any(tensor.dtype == paddle.bool for tensor in index_tensors):
        raise NoRule("an assigned tensor where the index is a mask; use paddle.where")
    result = _get_item(g, index)
    if not index_tensors:
        return result
    zeros = paddle.zeros(g.shape, "int64")
    is_last = last_write_mask(
        result.shape,
        lambda indices: _SET_ITEM.bind([zeros, index, indices])[0],
        lambda source: _get_item(source, index),
    )
    return masked(result, is_last)


def _get_item(x: Tensor, index: Any) -> Tensor:
    """Return ``x[index]``, also of an x with gaps, where Paddle alone is wrong."""
    result: Tensor = TABLE["Tensor._getitem_dygraph"].bind([x, index])[0]
    return result


define("fill_diagonal", differentiable=(0,))
overwrites("fill_diagonal", "fill_diagonal_", 0)


@reverse_of("fill_diagonal")
def _fill_diagonal_reverse(call: Call) -> list[Any]:
    _, _, *attrs = call.args
    return [
        TABLE["fill_diagonal"].bind([call.cotangent, 0.0, *attrs])[0],
        *(None for _ in range(3)),
    ]


for name in ("uniform_inplace", "gaussian_inplace"):
    define(name, random=True, differentiable=())
