"""Places of values' elements: their memory, offset and strides.

Reshaping, slices, transposition and expansion give other places of the same memory, and
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
        value: the first value that lies there.
        extent: how many elements there are.
        dtype: of each.
    """

    __slots__ = ("dtype", "extent", "value")

    def __init__(self, value: Value, extent: SymInt) -> None:
        self.value, self.extent, self.dtype = value, extent, value.dtype


class BufferView(NamedTuple):
    """The places of a value's elements.

    Attributes:
        offset: the place of the first one, as a sum.
        strides: elements from one place to the next, along each dimension.
    """

    memory: Buffer
    offset: tuple[SymInt, ...]
    shape: Shape
    strides: tuple[SymInt, ...]

    def moved(self, k: int, *starts: SymInt) -> tuple[SymInt, ...]:
        """Return the offset of a part that begins along a dimension, as a sum."""
        steps = (self.strides[k].times(start) for start in starts if start.factor)
        return (*self.offset, *steps)


def dense(value: Value, sizes: ShapeEnv) -> BufferView:
    """Return a value in memory of its own."""
    memory = Buffer(value, sizes.product(value.shape))
    return BufferView(memory, (), value.shape, sizes.strides(value.shape))


def is_dense(view: BufferView, sizes: ShapeEnv) -> bool:
    """Tell whether the elements lie in order without gaps."""
    rows = zip(view.shape, view.strides, sizes.strides(view.shape), strict=True)
    return all(size == 1 or stride == own for size, stride, own in rows)


def along(view: BufferView, shape: Shape) -> tuple[SymInt, ...]:
    """Return the strides of a view broadcast to a shape, 0 where it is repeated.

    Raises:
        NotLowerable: it can't be broadcast.
    """
    missing = len(shape) - len(view.shape)
    if missing < 0:
        raise NotLowerable
    pairs = zip(view.shape, view.strides, shape[missing:], strict=True)
    return (ZERO,) * missing + tuple(
        stride if size == to and size != 1 else ZERO for size, stride, to in pairs
    )


def reshaped(view: BufferView, shape: Shape, sizes: ShapeEnv) -> BufferView:
    """Return the same elements in another shape.

    Raises:
        NotLowerable: they have gaps between them.
    """
    if is_dense(view, sizes):
        return BufferView(view.memory, view.offset, shape, sizes.strides(shape))
    kept = [(n, s) for n, s in zip(view.shape, view.strides, strict=True) if n != 1]
    if [n for n, _ in kept] != [n for n in shape if n != 1]:
        raise NotLowerable
    rest = iter(kept)
    strides = tuple(next(rest)[1] if n != 1 else ONE for n in shape)
    return BufferView(view.memory, view.offset, shape, strides)


Rule = Callable[[BufferView, Operation, ShapeEnv], Sequence[BufferView]]
"""A function of the view of the first argument that gives those of the results."""

VIEW_LOWERINGS: dict[str, Rule] = {}


def _view_of(*names: str) -> Callable[[Rule], Rule]:
    def put(rule: Rule) -> Rule:
        VIEW_LOWERINGS.update(dict.fromkeys(names, rule))
        return rule

    return put


@_view_of("reshape", "squeeze", "unsqueeze", "flatten", "view_shape", "share_data")
def _reshape_view(
    view: BufferView, op: Operation, sizes: ShapeEnv
) -> Sequence[BufferView]:
    return [reshaped(view, op.outputs[0].shape, sizes)]


@_view_of("transpose")
def _transpose_view(
    view: BufferView, op: Operation, sizes: ShapeEnv
) -> Sequence[BufferView]:
    rank = len(view.shape)
    order = [axis % rank for axis in op.args[1]]
    strides = tuple(view.strides[k] for k in order)
    return [BufferView(view.memory, view.offset, op.outputs[0].shape, strides)]


