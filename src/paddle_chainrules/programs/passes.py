"""Programs made smaller: aliases, what is computed twice, what is not needed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from paddle import Tensor

from .operations import Operation, Value
from .operators.table import TABLE
from .program import Program
from .reuse import memory_of
from .twins import Twins


def program_of(
    ops: Iterable[Operation],
    inputs: Sequence[Value],
    constants: dict[Value, Tensor],
    outputs: Sequence[Value],
    name: str = "program",
    shared: Sequence[bool] = (),
) -> Program:
    """The least program that gives the outputs, each in memory of its own.

    Args:
        shared: of each output whether its memory is known to be another's.
    """
    ops = [*ops]
    known = [v.number for v in (*inputs, *constants)]
    known += [v.number for op in ops for v in (*op.inputs, *op.outputs)]
    fresh = itertools.count(1 + max(known, default=0))
    ops, alias = _rewritten(ops, fresh)
    ends = [alias.get(v, v) for v in outputs]
    ops = needed(ops, ends)
    ops, ends = _with_copies(ops, ends, {*inputs, *constants}, shared, fresh)
    used = {v for op in ops for v in op.inputs}
    kept = {v: t for v, t in constants.items() if v in used or v in ends}
    return Program(tuple(inputs), kept, tuple(ops), tuple(ends), name)


NAMED: dict[str, tuple[Any, ...]] = {
    "Tensor.__add__": ("add",),
    "Tensor.__sub__": ("subtract",),
    "Tensor.__mul__": ("multiply",),
    "Tensor.__truediv__": ("divide",),
    "Tensor.__matmul__": ("matmul", False, False),
}
"""What an operator between tensors of one dtype comes down to, and more arguments."""


def _named(op: Operation) -> Operation:
    if op.operator.name not in NAMED or len(op.inputs) < 2:
        return op
    kinds = {v.dtype for v in (*op.inputs, *op.outputs)}
    if len(kinds) > 1 or "float" not in kinds.pop():
        return op
    name, *more = NAMED[op.operator.name]
    return replace(op, operator=TABLE[name], args=(*op.args, *more))


def _rewritten(
    ops: Iterable[Operation], fresh: Iterator[int]
) -> tuple[list[Operation], dict[Value, Value]]:
    """Each operation once, in its best form; and values that are others.

    What comes out stays as it is when it comes in again: an operation is compared with
    others in its last form, on values that are no others.
    """
    twins = Twins()
    negated: dict[Value, Value] = {}
    found = []
    for op in map(twins.named, ops):
        if op.operator.alias:
            twins.alias[op.outputs[0]] = op.args[0]
            continue
        for part in _expanded(_as_difference(_named(op), negated), fresh):
            part = twins.named(part)
            if part.operator.name == "copy" or not twins.is_known(part):
                found.append(part)
                if part.operator.name == "scale" and part.args[1:] == (-1.0, 0.0, True):
                    negated[part.outputs[0]] = part.args[0]
    return found, twins.alias


def needed(ops: Sequence[Operation], ends: Iterable[Value]) -> list[Operation]:
    """Those on which the ends depend, and all that draw random numbers."""
    wanted = {*ends}
    found = []
    for op in reversed(ops):
        if op.operator.random or not wanted.isdisjoint(op.outputs):
            wanted.update(op.inputs)
            found.append(op)
    return found[::-1]


def _as_difference(op: Operation, negated: dict[Value, Value]) -> Operation:
    """``y - x`` for ``-x + y``, which is the same number.

    Args:
        negated: of ``-x`` the x.
    """
    if op.operator.name != "add":
        return op
    x, y = op.args
    x, y = (y, x) if y in negated else (x, y)
    if x not in negated:
        return op
    return replace(op, operator=TABLE["subtract"], args=(y, negated[x]))


LARGE = 8192
"""Elements from which on Paddle's broadcasting costs more than to copy the operand."""

BROADCASTING = frozenset({"add", "subtract", "multiply", "divide"})


def _expanded(op: Operation, fresh: Iterator[int]) -> list[Operation]:
    """It, after expansions of large operands that are broadcast, which is sooner."""
    shape = op.outputs[0].shape if op.outputs else ()
    if op.operator.name not in BROADCASTING or math.prod(shape) < LARGE:
        return [op]
    found, args = [], [*op.args]
    for i, arg in enumerate(args):
        if isinstance(arg, Value) and arg.shape != shape:
            scale = math.prod(shape) // max(math.prod(arg.shape), 1)
            args[i] = out = Value(next(fresh), shape, arg.dtype, arg.bytes * scale)
            given = (arg, [*shape])
            found.append(Operation(TABLE["expand"], given, (out,), False, op.where))
    return [*found, replace(op, args=tuple(args))]


def _with_copies(
    ops: list[Operation],
    ends: list[Value],
    given: set[Value],
    shared: Sequence[bool],
    fresh: Iterator[int],
) -> tuple[list[Operation], list[Value]]:
    """Outputs that share no memory with what is given, nor with each other."""
    memory = memory_of(ops)
    taken: set[Value] = set()
    found = []
    for i, end in enumerate(ends):
        root = memory.get(end, end)
        if root in given or root in taken or (shared and shared[i]):
            copy = Value(next(fresh), end.shape, end.dtype, end.bytes)
            ops.append(Operation(TABLE["copy"], (end,), (copy,), False, ""))
            found.append(copy)
        else:
            taken.add(root)
            found.append(end)
    return ops, found
