"""Sorting of short rows: each entry goes to the index that counts those before it."""

from __future__ import annotations

from ...tracing.operations import Operation, Value
from ..elements.number import ElementValue
from ..elements.scalars import FLOATS, NotLowerable
from ..extents import ONE, SymInt
from ..ir_builder import TYPES, FunctionBuilder, LoopCarried
from ..lowering import Address, Stage, StageBuilder, written_as
from ..views import BufferView

EVERY, STABLE = 16, 48
"""The most entries of a row that is sorted here, without and with stable order.

Paddle leaves equal ones in their order up to the first number. In longer rows it does
so where it is asked to.
"""


@written_as("argsort")
def _argsort_loop(steps: StageBuilder, op: Operation) -> None:
    x, axis, descending, stable = op.args
    out, index = op.outputs
    is_known = x.dtype in FLOATS or x.dtype in ("int32", "int64")
    if not x.shape or not is_known or index.dtype != "int64" or out.dtype != x.dtype:
        raise NotLowerable
    axis %= len(x.shape)
    size = x.shape[axis]
    if steps.sizes.of(size).power or size > (STABLE if stable else EVERY):
        raise NotLowerable
    if axis == len(x.shape) - 1:
        source, ends = steps.dense(x), [steps.new(out), steps.new(index)]
        _sort(steps, op, source, ends, size, descending)
        return
    order = [*(k for k in range(len(x.shape)) if k != axis), axis]
    shape = tuple(x.shape[k] for k in order)
    row, *made = (Value(v.number, shape, v.dtype, v.bytes) for v in (x, out, index))
    source = steps.copied(_in_order(steps.view(x), order), row)
    ends = [steps.new(value) for value in made]
    _sort(steps, op, source, ends, size, descending)
    back = [order.index(k) for k in range(len(order))]
    for view, value in zip(ends, (out, index), strict=True):
        steps.copied(_in_order(view, back), value)


def _in_order(view: BufferView, order: list[int]) -> BufferView:
    shape = tuple(view.shape[k] for k in order)
    strides = tuple(view.strides[k] for k in order)
    return BufferView(view.memory, view.offset, shape, strides)


def _sort(
    steps: StageBuilder,
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
    kind = TYPES[source.memory.dtype]
    rows = steps.sizes.product(source.shape[:-1])

    def write(text: FunctionBuilder, address: Address) -> None:
        text.line(f"; {op!r}  {op.where}")
        first, *to = (address(view) for view in (source, *ends))

        def loaded(row: str, place: str) -> ElementValue:
            at = text.along(row, kind, ONE, place)
            return ElementValue(text.emit(f"load {kind}, ptr {at}"), kind, text)

        with text.loop(text.number(rows)) as i:
            row = text.along(first, kind, SymInt(size), i)
            numbers = text.along(to[0], kind, SymInt(size), i)
            places = text.along(to[1], "i64", SymInt(size), i)
            with text.loop(str(size)) as k:
                x, here = loaded(row, k), ElementValue(k, "i64", text)
                count = LoopCarried("i32", "0", text.name("count"), text.name("more"))
                with text.loop(str(size), [count]) as j:
                    other = loaded(row, j)
                    is_earlier = _compared("slt", ElementValue(j, "i64", text), here)
                    goes_first = is_earlier.where(
                        _before(x, other, descending) ^ 1, _before(other, x, descending)
                    )
                    one = goes_first.to("zext", "i32")
                    text.line(f"{count.next} = add i32 {count.now}, {one.name}")
                place = text.emit(f"zext i32 {count.now} to i64")
                at = text.along(numbers, kind, ONE, place)
                text.line(f"store {kind} {x.name}, ptr {at}")
                at = text.along(places, "i64", ONE, place)
                text.line(f"store i64 {k}, ptr {at}")

    made = tuple(view.memory for view in ends)
    steps.found.append(Stage((source.memory,), made, {}, write))


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
