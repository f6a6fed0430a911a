"""Sorting of short rows: each entry goes to the index that counts those before it."""

from __future__ import annotations

from ....paddle_side.dtypes import FLOATS
from ...tracing.operations import Operation, Value
from ..elements.number import ElementValue
from ..elements.scalars import NotLowerable
from ..extents import ONE, SymInt
from ..ir_builder import TYPES, FunctionBuilder, LoopCarried
from ..lowering import Address, Stage, StageBuilder, lowering_rule
from ..views import BufferView

MAX_SORTED, MAX_STABLE_SORTED = 16, 48
"""The most entries of a row that is sorted here, without and with stable order.

Paddle leaves equal ones in their order up to the first number. In longer rows it does
so only for a stable sort.
"""


@lowering_rule("argsort")
def _lower_argsort(builder: StageBuilder, op: Operation) -> None:
    x, axis, descending, stable = op.args
    out, index = op.outputs
    is_known = x.dtype in FLOATS or x.dtype in ("int32", "int64")
    if not x.shape or not is_known or index.dtype != "int64" or out.dtype != x.dtype:
        raise NotLowerable
    axis %= len(x.shape)
    size = x.shape[axis]
    if builder.shape_env.extent(size).power or size > (
        MAX_STABLE_SORTED if stable else MAX_SORTED
    ):
        raise NotLowerable
    if axis == len(x.shape) - 1:
        source, targets = (
            builder.dense_view(x),
            [builder.allocate(out), builder.allocate(index)],
        )
        _add_sort(builder, op, source, targets, size, descending)
        return
    order = [*(k for k in range(len(x.shape)) if k != axis), axis]
    shape = tuple(x.shape[k] for k in order)
    transposed_x, *transposed = (
        Value(v.number, shape, v.dtype, v.bytes) for v in (x, out, index)
    )
    source = builder.materialize(_permute_axes(builder.view(x), order), transposed_x)
    targets = [builder.allocate(value) for value in transposed]
    _add_sort(builder, op, source, targets, size, descending)
    inverse_order = [order.index(k) for k in range(len(order))]
    for view, value in zip(targets, (out, index), strict=True):
        builder.materialize(_permute_axes(view, inverse_order), value)


def _permute_axes(view: BufferView, order: list[int]) -> BufferView:
    shape = tuple(view.shape[k] for k in order)
    strides = tuple(view.strides[k] for k in order)
    return BufferView(view.buffer, view.offset, shape, strides)


def _add_sort(
    builder: StageBuilder,
    op: Operation,
    source: BufferView,
    targets: list[BufferView],
    size: int,
    descending: bool,
) -> None:
    """Add a stage that sorts rows.

    Args:
        targets: the sorted entries, and their old indices.
    """
    kind = TYPES[source.buffer.dtype]
    rows = builder.shape_env.product(source.shape[:-1])

    def emit(ir: FunctionBuilder, address: Address) -> None:
        ir.line(f"; {op!r}  {op.where}")
        base, *target_bases = (address(view) for view in (source, *targets))

        def load_entry(row: str, index: str) -> ElementValue:
            entry_address = ir.indexed_address(row, kind, ONE, index)
            return ElementValue(ir.emit(f"load {kind}, ptr {entry_address}"), kind, ir)

        with ir.loop(ir.size_value(rows)) as i:
            row = ir.indexed_address(base, kind, SymInt(size), i)
            sorted_row = ir.indexed_address(target_bases[0], kind, SymInt(size), i)
            order_row = ir.indexed_address(target_bases[1], "i64", SymInt(size), i)
            with ir.loop(str(size)) as k:
                x, position = load_entry(row, k), ElementValue(k, "i64", ir)
                count = LoopCarried(
                    "i32", "0", ir.fresh_name("count"), ir.fresh_name("more")
                )
                with ir.loop(str(size), [count]) as j:
                    other = load_entry(row, j)
                    is_earlier = _compare_integers(
                        "slt", ElementValue(j, "i64", ir), position
                    )
                    goes_first = is_earlier.where(
                        _sorts_before(x, other, descending) ^ 1,
                        _sorts_before(other, x, descending),
                    )
                    increment = goes_first.to("zext", "i32")
                    ir.line(f"{count.next} = add i32 {count.phi}, {increment.name}")
                index = ir.emit(f"zext i32 {count.phi} to i64")
                entry_address = ir.indexed_address(sorted_row, kind, ONE, index)
                ir.line(f"store {kind} {x.name}, ptr {entry_address}")
                entry_address = ir.indexed_address(order_row, "i64", ONE, index)
                ir.line(f"store i64 {k}, ptr {entry_address}")

    written_buffers = tuple(view.buffer for view in targets)
    builder.stages.append(Stage((source.buffer,), written_buffers, {}, emit))


def _compare_integers(predicate: str, x: ElementValue, y: ElementValue) -> ElementValue:
    return x.make(f"icmp {predicate} {x.kind} {x.name}, {y.name}", "i1")


def _sorts_before(x: ElementValue, y: ElementValue, descending: bool) -> ElementValue:
    """Tell whether a number comes before another that is not equal.

    NaN is the largest.
    """
    if x.type in ("i32", "i64"):
        return _compare_integers("sgt" if descending else "slt", x, y)
    if descending:
        return (x > y) | (x.is_nan() & (y.is_nan() ^ 1))
    return (x < y) | (y.is_nan() & (x.is_nan() ^ 1))
