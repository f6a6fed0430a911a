"""Indexing in brackets, and tensors with values set at an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ....paddle_side.index_lists import read_item
from ..axes import (
    AxesArgument,
    ShapePolymorphic,
    Varies,
    VaryingAxes,
    batched_arg,
    batched_axis,
)
from ..calls import BatchCall, Call, NoRule
from ..entry import define, holds_for_complex, reverse_of
from ..shared import ops, summed_to
from .flat_indices import flat_gather_gradient, flat_indices


class Sliced(AxesArgument):
    """The kind for slices along axes by start and end, and for values set there.

    Args:
        batches: whether the results of many samples follow from it.
    """

    def __init__(self, batches: bool = True) -> None:
        super().__init__("axes", splits_or_joins=True)
        self.batches = batches

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        if operator.arguments[-1] == "decrease_axis":  # the axes that it drops
            *args, dropped = call.args
            call = replace(call, args=[*args, [n + 1 for n in dropped]])
        return super().batch(operator, call)

    def batched_axes(self, axis: Any, ndim: int) -> Any:
        return [batched_axis(n, ndim) for n in axis]

    def is_size_independent(
        self, op: Any, varying_axes: VaryingAxes, varies: Varies
    ) -> bool:
        """Return False for a slice of the samples, since their number may vary."""
        named = op.named
        ranges = zip(named["axes"], named["starts"], named["ends"], strict=True)
        return not any(
            varies(op.args[0].shape[axis]) and (start != 0 or stop < SLICE_END)
            for axis, start, stop in ranges
        )


SLICE_END = 2**31 - 1
"""The end of a slice that has no end."""


class Indexed(ShapePolymorphic):
    """The kind for indexing in brackets.

    Args:
        batches: whether the results of many samples follow from it.
    """

    def __init__(self, batches: bool = True) -> None:
        self.batches = batches

    def is_size_independent(
        self, op: Any, varying_axes: VaryingAxes, varies: Varies
    ) -> bool:
        """Return False where it may select only some samples."""
        shape = op.args[0].shape
        entries = zip(shape, index_entries(op.named["index"], len(shape)), strict=False)
        return not any(
            varies(size) and _selects_some(entry, varies) for size, entry in entries
        )

    def keeps_rows(
        self,
        args: Mapping[str, Any],
        row_inputs: Sequence[Any],
        outputs: Any,
        num_row_axes: int,
    ) -> bool:
        """Return True for integers and slices alone. Axes of lists may come first."""
        entries = index_entries(args["index"], len(args["x"].shape))
        if not all(type(entry) in (int, slice) for entry in entries):
            return False
        return [*row_inputs] == [args["x"]] and entries[:num_row_axes] == [
            slice(None)
        ] * num_row_axes

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        x, index = call.args
        entries = index if isinstance(index, tuple) else (index,)
        tensors = [k for k, entry in enumerate(entries) if isinstance(entry, Tensor)]
        if not tensors:
            return [x.__getitem__((slice(None), *entries))]
        if 1 not in call.batched:
            ints = [
                k for k, entry in enumerate(entries) if isinstance(entry, Tensor | int)
            ]
            if ints != [*range(ints[0], ints[-1] + 1)]:
                raise NoRule(
                    "tensors among indices with others between; index in turns"
                )
            if not all(entries[k].size for k in tensors):  # right on first axes alone
                result = ops.transpose(x, [*range(1, x.ndim), 0]).__getitem__(entries)
                last = result.ndim - 1
                return [ops.transpose(result, [last, *range(last)])]
            return [x.__getitem__((slice(None), *entries))]
        if tensors != [0] or any(isinstance(entry, int) for entry in entries):
            raise NoRule(
                "indices of each sample along later axes; move them to the front"
            )
        if 0 not in call.batched:
            return [x.__getitem__(entries)]
        row_index = batched_arg(call, 1) if isinstance(index, Tensor) else entries[0]
        count = x.shape[1]
        row_index = ops.where(row_index < 0, row_index + count, row_index)
        rows, flat = join_samples(replace(call, args=(x, row_index)), 0, 1)
        gathered = ops.gather(rows, flat, 0)
        gathered = ops.reshape(gathered, [*row_index.shape, *x.shape[2:]])
        leading = (slice(None),) * row_index.ndim
        return (
            [gathered.__getitem__((*leading, *entries[1:]))]
            if entries[1:]
            else [gathered]
        )


def _selects_some(entry: Any, varies: Varies) -> bool:
    """Tell whether an index entry may select less than its whole axis."""
    shape = getattr(entry, "shape", None)
    if shape is not None:  # a tensor: as many as there are samples
        return not any(map(varies, shape))
    if not isinstance(entry, slice):
        return True
    bounds = entry.start, entry.stop
    return bounds != (None, None) or entry.step not in (None, 1, -1)


def gather_gradient(x: Tensor, index: Tensor, g: Tensor, axis: int) -> Tensor:
    """Return the gradient of a gather, in the shape of x.

    Paddle's kernel is wrong for a 0-d index along an axis in the middle.
    """
    if not index.ndim:
        index, g = ops.reshape(index, [1]), ops.unsqueeze(g, [axis])
    return ops.gather_grad(x, index, g, axis)


def join_samples(call: BatchCall, x: int, index: int) -> tuple[Tensor, Tensor]:
    """Join the rows of all samples along one axis; return that, and indices into it.

    The indices are a vector.
    """
    tensor, indices = batched_arg(call, x), batched_arg(call, index)
    size, count = tensor.shape[:2]
    offsets = paddle.arange(0, size * count, count, dtype=indices.dtype)
    offsets = ops.reshape(offsets, [size, *[1] * (indices.ndim - 1)])
    flat = ops.reshape(tensor, [size * count, *tensor.shape[2:]])
    return flat, ops.reshape(indices + offsets, [-1])


_raw_getitem: Any = vars(paddle.Tensor)["_getitem_dygraph"]


def _getitem(x: Tensor, index: Any) -> Any:
    return read_item(_raw_getitem, x, index)


define(
    "Tensor._getitem_dygraph",
    "x index",
    run=_getitem,
    view=True,
    axes=Indexed(),
    linear=(0,),
)
define(
    "set_value_with_tensor",
    "x values starts ends steps axes decrease_axes none_axes",
    differentiable=(0, 1),
    axes=Sliced(batches=False),
)
holds_for_complex("Tensor._getitem_dygraph", "set_value_with_tensor")


class BasicIndex(NamedTuple):
    """An index of ints, slices and new axes, as the operators on slices take it."""

    axes: list[int]
    starts: list[int]
    ends: list[int]
    steps: list[int]
    dropped_axes: list[int]
    """Axes that an int removes."""
    kept_shape: list[int]
    """The shape with dropped axes of size 1, and without new axes."""
    has_new: bool


def parse_basic_index(index: Any, shape: list[int]) -> BasicIndex | None:
    """Return the parsed index; None where it holds other than ints and slices."""
    entries = index if isinstance(index, tuple) else (index,)
    has_new = any(entry is None for entry in entries)
    result = BasicIndex([], [], [], [], [], [*shape], has_new)
    for axis, entry in enumerate(index_entries(index, len(shape))):
        n = shape[axis]
        if type(entry) is int:
            start = entry % n
            stop, step = start + 1, 1
            result.dropped_axes.append(axis)
        elif type(entry) is slice and all(
            bound is None or type(bound) is int
            for bound in (entry.start, entry.stop, entry.step)
        ):
            start, stop, step = entry.indices(n)
        else:
            return None
        result.kept_shape[axis] = len(range(start, stop, step))
        if (start, stop, step) != (0, n, 1) or axis in result.dropped_axes:
            result.axes.append(axis)
            result.starts.append(start)
            result.ends.append(stop if stop >= 0 else -n - 1)
            result.steps.append(step)
    return result


def without_new_axes(index: Any, shape: list[int]) -> tuple[Any, list[int]]:
    """Return an index of ints and slices without new axes, and the shape it gives."""
    entries = [*index] if isinstance(index, tuple | list) else [index]
    without_new = tuple(entry for entry in entries if entry is not None)
    parsed = parse_basic_index(without_new, shape)
    assert parsed is not None  # since it is a view
    result_shape = [
        n for axis, n in enumerate(parsed.kept_shape) if axis not in parsed.dropped_axes
    ]
    return without_new, result_shape


def index_entries(index: Any, ndim: int) -> list[Any]:
    """Return the entry of an index for each axis in order, without new axes."""
    return [entry for entry in expand_ellipsis(index, ndim) if entry is not None]


def expand_ellipsis(index: Any, ndim: int) -> list[Any]:
    """Return the entry of an index for each axis in order, and its new axes."""
    entries = [*index] if isinstance(index, tuple) else [index]
    for i, entry in enumerate(entries):
        if entry is Ellipsis:
            count = sum(other is not None for other in entries) - 1
            entries[i : i + 1] = [slice(None)] * (ndim - count)
            break
    return entries


@reverse_of("Tensor._getitem_dygraph")
def _getitem_reverse(call: Call) -> list[Any]:
    x, index = call.args
    g = call.cotangent
    if not g.size:
        return [paddle.zeros_like(x), None]
    parsed = parse_basic_index(index, x.shape)
    if parsed is None:
        return [_tensor_index_gradient(x, index, g), None]
    axes, starts, ends, steps, dropped, kept_shape, has_new = parsed
    if not axes:
        return [ops.reshape(g, x.shape), None]
    if {*steps} == {1} and not has_new:
        return [
            ops.slice_grad(x, g, axes, starts, ends, [1] * len(axes), dropped),
            None,
        ]
    g = g if g.shape == kept_shape else ops.reshape(g, kept_shape)
    if {*steps} == {1}:
        return [ops.slice_grad(x, g, axes, starts, ends, [1] * len(axes), []), None]
    return [ops.strided_slice_grad(x, g, axes, starts, ends, steps), None]


def _tensor_index_gradient(x: Tensor, index: Any, g: Tensor) -> Tensor:
    """Return the gradient where tensors of integers are in the index."""
    entries = expand_ellipsis(index, x.ndim)
    if any(entry is None for entry in entries):
        raise NoRule(
            "a new axis beside a tensor in an index, where Paddle takes other elements "
            "than NumPy, also from beyond the tensor; use unsqueeze on what is found"
        )
    tensor_axes = [i for i, entry in enumerate(entries) if isinstance(entry, Tensor)]
    others = [entry for i, entry in enumerate(entries) if i not in tensor_axes]
    others_are_full = all(
        type(entry) is slice and entry == slice(None) for entry in others
    )
    tensors = [entries[i] for i in tensor_axes]
    if others_are_full and len(tensor_axes) == 1:
        (axis,), (indices,) = tensor_axes, tensors
        if indices.ndim > 1:
            indices = ops.reshape(indices, [-1])
            g = ops.reshape(g, [*x.shape[:axis], -1, *x.shape[axis + 1 :]])
        return gather_gradient(x, indices, g, axis)
    if (
        others_are_full
        and tensor_axes == [*range(len(tensor_axes))]
        and any(entry.ndim for entry in tensors)
    ):
        return ops.index_put(paddle.zeros_like(x), tensors, g, True)
    return flat_gather_gradient(x, flat_indices(x)._getitem_dygraph(index), g)


@reverse_of("set_value_with_tensor")
def _set_value_with_tensor_reverse(call: Call) -> list[Any]:
    _, values, starts, ends, steps, axes, dropped, new_axes = call.args
    if new_axes:
        raise NoRule("new axes where values are set; reshape the values")
    g, attrs = call.cotangent, call.args[2:]
    x_grad = values_grad = None
    if 0 in call.wanted:
        x_grad = ops.set_value_with_tensor(g, paddle.zeros_like(values), *attrs)
    if 1 in call.wanted:
        value_grad = ops.strided_slice(g, axes, starts, ends, steps)
        kept_shape = [n for i, n in enumerate(value_grad.shape) if i not in dropped]
        value_grad = (
            value_grad
            if value_grad.shape == kept_shape
            else ops.reshape(value_grad, kept_shape)
        )
        values_grad = summed_to(value_grad, values)
    return [x_grad, values_grad, *(None for _ in attrs)]
