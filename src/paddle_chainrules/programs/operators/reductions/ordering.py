"""Elements chosen by their order: sorted, the largest, the median."""

from __future__ import annotations

import math
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.interception import RAW
from ....paddle_side.rules import integer_results
from ....paddle_side.rules.derivatives.formulas import by_rules
from ....paddle_side.rules.requested_gradients import is_scalar
from ..axes import ANYWHERE, AxesArgument
from ..calls import Call
from ..entry import define, reverse_of
from ..shared import is_equal, ops
from .reductions import axes_of


def _topk(x: Tensor, k: Any, *attrs: Any) -> Any:
    if isinstance(k, Tensor):
        raise NotImplementedError(
            "topk with a tensor that says how many, so that shapes depend on values; "
            "give an int"
        )
    return RAW.topk(x, k, *attrs)


define(
    "topk",
    run=_topk,
    differentiable=(0,),
    axes=AxesArgument("axis", splits_or_joins=True),
    tape=integer_results.detach_indices,
)
define("argsort", axes=AxesArgument("axis"), tape=integer_results.detach_indices)
define("kthvalue", axes=ANYWHERE, tape=by_rules("kthvalue", 0, where=is_scalar))
define("mode", axes=ANYWHERE, tape=integer_results.detach_indices)
define("cummax", axes=ANYWHERE, tape=integer_results.detach_indices)
define("cummin", axes=ANYWHERE, tape=integer_results.detach_indices)
define("median", axes=ANYWHERE)
define("nanmedian")


def _index_gradient(call: Call, axis: int, keepdim: bool = True) -> list[Any]:
    """Return the gradient where the second output gives the index of each element."""
    x, *attrs = call.args
    g, index = call.cotangent, call.outputs[1]
    if not x.ndim:
        return [ops.reshape(g, []), *(None for _ in attrs)]
    axis %= x.ndim
    if not keepdim:
        g, index = ops.unsqueeze(g, [axis]), ops.unsqueeze(index, [axis])
    zeros = paddle.zeros_like(x)
    result = ops.put_along_axis(zeros, index, g, axis, "add", True)
    return [result, *(None for _ in attrs)]


@reverse_of("topk")
def _topk_reverse(call: Call) -> list[Any]:
    return _index_gradient(call, call.args[2])


@reverse_of("argsort", "cummax", "cummin")
def _argsort_reverse(call: Call) -> list[Any]:
    return _index_gradient(call, call.args[1])


@reverse_of("kthvalue")
def _kthvalue_reverse(call: Call) -> list[Any]:
    return _index_gradient(call, call.args[2], call.args[3])


@reverse_of("mode")
def _mode_reverse(call: Call) -> list[Any]:
    return _index_gradient(call, call.args[1], call.args[2])


class ReducedRows:
    """A tensor as rows to reduce along the last axis, and back in its first shape."""

    def __init__(self, x: Tensor, axes: list[int]) -> None:
        axes = axes if x.ndim else []
        other_axes = [i for i in range(x.ndim) if i not in axes]
        self._perm = [*other_axes, *axes]
        self._shape = [x.shape[i] for i in self._perm]
        self.lead = [x.shape[i] for i in other_axes]
        self.count = math.prod(x.shape[i] for i in axes)

    def to_rows(self, x: Tensor) -> Tensor:
        """Return x with the reduced elements along the last axis."""
        if self._perm != [*range(len(self._perm))]:
            x = ops.transpose(x, self._perm)
        return ops.reshape(x, [*self.lead, self.count])

    def reshape_reduced(self, x: Tensor, count: int = 1) -> Tensor:
        """Return reduced results as rows of this many values."""
        return ops.reshape(x, [*self.lead, count])

    def from_rows(self, row: Tensor) -> Tensor:
        """Return the rows in the first shape."""
        row = ops.reshape(row, self._shape)
        perm = self._perm
        if perm == [*range(len(perm))]:
            return row
        return ops.transpose(row, [perm.index(i) for i in range(len(perm))])


@reverse_of("median", "nanmedian")
def _median_reverse(call: Call) -> list[Any]:
    x, axis, _, mode = call.args
    rows = ReducedRows(x, axes_of(x, axis))
    values = rows.to_rows(x)
    index = call.outputs[1]
    index = rows.reshape_reduced(index, index.size // max(math.prod(rows.lead), 1))
    last = max(rows.count - 1, 0)
    index = ops.clip(index, 0, last)  # anything where there is no number
    weights = paddle.full(index.shape, 1.0 / max(index.shape[-1], 1), x.dtype)
    zeros = paddle.zeros_like(values)
    slope = ops.put_along_axis(zeros, index, weights, values.ndim - 1, "add", True)
    if mode == "avg":  # shared by those that are equal to it
        slope = _share_among_ties(values, rows.reshape_reduced(call.out), slope)
    result = rows.from_rows(slope * rows.reshape_reduced(call.cotangent))
    return [result, None, None, None]


def _share_among_ties(values: Tensor, middle: Tensor, otherwise: Tensor) -> Tensor:
    equal = ops.logical_or(is_equal(values, middle), ops.isnan(middle))
    equal = ops.cast(equal, values.dtype)
    count = ops.sum(equal, [values.ndim - 1], None, True)
    has_ties = ops.expand(count > 0, values.shape)
    return ops.where(has_ties, equal / count, otherwise)
