"""What a recorded function's results depend on, for who differentiates from outside.

Its free variables are tensors from elsewhere: those that require gradients and are no
arguments.
"""

from __future__ import annotations

from paddle import Tensor

from .operations import Value
from .record import Record


def outside(record: Record) -> tuple[set[Value], list[Tensor]]:
    """Values that depend on what required gradients before, and what no argument is."""
    dummies = {*map(id, record.dummies)}
    constants = filter(record.required, record.constants)
    free = [v for v in constants if id(record.constants[v]) not in dummies]
    reached = {*free, *filter(record.required, record.inputs)}
    for op, taped in zip(record.ops, record.taped, strict=True):
        if taped and not reached.isdisjoint(op.inputs):
            reached.update(filter(record.requires, op.outputs))
    return reached, [record.constants[v] for v in free]
