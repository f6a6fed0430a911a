"""Values put at places of a tensor, and taken from there."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.interception import RAW
from ....paddle_side.process.openmp import one_thread
from ..axes import ANYWHERE, AxesArgument
from ..calls import Call, NoRule
from ..entry import define, holds_for_complex, reverse_of
from ..shared import ops, summed_to

define(
    "take_along_axis", "x index axis", differentiable=(0,), axes=AxesArgument("axis")
)
define(
    "put_along_axis",
    "x index values axis reduce include_self",
    differentiable=(0, 2),
    axes=ANYWHERE,
)


def _index_put(x: Any, indices: Any, value: Any, accumulate: bool) -> Any:
    if not accumulate:
        return RAW.index_put(x, indices, value, False)
    with one_thread():  # several lose sums at places that are there more than once
        return RAW.index_put(x, indices, value, True)


define(
    "index_put",
    "x indices value accumulate",
    run=_index_put,
    differentiable=(0, 2),
    defaults={"accumulate": False},
    axes=ANYWHERE,
)
define("scatter", "x index updates overwrite", differentiable=(0, 2), axes=ANYWHERE)
holds_for_complex("index_put")


def last_written(
    shape: list[int],
    put: Callable[[Tensor], Tensor],
    take: Callable[[Tensor], Tensor],
) -> Tensor:
    """Tell which values are not overwritten by later ones at the same place.

    Args:
        shape: shape of the values.
        put: puts indices of values at their places among zeros.
        take: takes what is there.
    """
    numbers = ops.reshape(paddle.arange(math.prod(shape)), shape)
    return take(put(numbers)) == numbers


def masked(g: Tensor, there: Tensor) -> Tensor:
    """Return the entries where the mask holds, and zeros elsewhere."""
    return ops.where(there, g, paddle.zeros_like(g))


@reverse_of("take_along_axis")
def _take_along_axis_reverse(call: Call) -> list[Any]:
    x, index, axis = call.args
    zeros = paddle.zeros_like(x)
    result = ops.put_along_axis(
        zeros, index, call.cotangent, axis % x.ndim, "add", True
    )
    return [result, None, None]


class _PutCall:
    """A call of ``put_along_axis``, for the gradients of each reduction.

    Attributes:
        values: the values that are put, in the index's shape.
    """

    def __init__(self, call: Call) -> None:
        self.x, self.index, values, axis, _, self.with_self = call.args
        self.axis = axis % self.x.ndim
        self.out, self.g = call.out, call.cotangent
        shape = self.index.shape
        if values.shape != shape:
            axes = [*range(len(shape))]
            ends = [*shape]
            values = ops.slice(values, axes, [0] * len(axes), ends, [1] * len(axes), [])
        self.values = values

    def put(self, x: Tensor, values: Tensor, how: str, with_self: bool = True) -> Any:
        return ops.put_along_axis(x, self.index, values, self.axis, how, with_self)

    def taken(self, x: Tensor) -> Any:
        return ops.take_along_axis(x, self.index, self.axis)

    def cleared(self, x: Tensor) -> Any:
        """Return x with zeros at all places."""
        return self.put(x, paddle.zeros(self.index.shape, x.dtype), "assign")

    def own(self, g: Tensor) -> Any:
        """Return the gradient of the tensor, which may count among the values."""
        return g if self.with_self else self.cleared(g)


def _assigned(p: _PutCall, wanted: frozenset[int]) -> tuple[Any, Any]:
    by_values = None
    if 2 in wanted:
        zeros = paddle.zeros(p.x.shape, "int64")
        last = last_written(
            p.index.shape, lambda numbers: p.put(zeros, numbers, "assign"), p.taken
        )
        by_values = masked(p.taken(p.g), last)
    return p.cleared(p.g) if 0 in wanted else None, by_values


def _added(p: _PutCall, wanted: frozenset[int]) -> tuple[Any, Any]:
    return p.own(p.g), p.taken(p.g) if 2 in wanted else None


def _averaged(p: _PutCall, wanted: frozenset[int]) -> tuple[Any, Any]:
    ones = paddle.ones_like(p.x), paddle.ones(p.index.shape, p.x.dtype)
    p.g = p.g / p.put(*ones, "add", p.with_self)
    return _added(p, wanted)


def _multiplied(p: _PutCall, wanted: frozenset[int]) -> tuple[Any, Any]:
    by_x = by_values = None
    if 0 in wanted:
        factor = p.put(paddle.ones_like(p.x), p.values, "mul")
        by_x = p.own(p.g * factor)
    if 2 in wanted:  # no number where a value is zero, as Paddle has it
        by_values = p.taken(p.g * p.out) / p.values
    return by_x, by_values


def _extreme(
    p: _PutCall, wanted: frozenset[int]
) -> tuple[Any, Any]:  # shared by equals
    dtype = p.x.dtype
    mine = p.own(ops.cast(p.x == p.out, dtype))
    theirs = ops.cast(p.values == p.taken(p.out), dtype)
    g = p.g / p.put(mine, theirs, "add")
    return g * mine, p.taken(g) * theirs if 2 in wanted else None


_BY_REDUCE = {
    "assign": _assigned,
    "add": _added,
    "mean": _averaged,
    "mul": _multiplied,
    "multiply": _multiplied,
    "amin": _extreme,
    "amax": _extreme,
}


@reverse_of("put_along_axis")
def _put_along_axis_reverse(call: Call) -> list[Any]:
    values, reduce = call.args[2], call.args[4]
    put = _PutCall(call)
    by_x, by_values = _BY_REDUCE[reduce](put, call.wanted)
    if by_values is not None and by_values.shape != values.shape:
        pairs = zip(values.shape, by_values.shape, strict=True)
        around = [n for size, used in pairs for n in (0, size - used)]
        by_values = ops.pad(by_values, around, 0.0)
    return [by_x, None, by_values, None, None, None]


@reverse_of("index_put")
def _index_put_reverse(call: Call) -> list[Any]:
    x, indices, value, accumulate = call.args
    g = call.cotangent
    by_x = by_value = None
    if 0 in call.wanted:
        zero = paddle.zeros_like(value)
        by_x = g if accumulate else ops.index_put(g, indices, zero, False)
    if 2 in call.wanted:
        by_value = summed_to(_values_put(x, indices, g, accumulate), value)
    return [by_x, None, by_value, None]


def _values_put(x: Tensor, indices: Any, g: Tensor, accumulate: bool) -> Tensor:
    if any(index.dtype == paddle.bool for index in indices):
        raise NoRule("the values that are put by a mask; use paddle.where")
    place = tuple(indices)
    part = g._getitem_dygraph(place)
    if accumulate:
        return part
    zeros = paddle.zeros(x.shape[: len(place)], "int64")
    shape = part.shape[: part.ndim - x.ndim + len(place)]
    last = last_written(
        shape,
        lambda numbers: ops.index_put(zeros, indices, numbers, False),
        lambda result: result._getitem_dygraph(place),
    )
    return masked(part, _of_rows(last, part))


def _of_rows(there: Tensor, part: Tensor) -> Tensor:
    """Return a row's truth for all its elements."""
    rest = [1] * (part.ndim - there.ndim)
    return ops.expand(ops.reshape(there, [*there.shape, *rest]), part.shape)


@reverse_of("scatter")
def _scatter_reverse(call: Call) -> list[Any]:
    x, index, updates, overwrite = call.args
    g = call.cotangent
    by_x = by_updates = None
    if 0 in call.wanted:
        by_x = ops.scatter(g, index, paddle.zeros_like(updates), True)
    if 2 in call.wanted:
        by_updates = ops.gather(g, index, 0)
        if overwrite and index.ndim:
            row = ops.reshape(index, [-1])
            zeros = paddle.zeros(x.shape[:1], "int64")
            last = last_written(
                row.shape,
                lambda numbers: ops.scatter(zeros, row, numbers, True),
                lambda result: ops.gather(result, row, 0),
            )
            by_updates = masked(by_updates, _of_rows(last, by_updates))
    return [by_x, None, by_updates, None]
