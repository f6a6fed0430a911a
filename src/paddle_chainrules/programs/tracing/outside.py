"""Outside dependencies of a traced function's results, to differentiate by.

Its free variables are tensors from elsewhere that require gradients and are not
arguments.
"""

from __future__ import annotations

from collections.abc import Iterable

from paddle import Tensor

from .operations import Value, inputs_read
from .record import Tracer


def outside_dependencies(tracer: Tracer) -> tuple[set[Value], list[Tensor]]:
    """Return the values that depend on outside tensors, and those tensors.

    Outside tensors are arguments or free variables that required gradients before. Only
    the free variables are returned.
    """
    free_variables = outside_constants(tracer)
    reached = values_reached_from(
        tracer, [*free_variables, *filter(tracer.required, tracer.inputs)]
    )
    return reached, [tracer.constants[v] for v in free_variables]


def outside_constants(tracer: Tracer) -> list[Value]:
    """Return the constants that require gradients."""
    dummies = {*map(id, tracer.dummies)}
    constants = filter(tracer.required, tracer.constants)
    return [v for v in constants if id(tracer.constants[v]) not in dummies]


def values_reached_from(tracer: Tracer, starts: Iterable[Value]) -> set[Value]:
    """Return the values that have gradients by some of these, themselves among them."""
    reached = {*starts}
    for op, taped in zip(tracer.ops, tracer.taped, strict=True):
        if taped and not reached.isdisjoint(inputs_read(op)):
            reached.update(filter(tracer.requires, op.outputs))
    return reached
