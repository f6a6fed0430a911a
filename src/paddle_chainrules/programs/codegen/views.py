"""Views of values: a buffer, an offset and strides.

Reshaping, slices, transposition and expansion give other views of the same buffer, and
cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..tracing.operations import Operation, Value
from .elements.scalars import NotLowerable, Shape
from .extents import ONE, ZERO, ShapeEnv, SymInt


class Buffer:
    """Elements in a row without gaps, all of one dtype.

    Attributes:
        value: the first value stored in it.
        extent: how many elements there are.
        dtype: of each.
    """

    __slots__ = ("dtype", "extent", "value")

    def __init__(self, value: Value, extent: SymInt) -> None:
        self.value, self.extent, self.dtype = value, extent, value.dtype


class BufferView(NamedTuple):
    """A strided view of a buffer.

    Attributes:
        offset: the index of the first element, as a sum.
        strides: elements from one index to the next, along each dimension.
    """

    buffer: Buffer
    offset: tuple[SymInt, ...]
    shape: Shape
    strides: tuple[SymInt, ...]

    def offset_at(self, axis: int, *starts: SymInt) -> tuple[SymInt, ...]:
        """Return the offset of a slice that starts along an axis, as a sum."""
        shifts = (self.strides[axis].times(start) for start in starts if start.factor)
        return (*self.offset, *shifts)


def dense_view(value: Value, shape_env: ShapeEnv) -> BufferView:
    """Return a dense view of a new buffer for a value."""
    buffer = Buffer(value, shape_env.product(value.shape))
    return BufferView(buffer, (), value.shape, shape_env.strides(value.shape))


def is_dense(view: BufferView, shape_env: ShapeEnv) -> bool:
    """Tell whether a view has row-major strides without gaps."""
    dimensions = zip(
        view.shape, view.strides, shape_env.strides(view.shape), strict=True
    )
    return all(
        size == 1 or stride == dense_stride for size, stride, dense_stride in dimensions
    )


def broadcast_strides(view: BufferView, shape: Shape) -> tuple[SymInt, ...]:
    """Return the strides of a view broadcast to a shape, 0 where it is repeated.

    Raises:
        NotLowerable: it can't be broadcast.
    """
    missing = len(shape) - len(view.shape)
    if missing < 0:
        raise NotLowerable
    pairs = zip(view.shape, view.strides, shape[missing:], strict=True)
    return (ZERO,) * missing + tuple(
        stride if size == target and size != 1 else ZERO
        for size, stride, target in pairs
    )


def reshaped(view: BufferView, shape: Shape, shape_env: ShapeEnv) -> BufferView:
    """Return the same elements in another shape.

    Raises:
        NotLowerable: they have gaps between them.
    """
    if is_dense(view, shape_env):
        return BufferView(view.buffer, view.offset, shape, shape_env.strides(shape))
    non_unit = [(n, s) for n, s in zip(view.shape, view.strides, strict=True) if n != 1]
    if [n for n, _ in non_unit] != [n for n in shape if n != 1]:
        raise NotLowerable
    remaining = iter(non_unit)
    strides = tuple(next(remaining)[1] if n != 1 else ONE for n in shape)
    return BufferView(view.buffer, view.offset, shape, strides)


Rule = Callable[[BufferView, Operation, ShapeEnv], Sequence[BufferView]]
"""A function of the view of the first argument that gives those of the results."""

VIEW_LOWERINGS: dict[str, Rule] = {}


def _view_lowering(*names: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        VIEW_LOWERINGS.update(dict.fromkeys(names, rule))
        return rule

    return register


@_view_lowering(
    "reshape", "squeeze", "unsqueeze", "flatten", "view_shape", "share_data"
)
def _reshape_view(
    view: BufferView, op: Operation, shape_env: ShapeEnv
) -> Sequence[BufferView]:
    return [reshaped(view, op.outputs[0].shape, shape_env)]


@_view_lowering("transpose")
def _transpose_view(
    view: BufferView, op: Operation, shape_env: ShapeEnv
) -> Sequence[BufferView]:
    rank = len(view.shape)
    order = [axis % rank for axis in op.args[1]]
    strides = tuple(view.strides[k] for k in order)
    return [BufferView(view.buffer, view.offset, op.outputs[0].shape, strides)]


@_view_lowering("Tensor.T")
def _t_view(
    view: BufferView, op: Operation, shape_env: ShapeEnv
) -> Sequence[BufferView]:
    return [
        BufferView(view.buffer, view.offset, op.outputs[0].shape, view.strides[::-1])
    ]


@_view_lowering("expand", "expand_as")
def _expand_view(
    view: BufferView, op: Operation, shape_env: ShapeEnv
) -> Sequence[BufferView]:
    shape = op.outputs[0].shape
    return [BufferView(view.buffer, view.offset, shape, broadcast_strides(view, shape))]


@_view_lowering("slice")
def _slice_view(
    view: BufferView, op: Operation, shape_env: ShapeEnv
) -> Sequence[BufferView]:
    _, axes, starts, _, _, removed_axes = op.args
    for axis, start in zip(axes, starts, strict=True):
        if type(start) is not int:
            raise NotLowerable
        view = view._replace(
            offset=view.offset_at(axis, _slice_start(view, axis, start, shape_env))
        )
    strides = tuple(s for k, s in enumerate(view.strides) if k not in {*removed_axes})
    if len(strides) != len(op.outputs[0].shape):
        raise NotLowerable
    return [BufferView(view.buffer, view.offset, op.outputs[0].shape, strides)]


@_view_lowering("strided_slice")
def _strided_slice_view(
    view: BufferView, op: Operation, shape_env: ShapeEnv
) -> Sequence[BufferView]:
    _, axes, starts, _, steps = op.args
    for axis, start, step in zip(axes, starts, steps, strict=True):
        view = strided_view(view, axis, start, step, shape_env)
    return [view._replace(shape=op.outputs[0].shape)]


def strided_view(
    view: BufferView, axis: int, start: Any, step: Any, shape_env: ShapeEnv
) -> BufferView:
    """Return the slice of an axis from a start, with a step forward or backward.

    Raises:
        NotLowerable: these are not integers.
    """
    if type(start) is not int or type(step) is not int or not step:
        raise NotLowerable
    size = view.shape[axis]
    if step < 0 and shape_env.extent(size).power:
        raise NotLowerable
    start_index = _slice_start(view, axis, start, shape_env)
    if step < 0:
        start_index = SymInt(min(start_index.factor, size - 1))
    strides = [*view.strides]
    strides[axis] = strides[axis].times(SymInt(step))
    return view._replace(
        offset=view.offset_at(axis, start_index), strides=tuple(strides)
    )


@_view_lowering("flip")
def _flip_view(
    view: BufferView, op: Operation, shape_env: ShapeEnv
) -> Sequence[BufferView]:
    axes = [op.args[1]] if type(op.args[1]) is int else op.args[1]
    for axis in {axis % len(view.shape) for axis in axes}:
        last = shape_env.extent(view.shape[axis]), SymInt(-1)
        strides = [*view.strides]
        strides[axis] = strides[axis].times(SymInt(-1))
        view = view._replace(offset=view.offset_at(axis, *last), strides=tuple(strides))
    return [view]


@_view_lowering("diagonal")
def _diagonal_view(
    view: BufferView, op: Operation, shape_env: ShapeEnv
) -> Sequence[BufferView]:
    return [diagonal(view, op.args[1:], op.outputs[0].shape, shape_env)]


def diagonal(
    view: BufferView, offset_and_axes: Sequence[int], shape: Shape, shape_env: ShapeEnv
) -> BufferView:
    """Return the diagonal of two dimensions, which becomes the last dimension.

    Args:
        offset_and_axes: how far above the main diagonal, and the two dimensions.

    Raises:
        NotLowerable: one of these varies with the number of samples.
    """
    rank = len(view.shape)
    offset, row_axis, column_axis = (
        offset_and_axes[0],
        offset_and_axes[1] % rank,
        offset_and_axes[2] % rank,
    )
    if any(shape_env.extent(view.shape[k]).power for k in (row_axis, column_axis)):
        raise NotLowerable
    axis_strides = view.strides[row_axis], view.strides[column_axis]
    if axis_strides[0].power != axis_strides[1].power:
        raise NotLowerable
    start = view.offset_at(column_axis if offset > 0 else row_axis, SymInt(abs(offset)))
    diagonal_stride = SymInt(
        axis_strides[0].factor + axis_strides[1].factor, axis_strides[0].power
    )
    other_strides = (
        s for k, s in enumerate(view.strides) if k not in (row_axis, column_axis)
    )
    return BufferView(view.buffer, start, shape, (*other_strides, diagonal_stride))


@_view_lowering("tensor_unfold")
def _tensor_unfold_view(
    view: BufferView, op: Operation, shape_env: ShapeEnv
) -> Sequence[BufferView]:
    _, axis, _, step = op.args
    axis %= max(len(view.shape), 1)
    if not view.shape or shape_env.extent(view.shape[axis]).power:
        raise NotLowerable
    strides = [*view.strides, view.strides[axis]]
    strides[axis] = strides[axis].times(SymInt(step))
    shape = op.outputs[0].shape
    return [view._replace(shape=shape, strides=tuple(strides))]


@_view_lowering("Tensor._getitem_dygraph")
def _getitem_view(
    view: BufferView, op: Operation, shape_env: ShapeEnv
) -> Sequence[BufferView]:
    strides: list[SymInt] = []
    axis = 0
    for entry in _index_per_axis(op.args[1], len(view.shape)):
        if entry is None:
            strides.append(ONE)
            continue
        start, step = entry, 1
        if isinstance(entry, slice):
            step = entry.step or 1
            start = entry.start or 0
            if entry.start is None and type(step) is int and step < 0:
                start = -1
        view = strided_view(view, axis, start, step, shape_env)
        if isinstance(entry, slice):
            strides.append(view.strides[axis])
        axis += 1
    if len(strides) != len(op.outputs[0].shape):
        raise NotLowerable
    return [BufferView(view.buffer, view.offset, op.outputs[0].shape, tuple(strides))]


def _index_per_axis(index: Any, rank: int) -> list[Any]:
    """Return for each dimension an integer, a slice, or None for a new one.

    Raises:
        NotLowerable: there is something else, such as a tensor.
    """
    entries = [*index] if isinstance(index, list | tuple) else [index]
    if any(
        not (entry is None or entry is ... or type(entry) in (int, slice))
        for entry in entries
    ):
        raise NotLowerable
    missing = rank - sum(entry is not None and entry is not ... for entry in entries)
    ellipsis_position = next(
        (i for i, entry in enumerate(entries) if entry is ...), len(entries)
    )
    return [
        *entries[:ellipsis_position],
        *[slice(None)] * missing,
        *entries[ellipsis_position + 1 :],
    ]


@_view_lowering("split", "split_with_num")
def _split_view(
    view: BufferView, op: Operation, shape_env: ShapeEnv
) -> Sequence[BufferView]:
    axis = op.args[2] % len(view.shape)
    if any(len(out.shape) != len(view.shape) for out in op.outputs):
        raise NotLowerable  # an empty chunk, which Paddle gives no shape
    counts = [shape_env.extent(out.shape[axis]) for out in op.outputs]
    return _consecutive_views(view, op, axis, counts, view.strides)


@_view_lowering("unbind", "unstack")
def _unbind_view(
    view: BufferView, op: Operation, shape_env: ShapeEnv
) -> Sequence[BufferView]:
    axis = op.args[1] % len(view.shape)
    strides = view.strides[:axis] + view.strides[axis + 1 :]
    return _consecutive_views(view, op, axis, [ONE] * len(op.outputs), strides)


def _consecutive_views(
    view: BufferView,
    op: Operation,
    axis: int,
    counts: Sequence[SymInt],
    strides: tuple[SymInt, ...],
) -> list[BufferView]:
    """Return consecutive slices along an axis, of these sizes."""
    return [
        BufferView(
            view.buffer,
            view.offset_at(axis, *_combine_like_terms(counts[:i])),
            out.shape,
            strides,
        )
        for i, out in enumerate(op.outputs)
    ]


def _combine_like_terms(terms: Sequence[SymInt]) -> list[SymInt]:
    """Return the same sum with one term for each power."""
    results: dict[int, int] = {}
    for factor, power in terms:
        results[power] = results.get(power, 0) + factor
    return [SymInt(factor, power) for power, factor in results.items()]


def _slice_start(
    view: BufferView, axis: int, start: int, shape_env: ShapeEnv
) -> SymInt:
    """Return the start of a slice, clamped to its axis.

    Raises:
        NotLowerable: it is along the samples, and there may be too few of them.
    """
    size = view.shape[axis]
    if start and shape_env.extent(size).power:
        raise NotLowerable
    return SymInt(min(max(start + size if start < 0 else start, 0), size))
