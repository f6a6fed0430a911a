"""Checks that operations work row by row, as far as entries and arguments show it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..tracing.operations import Operation, Value


def is_row_by_row(ops: Iterable[Operation], moved: Sequence[Value]) -> bool:
    """Tell whether each row of a result is made of the same row alone.

    False where that does not show.

    Args:
        moved: values whose leading axes, all but the last, are rows.
    """
    shapes = {x.shape[:-1] if len(x.shape) > 1 else x.shape for x in moved}
    if len(shapes) != 1:
        return False
    rows = shapes.pop()
    by_rows = {*moved}
    for op in ops:
        given = [v for v in op.inputs if v in by_rows]
        if not given:
            continue
        if not all(v.shape[: len(rows)] == rows for v in (*given, *op.outputs)):
            return False
        axes, named = op.operator.axes, op.named
        if not axes.keeps_rows(named, given, op.outputs, len(rows)):
            return False
        by_rows.update(op.outputs)
    return True
