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
    PARALLEL,
    TYPES,
    VECTORIZE,
    FunctionBuilder,
    LoopCarried,
    memory_type,
)
from ..lowering import Address, Stage, StageBuilder, lowers
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
        return TYPES[self.view.buffer.dtype]

    def check(self, ir: FunctionBuilder, first: str) -> None:
        """Leave the function where an index is out of range."""
        bad = LoopCarried("i1", "false", ir.fresh_name("bad"), ir.fresh_name("worse"))
        with ir.loop(ir.size_value(self.number), [bad], VECTORIZE) as i:
            result = bad.phi
            for k, size in enumerate(self.sizes):
                number = self._number(ir, first, i, k, f", {PARALLEL}")
                last = ir.size_value(size)
                least = ir.emit(f"sub i64 0, {last}") if self.wraps else "0"
                low = ir.emit(f"icmp slt i64 {number}, {least}")
                high = ir.emit(f"icmp sge i64 {number}, {last}")
                either = ir.emit(f"or i1 {low}, {high}")
                result = ir.emit(f"or i1 {result}, {either}")
            ir.line(f"{bad.next} = or i1 {result}, false")
        ir.bailout_if(bad.phi)

    def place(self, ir: FunctionBuilder, first: str, i: str) -> str:
        """Return the place that a tuple gives."""
        result = "0"
        for k, (size, stride) in enumerate(zip(self.sizes, self.strides, strict=True)):
            number = self._number(ir, first, i, k)
            if self.wraps:
                low = ir.emit(f"icmp slt i64 {number}, 0")
                around = ir.emit(f"add i64 {number}, {ir.size_value(size)}")
                number = ir.emit(f"select i1 {low}, i64 {around}, i64 {number}")
            step = ir.emit(f"mul i64 {number}, {ir.size_value(stride)}")
            result = ir.emit(f"add i64 {result}, {step}")
        return result

    def _number(
        self, ir: FunctionBuilder, first: str, i: str, k: int, group: str = ""
    ) -> str:
        tuples = ir.indexed_address(first, self.kind, SymInt(len(self.sizes)), i)
        at = ir.offset_address(tuples, self.kind, k)
        number = ir.emit(f"load {self.kind}, ptr {at}{group}")
        return number if self.kind == "i64" else ir.emit(f"sext i32 {number} to i64")


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


def lines_of(shape: Shape, axis: int, shape_env: ShapeEnv) -> AxisSplit:
    """Return the lines of a shape whose places go along an axis."""
    parts = shape[:axis], shape[axis : axis + 1], shape[axis + 1 :]
    return AxisSplit(*map(shape_env.product, parts))


