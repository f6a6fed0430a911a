"""Indices of maxima and minima, and running extremes, along lines."""

from __future__ import annotations

from ....paddle_side.dtypes import FLOATS
from ...tracing.operations import Operation
from ..elements.number import ElementValue
from ..elements.scalars import NotLowerable
from ..extents import ONE
from ..ir_builder import BYTES
from ..lowering import StageBuilder, lowering_rule
from .along import CarryInit, ScanInputs, ScanOutputs, ScanSpec, add_scan
from .running import LOWEST, split_along

HIGHEST = {"float32": "0x47EFFFFFE0000000", "float64": "0x7FEFFFFFFFFFFFFF"}
"""The largest finite numbers."""

INTEGERS = frozenset({"int32", "int64"})


def _initial_extreme(dtype: str, largest: bool, infinite: bool = False) -> CarryInit:
    """Return the initial value of a running maximum or minimum."""
    if dtype in INTEGERS:
        bits = 8 * BYTES[dtype] - 1
        return CarryInit(dtype, str(-(2**bits) if largest else 2**bits - 1))
    if dtype not in FLOATS:
        raise NotLowerable
    if infinite:
        return CarryInit(dtype, f"0x{'F' if largest else '7'}FF0000000000000")
    return CarryInit(dtype, (LOWEST if largest else HIGHEST)[dtype])


def _compare_values(predicate: str, x: ElementValue, y: ElementValue) -> ElementValue:
    """Tell whether ``gt``, ``ge``, ``lt`` or ``le`` holds, for numbers of any type."""
    comparison = (
        f"icmp s{predicate}" if x.type in ("i32", "i64") else f"fcmp o{predicate}"
    )
    return x.make(f"{comparison} {x.kind} {x.name}, {y.name}", "i1")


def _index_as(index: ElementValue, type: str) -> ElementValue:
    return index if type == "i64" else index.to("trunc", type)


@lowering_rule("argmax", "argmin")
def _lower_argmax(builder: StageBuilder, op: Operation) -> None:
    """Find the first of equal extremes, but never NaN, as in Paddle."""
    x, axis, *_ = op.args
    (out,) = op.outputs
    largest = op.operator.name == "argmax"
    if out.dtype not in INTEGERS:
        raise NotLowerable
    inits = [CarryInit(out.dtype, "0"), _initial_extreme(x.dtype, largest)]
    split = split_along(builder, x, axis, axis is None)

    def body(inputs: ScanInputs) -> ScanOutputs:
        (x,), (best_index, best) = inputs.entries, inputs.carry
        is_better = _compare_values("gt" if largest else "lt", x, best)
        position = _index_as(inputs.position, best_index.type)
        return ScanOutputs(
            [is_better.where(position, best_index), is_better.where(x, best)]
        )

    spec = ScanSpec(split, inits, at_end=True)
    add_scan(builder, op, spec, [builder.dense_view(x)], [builder.allocate(out)], body)


MAX_CONTIGUOUS_LINE = 32
"""The most entries of a line that is contiguous.

In longer lines Paddle's kernels find the running maximum in half the time.
"""


@lowering_rule("cummax", "cummin")
def _lower_cummax(builder: StageBuilder, op: Operation) -> None:
    """Find the last of equal extremes; none after NaN."""
    x, axis, _ = op.args
    out, index = op.outputs
    largest = op.operator.name == "cummax"
    if index.dtype not in INTEGERS or out.dtype != x.dtype:
        raise NotLowerable
    split = split_along(builder, x, axis)
    if split.inner == ONE and (
        split.size.power or split.size.factor > MAX_CONTIGUOUS_LINE
    ):
        raise NotLowerable
    inits = [
        _initial_extreme(x.dtype, largest, infinite=True),
        CarryInit(index.dtype, "0"),
    ]

    def body(inputs: ScanInputs) -> ScanOutputs:
        (x,), (best, best_index) = inputs.entries, inputs.carry
        is_better = _compare_values("ge" if largest else "le", x, best)
        if x.type in ("float", "double"):
            is_better = is_better | x.is_nan()
        result = is_better.where(x, best)
        result_index = is_better.where(
            _index_as(inputs.position, best_index.type), best_index
        )
        return ScanOutputs([result, result_index], [result, result_index])

    targets = [builder.allocate(out), builder.allocate(index)]
    add_scan(
        builder, op, ScanSpec(split, inits), [builder.dense_view(x)], targets, body
    )
