"""Sorting of short rows: each entry goes to the index that counts those before it."""

from __future__ import annotations

from ...tracing.operations import Operation, Value
from ..elements.number import ElementValue
from ..elements.scalars import FLOATS, NotLowerable
from ..extents import ONE, SymInt
from ..ir_builder import TYPES, FunctionBuilder, LoopCarried
from ..lowering import Address, Stage, StageBuilder, lowers
from ..views import BufferView

EVERY, STABLE = 16, 48
"""The most entries of a row that is sorted here, without and with stable order.

Paddle leaves equal ones in their order up to the first number. In longer rows it does
so where it is asked to.
"""


@lowers("argsort")
def _argsort_loop(builder: StageBuilder, op: Operation) -> None:
    x, axis, descending, stable = op.args
    out, index = op.outputs
    is_known = x.dtype in FLOATS or x.dtype in ("int32", "int64")
    if not x.shape or not is_known or index.dtype != "int64" or out.dtype != x.dtype:
        raise NotLowerable
    axis %= len(x.shape)
    size = x.shape[axis]
    if builder.shape_env.extent(size).power or size > (STABLE if stable else EVERY):
        raise NotLowerable
    if axis == len(x.shape) - 1:
        source, ends = (
            builder.dense_view(x),
            [builder.allocate(out), builder.allocate(index)],
        )
        _sort(builder, op, source, ends, size, descending)
        return
    order = [*(k for k in range(len(x.shape)) if k != axis), axis]
    shape = tuple(x.shape[k] for k in order)
    row, *made = (Value(v.number, shape, v.dtype, v.bytes) for v in (x, out, index))
    source = builder.materialize(_in_order(builder.view(x), order), row)
    ends = [builder.allocate(value) for value in made]
    _sort(builder, op, source, ends, size, descending)
    back = [order.index(k) for k in range(len(order))]
    for view, value in zip(ends, (out, index), strict=True):
        builder.materialize(_in_order(view, back), value)


def _in_order(view: BufferView, order: list[int]) -> BufferView:
    shape = tuple(view.shape[k] for k in order)
    strides = tuple(view.strides[k] for k in order)
    return BufferView(view.buffer, view.offset, shape, strides)


def _sort(
    builder: StageBuilder,
    op: Operation,
    source: BufferView,
    ends: list[BufferView],
    size: int,
    descending: bool,
) -> None:
    """Add a step that sorts rows.

    Args:
        ends: the sorted entries, and their old places.
    """
    kind = TYPES[source.buffer.dtype]
    rows = builder.shape_env.product(source.shape[:-1])

    def write(ir: FunctionBuilder, address: Address) -> None:
        ir.line(f"; {op!r}  {op.where}")
        first, *to = (address(view) for view in (source, *ends))

        def loaded(row: str, place: str) -> ElementValue:
            at = ir.indexed_address(row, kind, ONE, place)
            return ElementValue(ir.emit(f"load {kind}, ptr {at}"), kind, ir)

        with ir.loop(ir.size_value(rows)) as i:
            row = ir.indexed_address(first, kind, SymInt(size), i)
            numbers = ir.indexed_address(to[0], kind, SymInt(size), i)
            places = ir.indexed_address(to[1], "i64", SymInt(size), i)
            with ir.loop(str(size)) as k:
                x, here = loaded(row, k), ElementValue(k, "i64", ir)
                count = LoopCarried(
                    "i32", "0", ir.fresh_name("count"), ir.fresh_name("more")
                )
                with ir.loop(str(size), [count]) as j:
                    other = loaded(row, j)
                    is_earlier = _compared("slt", ElementValue(j, "i64", ir), here)
                    goes_first = is_earlier.where(
                        _before(x, other, descending) ^ 1, _before(other, x, descending)
                    )
                    one = goes_first.to("zext", "i32")
                    ir.line(f"{count.next} = add i32 {count.phi}, {one.name}")
                place = ir.emit(f"zext i32 {count.phi} to i64")
                at = ir.indexed_address(numbers, kind, ONE, place)
                ir.line(f"store {kind} {x.name}, ptr {at}")
                at = ir.indexed_address(places, "i64", ONE, place)
                ir.line(f"store i64 {k}, ptr {at}")

    made = tuple(view.buffer for view in ends)
    builder.stages.append(Stage((source.buffer,), made, {}, write))


def _compared(how: str, x: ElementValue, y: ElementValue) -> ElementValue:
    return x.make(f"icmp {how} {x.kind} {x.name}, {y.name}", "i1")


def _before(x: ElementValue, y: ElementValue, descending: bool) -> ElementValue:
    """Tell whether a number comes before another that is not equal.

    NaN is the largest.
    """
    if x.type in ("i32", "i64"):
        return _compared("sgt" if descending else "slt", x, y)
    if descending:
        return (x > y) | (x.is_nan() & (y.is_nan() ^ 1))
    return (x < y) | (y.is_nan() & (x.is_nan() ^ 1))