def indices_of(
    builder: StageBuilder, index: Value, sizes: Sequence[int], wraps: bool = True
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
    of = builder.shape_env
    below = [of.extent(size) for size in sizes]
    each = of.strides(tuple(sizes))
    return Indices(builder.dense_view(index), of.product(shape), below, each, wraps)


Body = Callable[[ElementValue, ElementValue], ElementValue]
"""A function of a number and the old entry that gives the new entry."""


def over_places(
    builder: StageBuilder,
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
    if source.buffer.dtype != to.buffer.dtype:
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
    if any(builder.shape_env.product(view.shape) != extent for view, extent in results):
        raise NotLowerable
    kind = memory_type(to.buffer.dtype)

    def write(ir: FunctionBuilder, address: Address) -> None:
        ir.line(f"; {op!r}  {op.where}")
        first, ends = address(indices.view), (address(source), address(to))
        indices.check(ir, first)
        whole, part = ends[::-1] if puts else ends

        def element(there: str, here: str, group: str = "") -> None:
            x, y = (here, there) if puts else (there, here)
            given, old = (
                ElementValue(ir.emit(f"load {kind}, ptr {place}{group}"), kind, ir)
                for place in (x, y)
            )
            ir.line(f"store {kind} {body(given, old).name}, ptr {y}{group}")

        with ir.loop(ir.size_value(outer)) as i:
            row = ir.indexed_address(whole, kind, line, i)
            with ir.loop(ir.size_value(count)) as k:
                piece = ir.indexed_address(
                    ir.indexed_address(part, kind, step, i), kind, inner, k
                )
                if of_each:
                    own = ir.indexed_address(first, indices.kind, step, i)
                    own = ir.indexed_address(own, indices.kind, inner, k)
                    with ir.loop(ir.size_value(inner)) as j:
                        place = indices.place(ir, own, j)
                        there = ir.indexed_address(row, kind, inner, place)
                        there = ir.indexed_address(there, kind, ONE, j)
                        element(there, ir.indexed_address(piece, kind, ONE, j))
                else:
                    place = indices.place(ir, first, k)
                    there = ir.indexed_address(row, kind, inner, place)
                    with ir.loop(ir.size_value(inner), metadata=VECTORIZE) as j:
                        at = ir.indexed_address(there, kind, ONE, j)
                        here = ir.indexed_address(piece, kind, ONE, j)
                        element(at, here, f", {PARALLEL}")

    reads = indices.view.buffer, source.buffer
    builder.stages.append(Stage(reads, (to.buffer,), {}, write, may_bail_out=True))


def _axis(axis: object, x: Value) -> int:
    if type(axis) is not int or not x.shape:
        raise NotLowerable
    return axis % len(x.shape)


def _row(index: Value) -> Value:
    if len(index.shape) > 1:
        raise NotLowerable
    return index


def _take(
    builder: StageBuilder,
    op: Operation,
    x: Value,
    index: Value,
    axis: int,
    wraps: bool = True,
) -> None:
    """Take the entries at places along an axis."""
    indices = indices_of(builder, index, x.shape[axis : axis + 1], wraps)
    lines = lines_of(x.shape, axis, builder.shape_env)
    source, to = builder.dense_view(x), builder.allocate(op.outputs[0])
    over_places(builder, op, indices, lines, source, to, puts=False)


def _put_slice(
    builder: StageBuilder,
    op: Operation,
    to: BufferView,
    index: Value,
    part: Value,
    axis: int,
    how: str,
) -> None:
    """Put a part at places along an axis."""
    indices = indices_of(builder, index, to.shape[axis : axis + 1])
    lines = lines_of(to.shape, axis, builder.shape_env)
    source = builder.dense_view(part)
    over_places(builder, op, indices, lines, source, to, puts=True, body=PUT[how])


PUT: dict[str, Body] = {"add": lambda x, there: there + x, "assign": lambda x, there: x}
"""Functions that combine a number with the entry at its place."""


@lowers("gather", "index_select")
def _gather_loop(builder: StageBuilder, op: Operation) -> None:
    x, index, axis = op.args
    _take(builder, op, x, _row(index), _axis(axis, x))


@lowers("embedding")
def _embedding_loop(builder: StageBuilder, op: Operation) -> None:
    index, x, padding, _ = op.args
    if padding != -1:
        raise NotLowerable
    _take(builder, op, x, index, 0, wraps=False)


@lowers("gather_grad")
def _gather_grad_loop(builder: StageBuilder, op: Operation) -> None:
    x, index, g, axis = op.args
    to = builder.zeros(op.outputs[0])
    _put_slice(builder, op, to, _row(index), g, _axis(axis, x), "add")


@lowers("index_add")
def _index_add_loop(builder: StageBuilder, op: Operation) -> None:
    x, index, part, axis = op.args
    to = builder.duplicate(x, op.outputs[0])
    _put_slice(builder, op, to, _row(index), part, _axis(axis, x), "add")


@lowers("gather_nd")
def _gather_nd_loop(builder: StageBuilder, op: Operation) -> None:
    x, index = op.args
    indices, lines = _of_tuples(builder, x, index)
    source, to = builder.dense_view(x), builder.allocate(op.outputs[0])
    over_places(builder, op, indices, lines, source, to, puts=False)


@lowers("scatter_nd_add")
def _scatter_nd_add_loop(builder: StageBuilder, op: Operation) -> None:
    x, index, part = op.args
    indices, lines = _of_tuples(builder, x, index)
    source, to = builder.dense_view(part), builder.duplicate(x, op.outputs[0])
    over_places(builder, op, indices, lines, source, to, puts=True, body=PUT["add"])


def _of_tuples(
    builder: StageBuilder, x: Value, index: Value
) -> tuple[Indices, AxisSplit]:
    if not index.shape or not 0 < index.shape[-1] <= len(x.shape):
        raise NotLowerable
    k = index.shape[-1]
    if builder.shape_env.extent(k).power:
        raise NotLowerable
    lead, of = x.shape[:k], builder.shape_env
    indices = indices_of(builder, index, lead)
    return indices, AxisSplit(ONE, of.product(lead), of.product(x.shape[k:]))


@lowers("take_along_axis")
def _take_along_axis_loop(builder: StageBuilder, op: Operation) -> None:
    x, index, axis = op.args
    _take_of_each(builder, op, x, index, _axis(axis, x), wraps=True)


@lowers("index_sample")
def _index_sample_loop(builder: StageBuilder, op: Operation) -> None:
    x, index = op.args
    _take_of_each(builder, op, x, index, 1, wraps=False)


def _take_of_each(
    builder: StageBuilder, op: Operation, x: Value, index: Value, axis: int, wraps: bool
) -> None:
    indices, lines = _of_each(builder, x, index, axis, wraps)
    source, to = builder.dense_view(x), builder.allocate(op.outputs[0])
    over_places(builder, op, indices, lines, source, to, puts=False, of_each=True)


@lowers("put_along_axis")
def _put_along_axis_loop(builder: StageBuilder, op: Operation) -> None:
    x, index, part, axis, attrs, with_self = op.args
    axis = _axis(axis, x)
    indices, lines = _of_each(builder, x, index, axis, wraps=True)
    if attrs not in PUT or part.shape != index.shape or not with_self:
        raise NotLowerable
    to = builder.duplicate(x, op.outputs[0])
    over_places(
        *(builder, op, indices, lines, builder.dense_view(part), to),
        puts=True,
        body=PUT[attrs],
        of_each=True,
    )


def _of_each(
    builder: StageBuilder, x: Value, index: Value, axis: int, wraps: bool
) -> tuple[Indices, AxisSplit]:
    rest = [shape[:axis] + shape[axis + 1 :] for shape in (x.shape, index.shape)]
    if len(index.shape) != len(x.shape) or rest[0] != rest[1]:
        raise NotLowerable
    indices = indices_of(builder, index, x.shape[axis : axis + 1], wraps)
    return indices, lines_of(x.shape, axis, builder.shape_env)


@lowers("Tensor._getitem_dygraph")
def _getitem_loop(builder: StageBuilder, op: Operation) -> None:
    x, index = op.args
    parts = [*index] if isinstance(index, list | tuple) else [index]
    if len(parts) != 1 or not isinstance(parts[0], Value):
        raise NotLowerable
    _take(builder, op, x, parts[0], 0)


@lowers("index_put")
def _index_put_loop(builder: StageBuilder, op: Operation) -> None:
    x, indices, part, accumulate = op.args
    if len(indices) != 1 or part.shape != indices[0].shape + x.shape[1:]:
        raise NotLowerable
    to = builder.duplicate(x, op.outputs[0])
    _put_slice(builder, op, to, indices[0], part, 0, "add" if accumulate else "assign")


@lowers("scatter")
def _scatter_loop(builder: StageBuilder, op: Operation) -> None:
    x, index, part, overwrite = op.args
    if not overwrite or len(index.shape) != 1:
        raise NotLowerable
    to = builder.duplicate(x, op.outputs[0])
    _put_slice(builder, op, to, index, part, 0, "assign")
