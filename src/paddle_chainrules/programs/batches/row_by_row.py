"""Checks that operations work row by row, as far as entries and arguments show it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..tracing.operations import Operation, Value


def is_row_by_row(ops: Iterable[Operation], row_values: Sequence[Value]) -> bool:
    """Tell whether each row of a result is made of the same row alone.

    False where that does not show.

    Args:
        row_values: values whose leading axes, all but the last, are rows.
    """
    shapes = {x.shape[:-1] if len(x.shape) > 1 else x.shape for x in row_values}
    if len(shapes) != 1:
        return False
    rows = shapes.pop()
    by_rows = {*row_values}
    for op in ops:
        row_inputs = [v for v in op.inputs if v in by_rows]
        if not row_inputs:
            continue
        if not all(v.shape[: len(rows)] == rows for v in (*row_inputs, *op.outputs)):
            return False
        axes, named = op.operator.axes, op.named
        if not axes.keeps_rows(named, row_inputs, op.outputs, len(rows)):
            return False
        by_rows.update(op.outputs)
    return True
