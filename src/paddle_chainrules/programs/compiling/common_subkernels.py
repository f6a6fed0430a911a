"""Operators that other operators contain, computed once where a program has both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..operators.table import TABLE
from ..tracing.operations import Operation, Value


def share_subkernels(ops: Sequence[Operation]) -> Sequence[Operation]:
    """Compute ``x * sigmoid(x)`` once where there is ``silu(x)`` too.

    The bits are the same. Derivatives of ``silu`` have both.
    """
    sigmoids: dict[Value, Operation] = {}
    silus: set[Value] = set()
    for op in ops:
        if op.operator.name == "sigmoid" and not op.is_complex:
            sigmoids.setdefault(op.args[0], op)
        elif op.operator.name == "silu":
            silus.add(op.args[0])
    shared_inputs = silus.intersection(sigmoids)
    if not shared_inputs:
        return ops
    results: list[Operation] = []
    emitted: set[Operation] = set()
    for op in ops:
        if op in emitted:
            continue
        x = op.args[0] if op.args else None
        if op.operator.name == "silu" and x in shared_inputs:
            if sigmoids[x] not in emitted:
                emitted.add(sigmoids[x])
                results.append(sigmoids[x])
            sigmoid = sigmoids[x].outputs[0]
            op = replace(op, operator=TABLE["multiply"], args=(x, sigmoid))
        emitted.add(op)
        results.append(op)
    return results
