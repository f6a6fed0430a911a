"""Passes that make programs smaller: aliases, repeated and unneeded operations."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from paddle import Tensor

from ..operators.axes import Elementwise
from ..operators.table import TABLE
from ..sizes.one_number import with_one_number
from ..tracing.common_subexpressions import CommonSubexpressions
from ..tracing.operations import Operation, Value, fresh_numbers
from .program import Program
from .reuse import memory_of


def program_of(
    ops: Iterable[Operation],
    inputs: Sequence[Value],
    constants: dict[Value, Tensor],
    outputs: Sequence[Value],
    name: str = "program",
    shared: Sequence[bool] = (),
) -> Program:
    """Return the smallest program that gives the outputs, each in memory of its own.

    Args:
        shared: tells for each output whether its memory is known to be shared.
    """
    ops = [*ops]
    fresh = fresh_numbers((*inputs, *constants), ops)
    ops, alias = _rewritten(ops, fresh)
    ends = [alias.get(v, v) for v in outputs]
    ops = needed(ops, ends)
    ops, ends = _with_copies(ops, ends, {*inputs, *constants}, shared, fresh)
    used = {v for op in ops for v in op.inputs}
    kept = {v: t for v, t in constants.items() if v in used or v in ends}
    return Program(tuple(inputs), kept, tuple(ops), tuple(ends), name)


def expanding(program: Program, made: Collection[Value]) -> Program:
    """Return the same program, with one number for each constant that is only a number.

    Args:
        made: constants that the function has made; the others may change.
    """
    own = {v: t for v, t in program.constants.items() if v in made}
    given = (*program.inputs, *program.constants)
    ops, more = with_one_number(program.ops, own, given)
    rest = {v: t for v, t in program.constants.items() if v not in made}
    return replace(program, ops=tuple(ops), constants={**rest, **more})


NAMED: dict[str, tuple[Any, ...]] = {
    "Tensor.__add__": ("add",),
    "Tensor.__sub__": ("subtract",),
    "Tensor.__mul__": ("multiply",),
    "Tensor.__truediv__": ("divide",),
    "Tensor.__matmul__": ("matmul", False, False),
}
"""The operator that one between tensors of one dtype means, and more arguments."""


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
    """Return each operation once, in its best form, and the aliases of values.

    A second pass over the result changes nothing: an operation is compared with others
    in its last form, on values that are no aliases.
    """
    common = CommonSubexpressions()
    negated: dict[Value, Value] = {}
    results = []
    for op in map(common.named, ops):
        if op.operator.alias:
            common.alias[op.outputs[0]] = op.args[0]
            continue
        if _is_negation(op) and op.args[0] in negated:
            common.alias[op.outputs[0]] = negated[op.args[0]]
            continue
        for part in _signed(_named(op), negated, fresh):
            for last in _expanded(common.named(part), fresh):
                last = common.named(last)
                if last.operator.name == "copy" or not common.is_known(last):
                    results.append(last)
                    if _is_negation(last):
                        negated[last.outputs[0]] = last.args[0]
    return results, common.alias


def needed(ops: Sequence[Operation], ends: Iterable[Value]) -> list[Operation]:
    """Return the operations that the ends depend on.

    All operations that draw random numbers are kept too.
    """
    wanted = {*ends}
    results = []
    for op in reversed(ops):
        if op.operator.random or not wanted.isdisjoint(op.outputs):
            wanted.update(op.inputs)
            results.append(op)
    return results[::-1]


def simplify(program: Program) -> Program:
    """Return the program without the results that it does not need itself.

    Differentiation of the program might need them.
    """
    wanted, results = {*program.outputs}, []
    for op in reversed(program.ops):
        op = op.operator.prune_outputs(op, wanted) if op.operator.prune_outputs else op
        wanted.update(op.inputs)
        results.append(op)
    return replace(program, ops=tuple(results[::-1]))


NEGATION = (-1.0, 0.0, True)
"""The further arguments with which ``scale`` negates."""


def _is_negation(op: Operation) -> bool:
    return op.operator.name == "scale" and op.args[1:] == NEGATION


def _may_pass(op: Operation, arg: Value) -> bool:
    """Tell whether a sign moves behind an operation that is linear in an argument.

    It moves behind arithmetic. Sums and views of a negated value equal those of the
    value itself, up to a factor.
    """
    (end,) = op.outputs
    is_product = len(op.operator.linear) > 1
    is_alike = isinstance(op.operator.axes, Elementwise) and end.shape == arg.shape
    return end.dtype == arg.dtype and (is_product or is_alike)


def _signed(
    op: Operation, negated: dict[Value, Value], fresh: Iterator[int]
) -> list[Operation]:
    """Return the same results with signs as late as possible, ideally at sums.

    ``-x + y`` is ``y - x``, and ``-x * y`` is the product, negated. A negation that
    turns out to be useless is then not needed.

    Args:
        negated: maps ``-x`` to x.
    """
    name, args = op.operator.name, [*op.args]
    is_negative = False
    if name in ("add", "subtract"):
        signs = [arg in negated for arg in args]
        signs[1] ^= name == "subtract"
        args = [negated.get(arg, arg) for arg in args]
        if signs == [True, False]:
            args.reverse()
        is_negative = all(signs)
        name = "add" if signs[0] == signs[1] else "subtract"
    for k in op.operator.linear:
        if args[k] in negated and _may_pass(op, args[k]):
            args[k], is_negative = negated[args[k]], not is_negative
    if name != op.operator.name or tuple(args) != op.args:
        op = replace(op, operator=TABLE[name], args=tuple(args))
    if not is_negative:
        return [op]
    (end,) = op.outputs
    out = Value(next(fresh), end.shape, end.dtype, end.bytes)
    last = Operation(TABLE["scale"], (out, *NEGATION), (end,), False, op.where)
    return [replace(op, outputs=(out,)), last]


LARGE = 8192
"""From this many elements on, broadcasting in Paddle costs more than a copy."""

BROADCASTING = frozenset({"add", "subtract", "multiply", "divide"})


def _expanded(op: Operation, fresh: Iterator[int]) -> list[Operation]:
    """Return it after expansions of large broadcast operands, which is faster."""
    shape = op.outputs[0].shape if op.outputs else ()
    if op.operator.name not in BROADCASTING or math.prod(shape) < LARGE:
        return [op]
    results, args = [], [*op.args]
    for i, arg in enumerate(args):
        if isinstance(arg, Value) and arg.shape != shape:
            scale = math.prod(shape) // max(math.prod(arg.shape), 1)
            args[i] = out = Value(next(fresh), shape, arg.dtype, arg.bytes * scale)
            given = (arg, [*shape])
            results.append(Operation(TABLE["expand"], given, (out,), False, op.where))
    return [*results, replace(op, args=tuple(args))]


def _with_copies(
    ops: list[Operation],
    ends: list[Value],
    given: set[Value],
    shared: Sequence[bool],
    fresh: Iterator[int],
) -> tuple[list[Operation], list[Value]]:
    """Return outputs that share no memory with inputs, constants or each other."""
    memory = memory_of(ops)
    taken: set[Value] = set()
    results = []
    for i, end in enumerate(ends):
        root = memory.get(end, end)
        if root in given or root in taken or (shared and shared[i]):
            copy = Value(next(fresh), end.shape, end.dtype, end.bytes)
            ops.append(Operation(TABLE["copy"], (end,), (copy,), False, ""))
            results.append(copy)
        else:
            taken.add(root)
            results.append(end)
    return ops, results
