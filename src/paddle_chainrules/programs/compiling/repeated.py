"""Arithmetic that is cheaper to repeat within a loop than to keep its results.

A loop over large arrays takes as long as its memory, so that a result of few additions
and products costs less where it is computed anew from what is read anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ..tracing.operations import Operation, Value
from .split import There

MOST = 4
"""Operations that are repeated for a result."""

Taking = Callable[[Operation, Value], bool]
"""Whether an operation goes into one loop with what gives it a value."""


def takers_of(ops: Iterable[Operation]) -> dict[Value, list[Operation]]:
    """The operations that take a value, by value."""
    found: dict[Value, list[Operation]] = {}
    for op in ops:
        for value in op.inputs:
            found.setdefault(value, []).append(op)
    return found


def without_repeated(there: There, goes_into: Taking) -> There:
    """A way there that keeps no results which the way back repeats."""
    saved, rest = there.kept
    made = {op.outputs[0]: op for op in there.forward.ops}
    takers = takers_of(rest)
    kept, again = {*saved}, set[Value]()
    for value in saved:
        kept.discard(value)
        found = _path(value, made.get, kept)
        if found and all(goes_into(op, value) for op in takers.get(value, ())):
            again |= found
        else:
            kept.add(value)
    return there.again(again) if again else there


def _path(
    value: Value, made: Callable[[Value], Operation | None], kept: Collection[Value]
) -> set[Value]:
    """What is repeated for a value, itself included; nothing if it is too much."""
    found: set[Value] = set()
    waiting, steps = [value], 0
    while waiting:
        last = waiting.pop()
        if last in kept:
            continue
        op = made(last)
        steps += 1
        if op is None or not is_arithmetic(op) or steps > MOST:
            return set()
        found.add(last)
        waiting.extend(op.inputs)
    return found


def is_arithmetic(op: Operation) -> bool:
    """Whether an operation may be repeated."""
    shape = op.outputs[0].shape
    return op.operator.cheap and all(v.shape == shape for v in op.inputs)
