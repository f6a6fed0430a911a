"""Rows and elements by index: embeddings, gathers, and values put at places.

Indices are checked before anything is read or written by them. Where one is out of
range, the function of machine code is left. The program then runs again by Paddle's
operators, which give the error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...tracing.operations import Operation, Value
from ..elements.number import ElementValue
from ..elements.scalars import NotLowerable, Shape
from ..extents import ONE, ShapeEnv, SymInt
from ..ir_builder import (
    AS_VECTORS,
    PARALLEL,
    TYPES,
    FunctionBuilder,
    LoopCarried,
    in_memory,
)
from ..lowering import Address, Stage, StageBuilder, written_as
from ..views import BufferView

INTEGERS = frozenset({"int32", "int64"})


class Indices(NamedTuple):
    """Tuples of indices, each of which gives a place.

    Attributes:
        view: of the indices, without gaps.
        number: how many tuples there are.
        sizes: the upper bound of each index in a tuple.
        strides: the distance of places for each index in a tuple.
        wraps: whether negative indices count from the end.
    """

    view: BufferView
    number: SymInt
    sizes: Sequence[SymInt]
    strides: Sequence[SymInt]
    wraps: bool

    @property
    def kind(self) -> str:
        return TYPES[self.view.memory.dtype]

    def check(self, text: FunctionBuilder, first: str) -> None:
        """Leave the function where an index is out of range."""
        bad = LoopCarried("i1", "false", text.name("bad"), text.name("worse"))
        with text.loop(text.number(self.number), [bad], AS_VECTORS) as i:
            result = bad.now
            for k, size in enumerate(self.sizes):
                number = self._number(text, first, i, k, f", {PARALLEL}")
                last = text.number(size)
                least = text.emit(f"sub i64 0, {last}") if self.wraps else "0"
                low = text.emit(f"icmp slt i64 {number}, {least}")
                high = text.emit(f"icmp sge i64 {number}, {last}")
                either = text.emit(f"or i1 {low}, {high}")
                result = text.emit(f"or i1 {result}, {either}")
            text.line(f"{bad.next} = or i1 {result}, false")
        text.bailout_if(bad.now)

    def place(self, text: FunctionBuilder, first: str, i: str) -> str:
        """Return the place that a tuple gives."""
        result = "0"
        for k, (size, stride) in enumerate(zip(self.sizes, self.strides, strict=True)):
            number = self._number(text, first, i, k)
            if self.wraps:
                low = text.emit(f"icmp slt i64 {number}, 0")
                around = text.emit(f"add i64 {number}, {text.number(size)}")
                number = text.emit(f"select i1 {low}, i64 {around}, i64 {number}")
            step = text.emit(f"mul i64 {number}, {text.number(stride)}")
            result = text.emit(f"add i64 {result}, {step}")
        return result

    def _number(
        self, text: FunctionBuilder, first: str, i: str, k: int, group: str = ""
    ) -> str:
        tuples = text.along(first, self.kind, SymInt(len(self.sizes)), i)
        at = text.further(tuples, self.kind, k)
        number = text.emit(f"load {self.kind}, ptr {at}{group}")
        return number if self.kind == "i64" else text.emit(f"sext i32 {number} to i64")


class AxisSplit(NamedTuple):
    """The layout of a tensor: lines of places, with some entries at each place.

    Attributes:
        outer: how many lines there are.
        size: how many places a line has.
        inner: how many entries a place has.
    """

    outer: SymInt
    size: SymInt
    inner: SymInt


def lines_of(shape: Shape, axis: int, sizes: ShapeEnv) -> AxisSplit:
    """Return the lines of a shape whose places go along an axis."""
    parts = shape[:axis], shape[axis : axis + 1], shape[axis + 1 :]
    return AxisSplit(*map(sizes.product, parts))


def indices_of(
    steps: StageBuilder, index: Value, sizes: Sequence[int], wraps: bool = True
) -> Indices:
    """Return the indices below these sizes.

    Args:
        index: has a tuple along its last dimension where there are several sizes.

    Raises:
        NotLowerable: the indices are not integers.
    """
    if index.dtype not in INTEGERS:
        raise NotLowerable
    shape = index.shape if len(sizes) == 1 else index.shape[:-1]
    of = steps.sizes
    below = [of.of(size) for size in sizes]
    each = of.strides(tuple(sizes))
    return Indices(steps.dense(index), of.product(shape), below, each, wraps)


Body = Callable[[ElementValue, ElementValue], ElementValue]
"""A function of a number and the old entry that gives the new entry."""


def over_places(
    steps: StageBuilder,
    op: Operation,
    indices: Indices,
    lines: AxisSplit,
    source: BufferView,
    to: BufferView,
    *,
    puts: bool,
    body: Body = lambda x, there: x,
    of_each: bool = False,
) -> None:
    """Add a step that takes entries at places, or puts something there.

    Args:
        lines: the lines of the tensor that has the places.
        puts: whether that tensor is ``to`` rather than ``source``. The other one has a
            place for each tuple, in their order.
        of_each: whether there is a tuple for each number, rather than for the places
            of all lines.
    """
    if source.memory.dtype != to.memory.dtype:
        raise NotLowerable
    outer, size, inner = lines
    count = indices.number
    if of_each:
        each = outer.times(inner)
        if each.power > count.power or not each.factor or count.factor % each.factor:
            raise NotLowerable
        count = SymInt(count.factor // each.factor, count.power - each.power)
    step, line = count.times(inner), size.times(inner)
    many, few = (to, source) if puts else (source, to)
    results = (many, outer.times(line)), (few, outer.times(step))
    if any(steps.sizes.product(view.shape) != extent for view, extent in results):
        raise NotLowerable
    kind = in_memory(to.memory.dtype)

    def write(text: FunctionBuilder, address: Address) -> None:
        text.line(f"; {op!r}  {op.where}")
        first, ends = address(indices.view), (address(source), address(to))
        indices.check(text, first)
        whole, part = ends[::-1] if puts else ends

        def element(there: str, here: str, group: str = "") -> None:
            x, y = (here, there) if puts else (there, here)
            given, old = (
                ElementValue(text.emit(f"load {kind}, ptr {place}{group}"), kind, text)
                for place in (x, y)
            )
            text.line(f"store {kind} {body(given, old).name}, ptr {y}{group}")

        with text.loop(text.number(outer)) as i:
            row = text.along(whole, kind, line, i)
            with text.loop(text.number(count)) as k:
                piece = text.along(text.along(part, kind, step, i), kind, inner, k)
                if of_each:
                    own = text.along(first, indices.kind, step, i)
                    own = text.along(own, indices.kind, inner, k)
                    with text.loop(text.number(inner)) as j:
                        place = indices.place(text, own, j)
                        there = text.along(row, kind, inner, place)
                        there = text.along(there, kind, ONE, j)
                        element(there, text.along(piece, kind, ONE, j))
                else:
                    place = indices.place(text, first, k)
                    there = text.along(row, kind, inner, place)
                    with text.loop(text.number(inner), how=AS_VECTORS) as j:
                        at = text.along(there, kind, ONE, j)
                        here = text.along(piece, kind, ONE, j)
                        element(at, here, f", {PARALLEL}")

    reads = indices.view.memory, source.memory
    steps.found.append(Stage(reads, (to.memory,), {}, write, may_bail_out=True))


def _axis(axis: object, x: Value) -> int:
    if type(axis) is not int or not x.shape:
        raise NotLowerable
    return axis % len(x.shape)


def _row(index: Value) -> Value:
    if len(index.shape) > 1:
        raise NotLowerable
    return index


def _take(
    steps: StageBuilder,
    op: Operation,
    x: Value,
    index: Value,
    axis: int,
    wraps: bool = True,
) -> None:
    """Take the entries at places along an axis."""
    indices = indices_of(steps, index, x.shape[axis : axis + 1], wraps)
    lines = lines_of(x.shape, axis, steps.sizes)
    source, to = steps.dense(x), steps.new(op.outputs[0])
    over_places(steps, op, indices, lines, source, to, puts=False)


def _put_slice(
    steps: StageBuilder,
    op: Operation,
    to: BufferView,
    index: Value,
    part: Value,
    axis: int,
    how: str,
) -> None:
    """Put a part at places along an axis."""
    indices = indices_of(steps, index, to.shape[axis : axis + 1])
    lines = lines_of(to.shape, axis, steps.sizes)
    source = steps.dense(part)
    over_places(steps, op, indices, lines, source, to, puts=True, body=PUT[how])


PUT: dict[str, Body] = {"add": lambda x, there: there + x, "assign": lambda x, there: x}
"""Functions that combine a number with the entry at its place."""


@written_as("gather", "index_select")
def _gather_loop(steps: StageBuilder, op: Operation) -> None:
    x, index, axis = op.args
    _take(steps, op, x, _row(index), _axis(axis, x))


@written_as("embedding")
def _embedding_loop(steps: StageBuilder, op: Operation) -> None:
    index, x, padding, _ = op.args
    if padding != -1:
        raise NotLowerable
    _take(steps, op, x, index, 0, wraps=False)


@written_as("gather_grad")
def _gather_grad_loop(steps: StageBuilder, op: Operation) -> None:
    x, index, g, axis = op.args
    to = steps.zeros(op.outputs[0])
    _put_slice(steps, op, to, _row(index), g, _axis(axis, x), "add")


@written_as("index_add")
def _index_add_loop(steps: StageBuilder, op: Operation) -> None:
    x, index, part, axis = op.args
    to = steps.duplicate(x, op.outputs[0])
    _put_slice(steps, op, to, _row(index), part, _axis(axis, x), "add")


@written_as("gather_nd")
def _gather_nd_loop(steps: StageBuilder, op: Operation) -> None:
    x, index = op.args
    indices, lines = _of_tuples(steps, x, index)
    source, to = steps.dense(x), steps.new(op.outputs[0])
    over_places(steps, op, indices, lines, source, to, puts=False)


@written_as("scatter_nd_add")
def _scatter_nd_add_loop(steps: StageBuilder, op: Operation) -> None:
    x, index, part = op.args
    indices, lines = _of_tuples(steps, x, index)
    source, to = steps.dense(part), steps.duplicate(x, op.outputs[0])
    over_places(steps, op, indices, lines, source, to, puts=True, body=PUT["add"])


def _of_tuples(
    steps: StageBuilder, x: Value, index: Value
) -> tuple[Indices, AxisSplit]:
    if not index.shape or not 0 < index.shape[-1] <= len(x.shape):
        raise NotLowerable
    k = index.shape[-1]
    if steps.sizes.of(k).power:
        raise NotLowerable
    lead, of = x.shape[:k], steps.sizes
    indices = indices_of(steps, index, lead)
    return indices, AxisSplit(ONE, of.product(lead), of.product(x.shape[k:]))


@written_as("take_along_axis")
def _take_along_axis_loop(steps: StageBuilder, op: Operation) -> None:
    x, index, axis = op.args
    _take_of_each(steps, op, x, index, _axis(axis, x), wraps=True)


@written_as("index_sample")
def _index_sample_loop(steps: StageBuilder, op: Operation) -> None:
    x, index = op.args
    _take_of_each(steps, op, x, index, 1, wraps=False)


def _take_of_each(
    steps: StageBuilder, op: Operation, x: Value, index: Value, axis: int, wraps: bool
) -> None:
    indices, lines = _of_each(steps, x, index, axis, wraps)
    source, to = steps.dense(x), steps.new(op.outputs[0])
    over_places(steps, op, indices, lines, source, to, puts=False, of_each=True)


@written_as("put_along_axis")
def _put_along_axis_loop(steps: StageBuilder, op: Operation) -> None:
    x, index, part, axis, attrs, with_self = op.args
    axis = _axis(axis, x)
    indices, lines = _of_each(steps, x, index, axis, wraps=True)
    if attrs not in PUT or part.shape != index.shape or not with_self:
        raise NotLowerable
    to = steps.duplicate(x, op.outputs[0])
    over_places(
        *(steps, op, indices, lines, steps.dense(part), to),
        puts=True,
        body=PUT[attrs],
        of_each=True,
    )


def _of_each(
    steps: StageBuilder, x: Value, index: Value, axis: int, wraps: bool
) -> tuple[Indices, AxisSplit]:
    rest = [shape[:axis] + shape[axis + 1 :] for shape in (x.shape, index.shape)]
    if len(index.shape) != len(x.shape) or rest[0] != rest[1]:
        raise NotLowerable
    indices = indices_of(steps, index, x.shape[axis : axis + 1], wraps)
    return indices, lines_of(x.shape, axis, steps.sizes)


@written_as("Tensor._getitem_dygraph")
def _getitem_loop(steps: StageBuilder, op: Operation) -> None:
    x, index = op.args
    parts = [*index] if isinstance(index, list | tuple) else [index]
    if len(parts) != 1 or not isinstance(parts[0], Value):
        raise NotLowerable
    _take(steps, op, x, parts[0], 0)


@written_as("index_put")
def _index_put_loop(steps: StageBuilder, op: Operation) -> None:
    x, indices, part, accumulate = op.args
    if len(indices) != 1 or part.shape != indices[0].shape + x.shape[1:]:
        raise NotLowerable
    to = steps.duplicate(x, op.outputs[0])
    _put_slice(steps, op, to, indices[0], part, 0, "add" if accumulate else "assign")


@written_as("scatter")
def _scatter_loop(steps: StageBuilder, op: Operation) -> None:
    x, index, part, overwrite = op.args
    if not overwrite or len(index.shape) != 1:
        raise NotLowerable
    to = steps.duplicate(x, op.outputs[0])
    _put_slice(steps, op, to, index, part, 0, "assign")
