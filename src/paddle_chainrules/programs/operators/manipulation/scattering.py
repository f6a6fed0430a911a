"""Values scattered into a tensor, and gathered from it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.interception import RAW
from ....paddle_side.process.openmp import one_thread
from ....paddle_side.rules.wrong_at_values import (
    DUPLICATES,
    is_put_along_axis_wrong,
    is_put_twice,
    is_scattered_twice,
    refuse_where,
)
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
    tape=refuse_where(
        "put_along_axis",
        "of products where there are zeros, and of other values than indices",
        is_put_along_axis_wrong,
    ),
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
    tape=refuse_where("index_put", DUPLICATES, is_put_twice),
)
define(
    "scatter",
    "x index updates overwrite",
    differentiable=(0, 2),
    axes=ANYWHERE,
    tape=refuse_where("scatter", DUPLICATES, is_scattered_twice),
)
holds_for_complex("index_put")


def last_write_mask(
    shape: list[int],
    scatter: Callable[[Tensor], Tensor],
    gather: Callable[[Tensor], Tensor],
) -> Tensor:
    """Tell which values are not overwritten by later ones at the same index.

    Args:
        shape: shape of the values.
        scatter: writes indices of values at their targets among zeros.
        gather: reads the targets.
    """
    indices = ops.reshape(paddle.arange(math.prod(shape)), shape)
    return gather(scatter(indices)) == indices


def masked(g: Tensor, mask: Tensor) -> Tensor:
    """Return the entries where the mask holds, and zeros elsewhere."""
    return ops.where(mask, g, paddle.zeros_like(g))


@reverse_of("take_along_axis")
def _take_along_axis_reverse(call: Call) -> list[Any]:
    x, index, axis = call.args
    zeros = paddle.zeros_like(x)
    result = ops.put_along_axis(
        zeros, index, call.cotangent, axis % x.ndim, "add", True
    )
    return [result, None, None]


class _ScatterCall:
    """A call of ``put_along_axis``, for the gradients of each reduction.

    Attributes:
        values: the values to scatter, in the index's shape.
    """

    def __init__(self, call: Call) -> None:
        self.x, self.index, values, axis, _, self.include_self = call.args
        self.axis = axis % self.x.ndim
        self.out, self.g = call.out, call.cotangent
        shape = self.index.shape
        if values.shape != shape:
            axes = [*range(len(shape))]
            stops = [*shape]
            values = ops.slice(
                values, axes, [0] * len(axes), stops, [1] * len(axes), []
            )
        self.values = values

    def scatter(
        self, x: Tensor, values: Tensor, reduce: str, include_self: bool = True
    ) -> Any:
        return ops.put_along_axis(
            x, self.index, values, self.axis, reduce, include_self
        )

    def gather_values(self, x: Tensor) -> Any:
        return ops.take_along_axis(x, self.index, self.axis)

    def zero_at_index(self, x: Tensor) -> Any:
        """Return x with zeros at all indices."""
        return self.scatter(x, paddle.zeros(self.index.shape, x.dtype), "assign")

    def gradient_by_x(self, g: Tensor) -> Any:
        """Return the gradient of the tensor, which may take part in the reduction."""
        return g if self.include_self else self.zero_at_index(g)


def _assign_gradients(call: _ScatterCall, wanted: frozenset[int]) -> tuple[Any, Any]:
    values_grad = None
    if 2 in wanted:
        zeros = paddle.zeros(call.x.shape, "int64")
        is_last = last_write_mask(
            call.index.shape,
            lambda indices: call.scatter(zeros, indices, "assign"),
            call.gather_values,
        )
        values_grad = masked(call.gather_values(call.g), is_last)
    return call.zero_at_index(call.g) if 0 in wanted else None, values_grad


def _add_gradients(call: _ScatterCall, wanted: frozenset[int]) -> tuple[Any, Any]:
    return call.gradient_by_x(call.g), call.gather_values(
        call.g
    ) if 2 in wanted else None


def _mean_gradients(call: _ScatterCall, wanted: frozenset[int]) -> tuple[Any, Any]:
    ones = (
        paddle.ones_like(call.x),
        paddle.ones(call.index.shape, call.x.dtype),
    )
    call.g = call.g / call.scatter(*ones, "add", call.include_self)
    return _add_gradients(call, wanted)


def _multiply_gradients(call: _ScatterCall, wanted: frozenset[int]) -> tuple[Any, Any]:
    x_grad = values_grad = None
    if 0 in wanted:
        factor = call.scatter(paddle.ones_like(call.x), call.values, "mul")
        x_grad = call.gradient_by_x(call.g * factor)
    if 2 in wanted:  # no number where a value is zero, as Paddle has it
        values_grad = call.gather_values(call.g * call.out) / call.values
    return x_grad, values_grad


def _extreme_gradients(
    call: _ScatterCall, wanted: frozenset[int]
) -> tuple[Any, Any]:  # shared by equals
    dtype = call.x.dtype
    x_ties = call.gradient_by_x(ops.cast(call.x == call.out, dtype))
    value_ties = ops.cast(call.values == call.gather_values(call.out), dtype)
    g = call.g / call.scatter(x_ties, value_ties, "add")
    return g * x_ties, call.gather_values(g) * value_ties if 2 in wanted else None


_GRADIENTS_BY_REDUCE = {
    "assign": _assign_gradients,
    "add": _add_gradients,
    "mean": _mean_gradients,
    "mul": _multiply_gradients,
    "multiply": _multiply_gradients,
    "amin": _extreme_gradients,
    "amax": _extreme_gradients,
}


@reverse_of("put_along_axis")
def _put_along_axis_reverse(call: Call) -> list[Any]:
    values, reduce = call.args[2], call.args[4]
    scatter_call = _ScatterCall(call)
    x_grad, values_grad = _GRADIENTS_BY_REDUCE[reduce](scatter_call, call.wanted)
    if values_grad is not None and values_grad.shape != values.shape:
        pairs = zip(values.shape, values_grad.shape, strict=True)
        paddings = [n for size, used in pairs for n in (0, size - used)]
        values_grad = ops.pad(values_grad, paddings, 0.0)
    return [x_grad, None, values_grad, None, None, None]


@reverse_of("index_put")
def _index_put_reverse(call: Call) -> list[Any]:
    x, indices, value, accumulate = call.args
    g = call.cotangent
    x_grad = value_grad = None
    if 0 in call.wanted:
        zero = paddle.zeros_like(value)
        x_grad = g if accumulate else ops.index_put(g, indices, zero, False)
    if 2 in call.wanted:
        value_grad = summed_to(_gradient_by_values(x, indices, g, accumulate), value)
    return [x_grad, None, value_grad, None]


def _gradient_by_values(x: Tensor, indices: Any, g: Tensor, accumulate: bool) -> Tensor:
    if any(index.dtype == paddle.bool for index in indices):
        raise NoRule("the values that are put by a mask; use paddle.where")
    key = tuple(indices)
    value_grad = g._getitem_dygraph(key)
    if accumulate:
        return value_grad
    zeros = paddle.zeros(x.shape[: len(key)], "int64")
    shape = value_grad.shape[: value_grad.ndim - x.ndim + len(key)]
    is_last = last_write_mask(
        shape,
        lambda indices_of_values: ops.index_put(
            zeros, indices, indices_of_values, False
        ),
        lambda result: result._getitem_dygraph(key),
    )
    return masked(value_grad, _expand_row_mask(is_last, value_grad))


def _expand_row_mask(mask: Tensor, like: Tensor) -> Tensor:
    """Repeat a mask of rows for all elements of each row."""
    ones = [1] * (like.ndim - mask.ndim)
    return ops.expand(ops.reshape(mask, [*mask.shape, *ones]), like.shape)


@reverse_of("scatter")
def _scatter_reverse(call: Call) -> list[Any]:
    x, index, updates, overwrite = call.args
    g = call.cotangent
    x_grad = updates_grad = None
    if 0 in call.wanted:
        x_grad = ops.scatter(g, index, paddle.zeros_like(updates), True)
    if 2 in call.wanted:
        updates_grad = ops.gather(g, index, 0)
        if overwrite and index.ndim:
            row = ops.reshape(index, [-1])
            zeros = paddle.zeros(x.shape[:1], "int64")
            is_last = last_write_mask(
                row.shape,
                lambda indices_of_updates: ops.scatter(
                    zeros, row, indices_of_updates, True
                ),
                lambda result: ops.gather(result, row, 0),
            )
            updates_grad = masked(updates_grad, _expand_row_mask(is_last, updates_grad))
    return [x_grad, None, updates_grad, None]
