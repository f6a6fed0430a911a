"""Taylor series through a record, by the jet rules of its operators."""

from __future__ import annotations

from collections.abc import Sequence

from .operations import Operation, Value, with_values
from .operators.calls import JetCall, NoRule, Series
from .reverse import Record


def series_of(
    record: Record,
    start: int,
    stop: int,
    ends: Sequence[Value],
    starts: Sequence[Value],
    series: Sequence[Series],
) -> list[Series]:
    """The series of the ends along a curve, through the operations from start to stop.

    Args:
        series: of each of the starts, its value first, all of one length.
    """
    order = len(series[0]) - 1
    known: dict[Value, Series] = dict(zip(starts, series, strict=True))

    def of(value: Value) -> Series:
        return known.get(value) or [record.tensor(value), *[None] * order]

    for i in range(start, stop):
        op = record.ops[i]
        if known.keys().isdisjoint(op.inputs) or op.operator.differentiable == ():
            continue
        if op.operator.alias:
            known[op.outputs[0]] = of(op.inputs[0])
            continue
        if op.is_complex:
            record.fail(
                f"the operator {op.operator.name} has no Taylor series of complex "
                "numbers; use jvp, or compute with real and imaginary parts"
            )
        if op.operator.random:
            record.fail(f"the operator {op.operator.name} has no Taylor series")
        args = [with_values(arg, of) for arg in op.args]
        outputs = [record.tensor(v) for v in op.outputs]
        found = _results(record, op, JetCall(args, outputs, order))
        known.update(zip(op.outputs, found, strict=True))
    return [of(value) for value in ends]


def _results(record: Record, op: Operation, call: JetCall) -> Sequence[Series]:
    rule = op.operator.jet
    if rule is None:
        record.fail(f"the operator {op.operator.name} has no rule for Taylor series")
    assert rule is not None
    try:
        found: Sequence[Series] = rule(call)
    except NoRule as error:
        record.fail(f"{op.operator.name} has no rule for {error}")
    return found
