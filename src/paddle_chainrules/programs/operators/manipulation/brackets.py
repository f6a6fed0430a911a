"""Parts of a tensor by an index in brackets, and tensors with other values there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ....paddle_side.index_lists import read_item
from ..axes import AxesArgument, ShapePolymorphic, Sizes, Varies, full, moved
from ..calls import BatchCall, Call, JetCall, NoRule
from ..entry import define, holds_for_complex, jet_of, reverse_of
from ..series import linear_series
from ..shared import ops, summed_to
from .places import gradient_of_taken, row_numbers


class Sliced(AxesArgument):
    """The kind for parts along axes by begin and end, and for values set there.

    Args:
        batches: whether the results of many samples follow from it.
    """

    def __init__(self, batches: bool = True) -> None:
        super().__init__("axes", parts=True)
        self.batches = batches

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        if operator.arguments[-1] == "decrease_axis":  # the axes that it drops
            *args, dropped = call.args
            call = replace(call, args=[*args, [n + 1 for n in dropped]])
        return super().batch(operator, call)

    def moved(self, axis: Any, ndim: int) -> Any:
        return [moved(n, ndim) for n in axis]

    def serves(self, op: Any, sizes: Sizes, varies: Varies) -> bool:
        """Return False for a part of the samples, since their number may vary."""
        given = op.named
        rows = zip(given["axes"], given["starts"], given["ends"], strict=True)
        return not any(
            varies(op.args[0].shape[axis]) and (start != 0 or end < WHOLE)
            for axis, start, end in rows
        )


WHOLE = 2**31 - 1
"""The end of a slice that has no end."""


class Indexed(ShapePolymorphic):
    """The kind for parts by an index in brackets.

    Args:
        batches: whether the results of many samples follow from it.
    """

    def __init__(self, batches: bool = True) -> None:
        self.batches = batches

    def serves(self, op: Any, sizes: Sizes, varies: Varies) -> bool:
        """Return False for a part of the samples, though in a program it may be all."""
        shape = op.args[0].shape
        parts = zip(shape, parts_of(op.named["index"], len(shape)), strict=False)
        return not any(varies(size) and _is_some(part, varies) for size, part in parts)

    def keeps_rows(
        self, args: Mapping[str, Any], given: Sequence[Any], outputs: Any, count: int
    ) -> bool:
        """Return True for integers and slices alone. Axes of lists may come first."""
        parts = parts_of(args["index"], len(args["x"].shape))
        if not all(type(part) in (int, slice) for part in parts):
            return False
        return [*given] == [args["x"]] and parts[:count] == [slice(None)] * count

    def batch(self, operator: Any, call: BatchCall) -> list[Any]:
        x, index = call.args
        parts = index if isinstance(index, tuple) else (index,)
        tensors = [k for k, part in enumerate(parts) if isinstance(part, Tensor)]
        if not tensors:
            return [x.__getitem__((slice(None), *parts))]
        if 1 not in call.batched:
            ints = [k for k, part in enumerate(parts) if isinstance(part, Tensor | int)]
            if ints != [*range(ints[0], ints[-1] + 1)]:
                raise NoRule(
                    "tensors among indices with others between; index in turns"
                )
            if not all(parts[k].size for k in tensors):  # right on first axes alone
                result = ops.transpose(x, [*range(1, x.ndim), 0]).__getitem__(parts)
                last = result.ndim - 1
                return [ops.transpose(result, [last, *range(last)])]
            return [x.__getitem__((slice(None), *parts))]
        if tensors != [0] or any(isinstance(part, int) for part in parts):
            raise NoRule(
                "indices of each sample along later axes; move them to the front"
            )
        if 0 not in call.batched:
            return [x.__getitem__(parts)]
        place = full(call, 1) if isinstance(index, Tensor) else parts[0]
        count = x.shape[1]
        place = ops.where(place < 0, place + count, place)
        rows, flat = numbered_rows(replace(call, args=(x, place)), 0, 1)
        taken = ops.gather(rows, flat, 0)
        taken = ops.reshape(taken, [*place.shape, *x.shape[2:]])
        rest = (slice(None),) * place.ndim
        return [taken.__getitem__((*rest, *parts[1:]))] if parts[1:] else [taken]


def _is_some(part: Any, varies: Varies) -> bool:
    """Tell whether a part of an index may be less than all along its axis."""
    shape = getattr(part, "shape", None)
    if shape is not None:  # a tensor: as many as there are samples
        return not any(map(varies, shape))
    if not isinstance(part, slice):
        return True
    ends = part.start, part.stop
    return ends != (None, None) or part.step not in (None, 1, -1)


def gathered_back(x: Tensor, index: Tensor, g: Tensor, axis: int) -> Tensor:
    """Return the gradient of a gather, in the shape of x.

    Paddle's kernel is wrong for a 0-d index along an axis in the middle.
    """
    if not index.ndim:
        index, g = ops.reshape(index, [1]), ops.unsqueeze(g, [axis])
    return ops.gather_grad(x, index, g, axis)


def numbered_rows(call: BatchCall, x: int, index: int) -> tuple[Tensor, Tensor]:
    """Join the first axes of all samples; return that, and indices into it.

    The indices are in a row.
    """
    tensor, places = full(call, x), full(call, index)
    size, count = tensor.shape[:2]
    starts = paddle.arange(0, size * count, count, dtype=places.dtype)
    starts = ops.reshape(starts, [size, *[1] * (places.ndim - 1)])
    flat = ops.reshape(tensor, [size * count, *tensor.shape[2:]])
    return flat, ops.reshape(places + starts, [-1])


_get: Any = vars(paddle.Tensor)["_getitem_dygraph"]


def _getitem(x: Tensor, index: Any) -> Any:
    return read_item(_get, x, index)


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


class Basic(NamedTuple):
    """An index of ints, slices and new axes, as the operators on slices take it."""

    axes: list[int]
    starts: list[int]
    ends: list[int]
    steps: list[int]
    drop: list[int]
    """Axes that an int takes away."""
    kept: list[int]
    """The shape with these, and without new axes."""
    has_new: bool


def basic(index: Any, shape: list[int]) -> Basic | None:
    """Return the parsed index; None where it holds other than ints and slices."""
    each = index if isinstance(index, tuple) else (index,)
    has_new = any(part is None for part in each)
    result = Basic([], [], [], [], [], [*shape], has_new)
    for axis, part in enumerate(parts_of(index, len(shape))):
        n = shape[axis]
        if type(part) is int:
            start = part % n
            stop, step = start + 1, 1
            result.drop.append(axis)
        elif type(part) is slice and all(
            p is None or type(p) is int for p in (part.start, part.stop, part.step)
        ):
            start, stop, step = part.indices(n)
        else:
            return None
        result.kept[axis] = len(range(start, stop, step))
        if (start, stop, step) != (0, n, 1) or axis in result.drop:
            result.axes.append(axis)
            result.starts.append(start)
            result.ends.append(stop if stop >= 0 else -n - 1)
            result.steps.append(step)
    return result


def without_new_axes(index: Any, shape: list[int]) -> tuple[Any, list[int]]:
    """Return an index of ints and slices without new axes, and the shape it gives."""
    parts = [*index] if isinstance(index, tuple | list) else [index]
    kept = tuple(part for part in parts if part is not None)
    where = basic(kept, shape)
    assert where is not None  # since it is a view
    results = [n for axis, n in enumerate(where.kept) if axis not in where.drop]
    return kept, results


def parts_of(index: Any, ndim: int) -> list[Any]:
    """Return the part of an index for each axis in order, without new axes."""
    return [part for part in _without_ellipsis(index, ndim) if part is not None]


def _without_ellipsis(index: Any, ndim: int) -> list[Any]:
    parts = [*index] if isinstance(index, tuple) else [index]
    for i, part in enumerate(parts):
        if part is Ellipsis:
            count = sum(p is not None for p in parts) - 1
            parts[i : i + 1] = [slice(None)] * (ndim - count)
            break
    return parts


@reverse_of("Tensor._getitem_dygraph")
def _getitem_reverse(call: Call) -> list[Any]:
    x, index = call.args
    g = call.cotangent
    if not g.size:
        return [paddle.zeros_like(x), None]
    where = basic(index, x.shape)
    if where is None:
        return [_at_tensors(x, index, g), None]
    axes, starts, ends, steps, drop, kept, has_new = where
    if not axes:
        return [ops.reshape(g, x.shape), None]
    if {*steps} == {1} and not has_new:
        return [ops.slice_grad(x, g, axes, starts, ends, [1] * len(axes), drop), None]
    g = g if g.shape == kept else ops.reshape(g, kept)
    if {*steps} == {1}:
        return [ops.slice_grad(x, g, axes, starts, ends, [1] * len(axes), []), None]
    return [ops.strided_slice_grad(x, g, axes, starts, ends, steps), None]


@jet_of("Tensor._getitem_dygraph")
def _getitem_jet(call: JetCall) -> list[Any]:
    x, index = call.args[0], _values(call.args[1])
    return [
        [call.out, *linear_series(lambda part: part._getitem_dygraph(index), x[1:])]
    ]


def _values(index: Any) -> Any:
    """Return an index with the values of tensors that have a series along a curve."""
    if isinstance(index, list) and index and isinstance(index[0], Tensor):
        return index[0]
    if isinstance(index, tuple | list):
        return type(index)(map(_values, index))
    return index


def _at_tensors(x: Tensor, index: Any, g: Tensor) -> Tensor:
    """Return the gradient where tensors of integers are in the index."""
    parts = _without_ellipsis(index, x.ndim)
    if any(part is None for part in parts):
        raise NoRule(
            "a new axis beside a tensor in an index, where Paddle takes other elements "
            "than NumPy, also from beyond the tensor; use unsqueeze on what is found"
        )
    at = [i for i, part in enumerate(parts) if isinstance(part, Tensor)]
    rest = [part for i, part in enumerate(parts) if i not in at]
    plain = all(type(part) is slice and part == slice(None) for part in rest)
    tensors = [parts[i] for i in at]
    if plain and len(at) == 1:
        (axis,), (numbers,) = at, tensors
        if numbers.ndim > 1:
            numbers = ops.reshape(numbers, [-1])
            g = ops.reshape(g, [*x.shape[:axis], -1, *x.shape[axis + 1 :]])
        return gathered_back(x, numbers, g, axis)
    if plain and at == [*range(len(at))] and any(part.ndim for part in tensors):
        return ops.index_put(paddle.zeros_like(x), tensors, g, True)
    return gradient_of_taken(x, row_numbers(x)._getitem_dygraph(index), g)


@reverse_of("set_value_with_tensor")
def _set_value_with_tensor_reverse(call: Call) -> list[Any]:
    _, values, starts, ends, steps, axes, drop, new = call.args
    if new:
        raise NoRule("new axes where values are set; reshape the values")
    g, attrs = call.cotangent, call.args[2:]
    by_x = by_values = None
    if 0 in call.wanted:
        by_x = ops.set_value_with_tensor(g, paddle.zeros_like(values), *attrs)
    if 1 in call.wanted:
        part = ops.strided_slice(g, axes, starts, ends, steps)
        kept = [n for i, n in enumerate(part.shape) if i not in drop]
        part = part if part.shape == kept else ops.reshape(part, kept)
        by_values = summed_to(part, values)
    return [by_x, by_values, *(None for _ in attrs)]
