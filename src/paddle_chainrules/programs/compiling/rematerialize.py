"""Arithmetic that is cheaper to repeat within a loop than to keep its results.

The time of a loop over large arrays is that of its memory accesses. So a result of few
additions and products costs less if it is computed again from inputs that are read
anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ..tracing.operations import Operation, Value
from .split import ForwardBackward

MOST = 4
"""The most operations that are repeated for a result."""

Taking = Callable[[Operation, Value], bool]
"""A function of an operation and a value that it takes.

It tells if the operation goes into one loop with the operation that gives the value.
"""


def takers_of(ops: Iterable[Operation]) -> dict[Value, list[Operation]]:
    """Return the operations that take a value, by value."""
    results: dict[Value, list[Operation]] = {}
    for op in ops:
        for value in op.inputs:
            results.setdefault(value, []).append(op)
    return results


def recompute_cheap_residuals(
    forward_backward: ForwardBackward, goes_into: Taking
) -> ForwardBackward:
    """Return a forward pass that keeps no results which the backward pass repeats."""
    saved, rest = forward_backward.residuals_and_backward
    made = {op.outputs[0]: op for op in forward_backward.forward.ops}
    takers = takers_of(rest)
    kept, again = {*saved}, set[Value]()
    for value in saved:
        kept.discard(value)
        result = _path(value, made.get, kept)
        if result and all(goes_into(op, value) for op in takers.get(value, ())):
            again |= result
        else:
            kept.add(value)
    return forward_backward.again(again) if again else forward_backward


def _path(
    value: Value, made: Callable[[Value], Operation | None], kept: Collection[Value]
) -> set[Value]:
    """Return the values to repeat for a value, itself included; none if too many."""
    results: set[Value] = set()
    waiting, steps = [value], 0
    while waiting:
        last = waiting.pop()
        if last in kept:
            continue
        op = made(last)
        steps += 1
        if op is None or not is_arithmetic(op) or steps > MOST:
            return set()
        results.add(last)
        waiting.extend(op.inputs)
    return results


def is_arithmetic(op: Operation) -> bool:
    """Tell whether an operation may be repeated."""
    shape = op.outputs[0].shape
    return op.operator.cheap and all(v.shape == shape for v in op.inputs)