@_view_of("Tensor.T")
def _t_view(view: BufferView, op: Operation, sizes: ShapeEnv) -> Sequence[BufferView]:
    return [
        BufferView(view.memory, view.offset, op.outputs[0].shape, view.strides[::-1])
    ]


@_view_of("expand", "expand_as")
def _expand_view(
    view: BufferView, op: Operation, sizes: ShapeEnv
) -> Sequence[BufferView]:
    shape = op.outputs[0].shape
    return [BufferView(view.memory, view.offset, shape, along(view, shape))]


@_view_of("slice")
def _slice_view(
    view: BufferView, op: Operation, sizes: ShapeEnv
) -> Sequence[BufferView]:
    _, axes, starts, _, _, gone = op.args
    for axis, start in zip(axes, starts, strict=True):
        if type(start) is not int:
            raise NotLowerable
        view = view._replace(offset=view.moved(axis, _place(view, axis, start, sizes)))
    left = tuple(s for k, s in enumerate(view.strides) if k not in {*gone})
    if len(left) != len(op.outputs[0].shape):
        raise NotLowerable
    return [BufferView(view.memory, view.offset, op.outputs[0].shape, left)]


@_view_of("strided_slice")
def _strided_slice_view(
    view: BufferView, op: Operation, sizes: ShapeEnv
) -> Sequence[BufferView]:
    _, axes, starts, _, steps = op.args
    for axis, start, step in zip(axes, starts, steps, strict=True):
        view = stepped(view, axis, start, step, sizes)
    return [view._replace(shape=op.outputs[0].shape)]


def stepped(
    view: BufferView, axis: int, start: Any, step: Any, sizes: ShapeEnv
) -> BufferView:
    """Return the places from one on, at a constant step forward or backward.

    Raises:
        NotLowerable: these are not integers.
    """
    if type(start) is not int or type(step) is not int or not step:
        raise NotLowerable
    size = view.shape[axis]
    if step < 0 and sizes.of(size).power:
        raise NotLowerable
    place = _place(view, axis, start, sizes)
    if step < 0:
        place = SymInt(min(place.factor, size - 1))
    strides = [*view.strides]
    strides[axis] = strides[axis].times(SymInt(step))
    return view._replace(offset=view.moved(axis, place), strides=tuple(strides))


@_view_of("flip")
def _flip_view(
    view: BufferView, op: Operation, sizes: ShapeEnv
) -> Sequence[BufferView]:
    given = [op.args[1]] if type(op.args[1]) is int else op.args[1]
    for axis in {axis % len(view.shape) for axis in given}:
        last = sizes.of(view.shape[axis]), SymInt(-1)
        strides = [*view.strides]
        strides[axis] = strides[axis].times(SymInt(-1))
        view = view._replace(offset=view.moved(axis, *last), strides=tuple(strides))
    return [view]


@_view_of("diagonal")
def _diagonal_view(
    view: BufferView, op: Operation, sizes: ShapeEnv
) -> Sequence[BufferView]:
    return [diagonal(view, op.args[1:], op.outputs[0].shape, sizes)]


def diagonal(
    view: BufferView, where: Sequence[int], shape: Shape, sizes: ShapeEnv
) -> BufferView:
    """Return the diagonal of two dimensions, which becomes the last dimension.

    Args:
        where: how far above the main diagonal, and which dimensions.

    Raises:
        NotLowerable: one of these varies with the number of samples.
    """
    rank = len(view.shape)
    offset, down, along = where[0], where[1] % rank, where[2] % rank
    if any(sizes.of(view.shape[k]).power for k in (down, along)):
        raise NotLowerable
    steps = view.strides[down], view.strides[along]
    if steps[0].power != steps[1].power:
        raise NotLowerable
    start = view.moved(along if offset > 0 else down, SymInt(abs(offset)))
    step = SymInt(steps[0].factor + steps[1].factor, steps[0].power)
    rest = (s for k, s in enumerate(view.strides) if k not in (down, along))
    return BufferView(view.memory, start, shape, (*rest, step))


