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
    ops, alias = _without_twins(map(_named, ops))
    ops = _with_differences(ops)
    ends = [alias.get(v, v) for v in outputs]
    ops = needed(ops, ends)
    known = [v.number for v in (*inputs, *constants)]
    known += [v.number for op in ops for v in (*op.inputs, *op.outputs)]
    fresh = itertools.count(1 + max(known, default=0))
    ops = _with_expansions(ops, fresh)
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


def _without_twins(
    ops: Iterable[Operation],
) -> tuple[list[Operation], dict[Value, Value]]:
    """Each operation once; values that are others under another name."""
    twins = Twins()
    found = []
    for op in map(twins.named, ops):
        if op.operator.alias:
            twins.alias[op.outputs[0]] = op.args[0]
        elif op.operator.name == "copy" or not twins.is_known(op):
            found.append(op)
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


def _with_differences(ops: Sequence[Operation]) -> list[Operation]:
    """``y - x`` for ``-x + y``, which is the same number."""
    negated = {
        op.outputs[0]: op.args[0]
        for op in ops
        if op.operator.name == "scale" and op.args[1:] == (-1.0, 0.0, True)
    }
    found = []
    for op in ops:
        if op.operator.name == "add":
            x, y = op.args
            x, y = (y, x) if y in negated else (x, y)
            if x in negated:
                op = replace(op, operator=TABLE["subtract"], args=(y, negated[x]))
        found.append(op)
    return found


LARGE = 8192
"""Elements from which on Paddle's broadcasting costs more than to copy the operand."""

BROADCASTING = frozenset({"add", "subtract", "multiply", "divide"})


def _with_expansions(ops: Sequence[Operation], fresh: Iterator[int]) -> list[Operation]:
    """Large operands that are broadcast expanded first, for the same numbers sooner."""
    expanded: dict[tuple[Value, tuple[int, ...]], Value] = {}
    found = []
    for op in ops:
        if op.operator.name in BROADCASTING and math.prod(op.outputs[0].shape) >= LARGE:
            shape = op.outputs[0].shape
            args = list(op.args)
            for i, arg in enumerate(args):
                if not isinstance(arg, Value) or arg.shape == shape:
                    continue
                if (arg, shape) not in expanded:
                    scale = math.prod(shape) // max(math.prod(arg.shape), 1)
                    out = Value(next(fresh), shape, arg.dtype, arg.bytes * scale)
                    expanded[arg, shape] = out
                    expand = (arg, [*shape])
                    found.append(
                        Operation(TABLE["expand"], expand, (out,), False, op.where)
                    )
                args[i] = expanded[arg, shape]
            op = replace(op, args=tuple(args))
        found.append(op)
    return found


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
