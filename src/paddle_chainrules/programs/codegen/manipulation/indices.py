"""Gathers and scatters: rows and elements by index.

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
from ..lowering import Address, Stage, StageBuilder, lowering_rule
from ..views import BufferView

INTEGERS = frozenset({"int32", "int64"})


class Indices(NamedTuple):
    """Tuples of indices, each of which gives a flat index.

    Attributes:
        view: of the indices, without gaps.
        tuple_count: how many tuples there are.
        sizes: the upper bound of each index in a tuple.
        strides: the stride of each index in a tuple.
        wraps: whether negative indices count from the end.
    """

    view: BufferView
    tuple_count: SymInt
    sizes: Sequence[SymInt]
    strides: Sequence[SymInt]
    wraps: bool

    @property
    def kind(self) -> str:
        return TYPES[self.view.buffer.dtype]

    def emit_bounds_check(self, ir: FunctionBuilder, base: str) -> None:
        """Leave the function where an index is out of range."""
        out_of_range = LoopCarried(
            "i1", "false", ir.fresh_name("bad"), ir.fresh_name("worse")
        )
        with ir.loop(ir.size_value(self.tuple_count), [out_of_range], VECTORIZE) as i:
            result = out_of_range.phi
            for k, size in enumerate(self.sizes):
                index = self._load_index(ir, base, i, k, f", {PARALLEL}")
                bound = ir.size_value(size)
                lowest = ir.emit(f"sub i64 0, {bound}") if self.wraps else "0"
                is_low = ir.emit(f"icmp slt i64 {index}, {lowest}")
                is_high = ir.emit(f"icmp sge i64 {index}, {bound}")
                either = ir.emit(f"or i1 {is_low}, {is_high}")
                result = ir.emit(f"or i1 {result}, {either}")
            ir.line(f"{out_of_range.next} = or i1 {result}, false")
        ir.bailout_if(out_of_range.phi)

    def flat_index(self, ir: FunctionBuilder, base: str, i: str) -> str:
        """Emit the flat index of a tuple."""
        result = "0"
        for k, (size, stride) in enumerate(zip(self.sizes, self.strides, strict=True)):
            index = self._load_index(ir, base, i, k)
            if self.wraps:
                is_negative = ir.emit(f"icmp slt i64 {index}, 0")
                wrapped = ir.emit(f"add i64 {index}, {ir.size_value(size)}")
                index = ir.emit(f"select i1 {is_negative}, i64 {wrapped}, i64 {index}")
            offset = ir.emit(f"mul i64 {index}, {ir.size_value(stride)}")
            result = ir.emit(f"add i64 {result}, {offset}")
        return result

    def _load_index(
        self, ir: FunctionBuilder, base: str, i: str, k: int, group: str = ""
    ) -> str:
        tuple_address = ir.indexed_address(base, self.kind, SymInt(len(self.sizes)), i)
        address = ir.offset_address(tuple_address, self.kind, k)
        index = ir.emit(f"load {self.kind}, ptr {address}{group}")
        return index if self.kind == "i64" else ir.emit(f"sext i32 {index} to i64")


class AxisSplit(NamedTuple):
    """A shape split at an axis.

    Attributes:
        outer: the number of elements of the axes before.
        size: the extent of the axis.
        inner: the number of elements of the axes after.
    """

    outer: SymInt
    size: SymInt
    inner: SymInt


def split_axis(shape: Shape, axis: int, shape_env: ShapeEnv) -> AxisSplit:
    """Return a shape split at an axis."""
    segments = shape[:axis], shape[axis : axis + 1], shape[axis + 1 :]
    return AxisSplit(*map(shape_env.product, segments))


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
    shape_env = builder.shape_env
    bounds = [shape_env.extent(size) for size in sizes]
    strides = shape_env.strides(tuple(sizes))
    return Indices(
        builder.dense_view(index), shape_env.product(shape), bounds, strides, wraps
    )


Body = Callable[[ElementValue, ElementValue], ElementValue]
"""A function of a number and the old entry that gives the new entry."""


def add_gather_or_scatter(
    builder: StageBuilder,
    op: Operation,
    indices: Indices,
    split: AxisSplit,
    source: BufferView,
    target: BufferView,
    *,
    scatters: bool,
    combine: Body = lambda x, full_entry: x,
    index_per_element: bool = False,
) -> None:
    """Add a stage that gathers entries by index, or scatters them.

    Args:
        split: the full tensor's shape, split at the indexed axis.
        scatters: whether the full tensor is ``target`` rather than ``source``. The
            other one has a slice for each tuple, in their order.
        index_per_element: whether there is an index for each element, rather than for
            slices of the axis.
    """
    if source.buffer.dtype != target.buffer.dtype:
        raise NotLowerable
    outer, size, inner = split
    count = indices.tuple_count
    if index_per_element:
        per_index = outer.times(inner)
        if (
            per_index.power > count.power
            or not per_index.factor
            or count.factor % per_index.factor
        ):
            raise NotLowerable
        count = SymInt(count.factor // per_index.factor, count.power - per_index.power)
    indexed_size, full_size = count.times(inner), size.times(inner)
    full_view, indexed_view = (target, source) if scatters else (source, target)
    expected = (
        (full_view, outer.times(full_size)),
        (indexed_view, outer.times(indexed_size)),
    )
    if any(
        builder.shape_env.product(view.shape) != extent for view, extent in expected
    ):
        raise NotLowerable
    kind = memory_type(target.buffer.dtype)

    def emit(ir: FunctionBuilder, address: Address) -> None:
        ir.line(f"; {op!r}  {op.where}")
        index_base, bases = address(indices.view), (address(source), address(target))
        indices.emit_bounds_check(ir, index_base)
        full_base, indexed_base = bases[::-1] if scatters else bases

        def emit_element(full_entry: str, indexed_entry: str, group: str = "") -> None:
            x, y = (
                (indexed_entry, full_entry) if scatters else (full_entry, indexed_entry)
            )
            value, old = (
                ElementValue(ir.emit(f"load {kind}, ptr {location}{group}"), kind, ir)
                for location in (x, y)
            )
            ir.line(f"store {kind} {combine(value, old).name}, ptr {y}{group}")

        with ir.loop(ir.size_value(outer)) as i:
            full_row = ir.indexed_address(full_base, kind, full_size, i)
            with ir.loop(ir.size_value(count)) as k:
                indexed_row = ir.indexed_address(
                    ir.indexed_address(indexed_base, kind, indexed_size, i),
                    kind,
                    inner,
                    k,
                )
                if index_per_element:
                    index_address = ir.indexed_address(
                        index_base, indices.kind, indexed_size, i
                    )
                    index_address = ir.indexed_address(
                        index_address, indices.kind, inner, k
                    )
                    with ir.loop(ir.size_value(inner)) as j:
                        location = indices.flat_index(ir, index_address, j)
                        full_entry = ir.indexed_address(full_row, kind, inner, location)
                        full_entry = ir.indexed_address(full_entry, kind, ONE, j)
                        emit_element(
                            full_entry, ir.indexed_address(indexed_row, kind, ONE, j)
                        )
                else:
                    location = indices.flat_index(ir, index_base, k)
                    full_entry = ir.indexed_address(full_row, kind, inner, location)
                    with ir.loop(ir.size_value(inner), metadata=VECTORIZE) as j:
                        element_address = ir.indexed_address(full_entry, kind, ONE, j)
                        indexed_entry = ir.indexed_address(indexed_row, kind, ONE, j)
                        emit_element(element_address, indexed_entry, f", {PARALLEL}")

    reads = indices.view.buffer, source.buffer
    builder.stages.append(Stage(reads, (target.buffer,), {}, emit, may_bail_out=True))


def _axis(axis: object, x: Value) -> int:
    if type(axis) is not int or not x.shape:
        raise NotLowerable
    return axis % len(x.shape)


def _require_vector(index: Value) -> Value:
    if len(index.shape) > 1:
        raise NotLowerable
    return index


def _add_gather(
    builder: StageBuilder,
    op: Operation,
    x: Value,
    index: Value,
    axis: int,
    wraps: bool = True,
) -> None:
    """Add a gather of entries along an axis."""
    indices = indices_of(builder, index, x.shape[axis : axis + 1], wraps)
    split = split_axis(x.shape, axis, builder.shape_env)
    source, target = builder.dense_view(x), builder.allocate(op.outputs[0])
    add_gather_or_scatter(builder, op, indices, split, source, target, scatters=False)


def _add_scatter(
    builder: StageBuilder,
    op: Operation,
    target: BufferView,
    index: Value,
    values: Value,
    axis: int,
    mode: str,
) -> None:
    """Add a scatter of values along an axis."""
    indices = indices_of(builder, index, target.shape[axis : axis + 1])
    split = split_axis(target.shape, axis, builder.shape_env)
    source = builder.dense_view(values)
    add_gather_or_scatter(
        builder,
        op,
        indices,
        split,
        source,
        target,
        scatters=True,
        combine=SCATTER_COMBINE[mode],
    )


SCATTER_COMBINE: dict[str, Body] = {
    "add": lambda x, old: old + x,
    "assign": lambda x, old: x,
}
"""Functions that combine a value with the old entry, by mode."""


@lowering_rule("gather", "index_select")
def _lower_gather(builder: StageBuilder, op: Operation) -> None:
    x, index, axis = op.args
    _add_gather(builder, op, x, _require_vector(index), _axis(axis, x))


@lowering_rule("embedding")
def _lower_embedding(builder: StageBuilder, op: Operation) -> None:
    index, x, padding, _ = op.args
    if padding != -1:
        raise NotLowerable
    _add_gather(builder, op, x, index, 0, wraps=False)


@lowering_rule("gather_grad")
def _lower_gather_grad(builder: StageBuilder, op: Operation) -> None:
    x, index, g, axis = op.args
    target = builder.zeros(op.outputs[0])
    _add_scatter(builder, op, target, _require_vector(index), g, _axis(axis, x), "add")


@lowering_rule("index_add")
def _lower_index_add(builder: StageBuilder, op: Operation) -> None:
    x, index, values, axis = op.args
    target = builder.duplicate(x, op.outputs[0])
    _add_scatter(
        builder, op, target, _require_vector(index), values, _axis(axis, x), "add"
    )


@lowering_rule("gather_nd")
def _lower_gather_nd(builder: StageBuilder, op: Operation) -> None:
    x, index = op.args
    indices, split = _tuple_indices(builder, x, index)
    source, target = builder.dense_view(x), builder.allocate(op.outputs[0])
    add_gather_or_scatter(builder, op, indices, split, source, target, scatters=False)


@lowering_rule("scatter_nd_add")
def _lower_scatter_nd_add(builder: StageBuilder, op: Operation) -> None:
    x, index, values = op.args
    indices, split = _tuple_indices(builder, x, index)
    source, target = builder.dense_view(values), builder.duplicate(x, op.outputs[0])
    add_gather_or_scatter(
        builder,
        op,
        indices,
        split,
        source,
        target,
        scatters=True,
        combine=SCATTER_COMBINE["add"],
    )


def _tuple_indices(
    builder: StageBuilder, x: Value, index: Value
) -> tuple[Indices, AxisSplit]:
    if not index.shape or not 0 < index.shape[-1] <= len(x.shape):
        raise NotLowerable
    k = index.shape[-1]
    if builder.shape_env.extent(k).power:
        raise NotLowerable
    leading, shape_env = x.shape[:k], builder.shape_env
    indices = indices_of(builder, index, leading)
    return indices, AxisSplit(
        ONE, shape_env.product(leading), shape_env.product(x.shape[k:])
    )


@lowering_rule("take_along_axis")
def _lower_take_along_axis(builder: StageBuilder, op: Operation) -> None:
    x, index, axis = op.args
    _add_elementwise_gather(builder, op, x, index, _axis(axis, x), wraps=True)


@lowering_rule("index_sample")
def _lower_index_sample(builder: StageBuilder, op: Operation) -> None:
    x, index = op.args
    _add_elementwise_gather(builder, op, x, index, 1, wraps=False)


def _add_elementwise_gather(
    builder: StageBuilder, op: Operation, x: Value, index: Value, axis: int, wraps: bool
) -> None:
    indices, split = _elementwise_indices(builder, x, index, axis, wraps)
    source, target = builder.dense_view(x), builder.allocate(op.outputs[0])
    add_gather_or_scatter(
        builder,
        op,
        indices,
        split,
        source,
        target,
        scatters=False,
        index_per_element=True,
    )


@lowering_rule("put_along_axis")
def _lower_put_along_axis(builder: StageBuilder, op: Operation) -> None:
    x, index, values, axis, mode, with_self = op.args
    axis = _axis(axis, x)
    indices, split = _elementwise_indices(builder, x, index, axis, wraps=True)
    if mode not in SCATTER_COMBINE or values.shape != index.shape or not with_self:
        raise NotLowerable
    target = builder.duplicate(x, op.outputs[0])
    add_gather_or_scatter(
        *(builder, op, indices, split, builder.dense_view(values), target),
        scatters=True,
        combine=SCATTER_COMBINE[mode],
        index_per_element=True,
    )


def _elementwise_indices(
    builder: StageBuilder, x: Value, index: Value, axis: int, wraps: bool
) -> tuple[Indices, AxisSplit]:
    other_sizes = [shape[:axis] + shape[axis + 1 :] for shape in (x.shape, index.shape)]
    if len(index.shape) != len(x.shape) or other_sizes[0] != other_sizes[1]:
        raise NotLowerable
    indices = indices_of(builder, index, x.shape[axis : axis + 1], wraps)
    return indices, split_axis(x.shape, axis, builder.shape_env)


@lowering_rule("Tensor._getitem_dygraph")
def _lower_getitem(builder: StageBuilder, op: Operation) -> None:
    x, index = op.args
    entries = [*index] if isinstance(index, list | tuple) else [index]
    if len(entries) != 1 or not isinstance(entries[0], Value):
        raise NotLowerable
    _add_gather(builder, op, x, entries[0], 0)


@lowering_rule("index_put")
def _lower_index_put(builder: StageBuilder, op: Operation) -> None:
    x, indices, values, accumulate = op.args
    if len(indices) != 1 or values.shape != indices[0].shape + x.shape[1:]:
        raise NotLowerable
    target = builder.duplicate(x, op.outputs[0])
    _add_scatter(
        builder, op, target, indices[0], values, 0, "add" if accumulate else "assign"
    )


@lowering_rule("scatter")
def _lower_scatter(builder: StageBuilder, op: Operation) -> None:
    x, index, values, overwrite = op.args
    if not overwrite or len(index.shape) != 1:
        raise NotLowerable
    target = builder.duplicate(x, op.outputs[0])
    _add_scatter(builder, op, target, index, values, 0, "assign")
