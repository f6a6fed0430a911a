"""Outside dependencies of a recorded function's results, to differentiate by.

Its free variables are tensors from elsewhere that require gradients and are not
arguments.
"""

from __future__ import annotations

from collections.abc import Iterable

from paddle import Tensor

from .operations import Value, read
from .record import Tracer


def outside(record: Tracer) -> tuple[set[Value], list[Tensor]]:
    """Return the values that depend on outside tensors, and those tensors.

    Outside tensors are arguments or free variables that required gradients before. Only
    the free variables are returned.
    """
    free = from_outside(record)
    reached = reached_from(record, [*free, *filter(record.required, record.inputs)])
    return reached, [record.constants[v] for v in free]


def from_outside(record: Tracer) -> list[Value]:
    """Return the constants that require gradients."""
    dummies = {*map(id, record.dummies)}
    constants = filter(record.required, record.constants)
    return [v for v in constants if id(record.constants[v]) not in dummies]


def reached_from(record: Tracer, starts: Iterable[Value]) -> set[Value]:
    """Return the values that have gradients by some of these, themselves among them."""
    reached = {*starts}
    for op, taped in zip(record.ops, record.taped, strict=True):
        if taped and not reached.isdisjoint(read(op)):
            reached.update(filter(record.requires, op.outputs))
    return reached
