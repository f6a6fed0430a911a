"""Arithmetic that is cheaper to repeat within a loop than to keep its results.

The time of a loop over large arrays is that of its memory accesses. So a result of few
additions and products costs less if it is computed again from inputs that are read
anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ..tracing.operations import Operation, Value
from .split import ForwardBackward

MAX_REPEATED_OPS = 4
"""The most operations that are repeated for a result."""

CanFuse = Callable[[Operation, Value], bool]
"""A function of an operation and one of its inputs.

It tells if the operation goes into one loop with the producer of the input.
"""


def users_of(ops: Iterable[Operation]) -> dict[Value, list[Operation]]:
    """Return the operations that use each value."""
    users: dict[Value, list[Operation]] = {}
    for op in ops:
        for value in op.inputs:
            users.setdefault(value, []).append(op)
    return users


def recompute_cheap_residuals(
    forward_backward: ForwardBackward, can_fuse: CanFuse
) -> ForwardBackward:
    """Drop residuals that the backward pass recomputes more cheaply."""
    saved, backward_ops = forward_backward.residuals_and_backward
    producers = {op.outputs[0]: op for op in forward_backward.forward.ops}
    users = users_of(backward_ops)
    residuals, recomputed = {*saved}, set[Value]()
    for value in saved:
        residuals.discard(value)
        chain = _recomputed_values(value, producers.get, residuals)
        if chain and all(can_fuse(op, value) for op in users.get(value, ())):
            recomputed |= chain
        else:
            residuals.add(value)
    return forward_backward.recomputing(recomputed) if recomputed else forward_backward


def _recomputed_values(
    value: Value,
    producer: Callable[[Value], Operation | None],
    residuals: Collection[Value],
) -> set[Value]:
    """Return the values to recompute for a value, itself too; none if too many."""
    results: set[Value] = set()
    worklist, op_count = [value], 0
    while worklist:
        current = worklist.pop()
        if current in residuals:
            continue
        op = producer(current)
        op_count += 1
        if op is None or not is_arithmetic(op) or op_count > MAX_REPEATED_OPS:
            return set()
        results.add(current)
        worklist.extend(op.inputs)
    return results


def is_arithmetic(op: Operation) -> bool:
    """Tell whether an operation may be repeated."""
    shape = op.outputs[0].shape
    return op.operator.cheap and all(v.shape == shape for v in op.inputs)
