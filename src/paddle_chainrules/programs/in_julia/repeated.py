"""Arithmetic that is cheaper to repeat within a loop than to keep its results.

A loop of Julia's over large arrays takes as long as its memory, so that a result of few
additions and products costs less where it is computed anew from what is read anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from ..operations import Operation, Value
from ..program import Program
from ..split import There
from .call import ELEMENTWISE

ARITHMETIC = frozenset(
    {
        *("add", "subtract", "multiply", "scale", "square", "Tensor.__rsub__"),
        *("Tensor.__add__", "Tensor.__radd__", "Tensor.__sub__"),
        *("Tensor.__mul__", "Tensor.__rmul__"),
    }
)
"""Operators that cost less than to read their result."""

MOST = 4
"""Operations that are repeated for a result."""


def takers_of(ops: Iterable[Operation]) -> dict[Value, list[Operation]]:
    """The operations that take a value, by value."""
    found: dict[Value, list[Operation]] = {}
    for op in ops:
        for value in op.inputs:
            found.setdefault(value, []).append(op)
    return found


def goes_into(taker: Operation, value: Value) -> bool:
    """Whether an operation's expression has place for one of a value."""
    inner = taker.operator.name in ELEMENTWISE
    return inner and taker.outputs[0].shape == value.shape


def without_repeated(there: There) -> There:
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
    return there.again(again)


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
    return op.operator.name in ARITHMETIC and all(v.shape == shape for v in op.inputs)


class Repeated:
    """Which results of a program are written again wherever they are taken.

    Those are not its outputs, and what takes them has place for an expression.
    """

    def __init__(self, program: Program) -> None:
        self._takers = takers_of(program.ops)
        self._outputs = {*program.outputs}
        self._steps: dict[Value, int] = {}

    def __contains__(self, op: Operation) -> bool:
        """To be asked for each operation in its turn."""
        out = op.outputs[0]
        steps = 1 + sum(self._steps.get(v, 0) for v in op.inputs)
        if not is_arithmetic(op) or steps > MOST:
            return False
        takers = self._takers.get(out, ())
        if out in self._outputs or not takers:
            return False
        if not all(goes_into(taker, out) for taker in takers):
            return False
        self._steps[out] = steps
        return True