@_view_of("tensor_unfold")
def _tensor_unfold_view(
    view: BufferView, op: Operation, sizes: ShapeEnv
) -> Sequence[BufferView]:
    _, axis, _, step = op.args
    axis %= max(len(view.shape), 1)
    if not view.shape or sizes.of(view.shape[axis]).power:
        raise NotLowerable
    strides = [*view.strides, view.strides[axis]]
    strides[axis] = strides[axis].times(SymInt(step))
    shape = op.outputs[0].shape
    return [view._replace(shape=shape, strides=tuple(strides))]


@_view_of("Tensor._getitem_dygraph")
def _getitem_view(
    view: BufferView, op: Operation, sizes: ShapeEnv
) -> Sequence[BufferView]:
    strides: list[SymInt] = []
    axis = 0
    for part in _every_index(op.args[1], len(view.shape)):
        if part is None:
            strides.append(ONE)
            continue
        start, step = part, 1
        if isinstance(part, slice):
            step = part.step or 1
            start = part.start or 0
            if part.start is None and type(step) is int and step < 0:
                start = -1
        view = stepped(view, axis, start, step, sizes)
        if isinstance(part, slice):
            strides.append(view.strides[axis])
        axis += 1
    if len(strides) != len(op.outputs[0].shape):
        raise NotLowerable
    return [BufferView(view.memory, view.offset, op.outputs[0].shape, tuple(strides))]


def _every_index(index: Any, rank: int) -> list[Any]:
    """Return for each dimension an integer, a slice, or None for a new one.

    Raises:
        NotLowerable: there is something else, such as a tensor.
    """
    parts = [*index] if isinstance(index, list | tuple) else [index]
    if any(
        not (part is None or part is ... or type(part) in (int, slice))
        for part in parts
    ):
        raise NotLowerable
    missing = rank - sum(part is not None and part is not ... for part in parts)
    k = next((i for i, part in enumerate(parts) if part is ...), len(parts))
    return [*parts[:k], *[slice(None)] * missing, *parts[k + 1 :]]


@_view_of("split", "split_with_num")
def _split_view(
    view: BufferView, op: Operation, sizes: ShapeEnv
) -> Sequence[BufferView]:
    axis = op.args[2] % len(view.shape)
    if any(len(out.shape) != len(view.shape) for out in op.outputs):
        raise NotLowerable  # a part of no places, which Paddle gives no shape
    counts = [sizes.of(out.shape[axis]) for out in op.outputs]
    return _consecutive_views(view, op, axis, counts, view.strides)


@_view_of("unbind", "unstack")
def _unbind_view(
    view: BufferView, op: Operation, sizes: ShapeEnv
) -> Sequence[BufferView]:
    axis = op.args[1] % len(view.shape)
    left = view.strides[:axis] + view.strides[axis + 1 :]
    return _consecutive_views(view, op, axis, [ONE] * len(op.outputs), left)


def _consecutive_views(
    view: BufferView,
    op: Operation,
    axis: int,
    counts: Sequence[SymInt],
    strides: tuple[SymInt, ...],
) -> list[BufferView]:
    """Return parts along a dimension, one after another, of these many places."""
    return [
        BufferView(view.memory, view.moved(axis, *_sum(counts[:i])), out.shape, strides)
        for i, out in enumerate(op.outputs)
    ]


def _sum(terms: Sequence[SymInt]) -> list[SymInt]:
    """Return the same sum with one term for each power."""
    results: dict[int, int] = {}
    for factor, power in terms:
        results[power] = results.get(power, 0) + factor
    return [SymInt(factor, power) for power, factor in results.items()]


def _place(view: BufferView, axis: int, start: int, sizes: ShapeEnv) -> SymInt:
    """Return where a slice begins.

    Raises:
        NotLowerable: it is along the samples, and there may be too few of them.
    """
    size = view.shape[axis]
    if start and sizes.of(size).power:
        raise NotLowerable
    return SymInt(min(max(start + size if start < 0 else start, 0), size))
