"""Places of the largest and the least, and running extremes, along lines."""

from __future__ import annotations

from ...tracing.operations import Operation
from ..elements.number import ElementValue
from ..elements.scalars import FLOATS, NotLowerable
from ..extents import ONE
from ..ir_builder import BYTES
from ..lowering import StageBuilder, lowers
from .along import CarryInit, ScanInputs, ScanOutputs, ScanSpec, emit_scan
from .running import LOWEST, lines_along

HIGHEST = {"float32": "0x47EFFFFFE0000000", "float64": "0x7FEFFFFFFFFFFFFF"}
"""The largest finite numbers."""

INTEGERS = frozenset({"int32", "int64"})


def _beyond(dtype: str, largest: bool, infinite: bool = False) -> CarryInit:
    """Return a start that no number is below, or above where the least is sought."""
    if dtype in INTEGERS:
        bits = 8 * BYTES[dtype] - 1
        return CarryInit(dtype, str(-(2**bits) if largest else 2**bits - 1))
    if dtype not in FLOATS:
        raise NotLowerable
    if infinite:
        return CarryInit(dtype, f"0x{'F' if largest else '7'}FF0000000000000")
    return CarryInit(dtype, (LOWEST if largest else HIGHEST)[dtype])


def _compared(how: str, x: ElementValue, y: ElementValue) -> ElementValue:
    """Tell whether ``gt``, ``ge``, ``lt`` or ``le`` holds, for numbers of any type."""
    compared = f"icmp s{how}" if x.type in ("i32", "i64") else f"fcmp o{how}"
    return x.make(f"{compared} {x.kind} {x.name}, {y.name}", "i1")


def _as(place: ElementValue, type: str) -> ElementValue:
    return place if type == "i64" else place.to("trunc", type)


@lowers("argmax", "argmin")
def _argmax_loop(builder: StageBuilder, op: Operation) -> None:
    """Find the first of equal extremes, but never NaN, as in Paddle."""
    x, axis, *_ = op.args
    (out,) = op.outputs
    largest = op.operator.name == "argmax"
    if out.dtype not in INTEGERS:
        raise NotLowerable
    starts = [CarryInit(out.dtype, "0"), _beyond(x.dtype, largest)]
    lines = lines_along(builder, x, axis, axis is None)

    def body(at: ScanInputs) -> ScanOutputs:
        (x,), (place, most) = at.read, at.now
        better = _compared("gt" if largest else "lt", x, most)
        here = _as(at.place, place.type)
        return ScanOutputs([better.where(here, place), better.where(x, most)])

    spec = ScanSpec(lines, starts, at_end=True)
    emit_scan(builder, op, spec, [builder.dense_view(x)], [builder.allocate(out)], body)


SHORT = 32
"""The most places of a line that lies by itself.

In longer lines Paddle's kernels find the running maximum in half the time.
"""


@lowers("cummax", "cummin")
def _cummax_loop(builder: StageBuilder, op: Operation) -> None:
    """Find the last of equal extremes; none after NaN."""
    x, axis, _ = op.args
    out, index = op.outputs
    largest = op.operator.name == "cummax"
    if index.dtype not in INTEGERS or out.dtype != x.dtype:
        raise NotLowerable
    lines = lines_along(builder, x, axis)
    if lines.inner == ONE and (lines.size.power or lines.size.factor > SHORT):
        raise NotLowerable
    starts = [_beyond(x.dtype, largest, infinite=True), CarryInit(index.dtype, "0")]

    def body(at: ScanInputs) -> ScanOutputs:
        (x,), (most, place) = at.read, at.now
        better = _compared("ge" if largest else "le", x, most)
        if x.type in ("float", "double"):
            better = better | x.is_nan()
        result = better.where(x, most)
        where = better.where(_as(at.place, place.type), place)
        return ScanOutputs([result, where], [result, where])

    made = [builder.allocate(out), builder.allocate(index)]
    emit_scan(builder, op, ScanSpec(lines, starts), [builder.dense_view(x)], made, body)
