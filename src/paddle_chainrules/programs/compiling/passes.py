"""Passes that make programs smaller: aliases, repeated and unneeded operations."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from paddle import Tensor

from ..operators.table import TABLE
from ..sizes.one_number import with_one_number
from ..tracing.common_subexpressions import CommonSubexpressions
from ..tracing.operations import Operation, Value, fresh_numbers
from .program import Program
from .reuse import alias_roots


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
    ops, alias = _rewrite(ops, fresh)
    results = [alias.get(v, v) for v in outputs]
    ops = needed_ops(ops, results)
    ops, results = _with_copies(ops, results, {*inputs, *constants}, shared, fresh)
    used = {v for op in ops for v in op.inputs}
    live_constants = {v: t for v, t in constants.items() if v in used or v in results}
    return Program(tuple(inputs), live_constants, tuple(ops), tuple(results), name)


def expand_scalar_constants(
    program: Program, own_constants: Collection[Value]
) -> Program:
    """Replace each constant that is one number, repeated, by an expanded number.

    Args:
        own_constants: constants that the function creates; the others may change.
    """
    candidates = {v: t for v, t in program.constants.items() if v in own_constants}
    live_ins = (*program.inputs, *program.constants)
    ops, scalars = with_one_number(program.ops, candidates, live_ins)
    other_constants = {
        v: t for v, t in program.constants.items() if v not in own_constants
    }
    return replace(program, ops=tuple(ops), constants={**other_constants, **scalars})


OPERATOR_OF_METHOD: dict[str, tuple[Any, ...]] = {
    "Tensor.__add__": ("add",),
    "Tensor.__sub__": ("subtract",),
    "Tensor.__mul__": ("multiply",),
    "Tensor.__truediv__": ("divide",),
    "Tensor.__matmul__": ("matmul", False, False),
}
"""The operator that one between tensors of one dtype means, and more arguments."""


def _as_plain_operator(op: Operation) -> Operation:
    if op.operator.name not in OPERATOR_OF_METHOD or len(op.inputs) < 2:
        return op
    dtypes = {v.dtype for v in (*op.inputs, *op.outputs)}
    if len(dtypes) > 1 or "float" not in dtypes.pop():
        return op
    name, *extra_args = OPERATOR_OF_METHOD[op.operator.name]
    return replace(op, operator=TABLE[name], args=(*op.args, *extra_args))


def _rewrite(
    ops: Iterable[Operation], fresh: Iterator[int]
) -> tuple[list[Operation], dict[Value, Value]]:
    """Return each operation once, in its best form, and the aliases of values.

    A second pass over the result changes nothing: an operation is compared with others
    in its last form, on values that are no aliases.
    """
    common = CommonSubexpressions()
    results = []
    for op in map(common.canonical, ops):
        if op.operator.alias:
            common.alias[op.outputs[0]] = op.args[0]
            continue
        for new_op in map(
            common.canonical, _expand_operands(_as_plain_operator(op), fresh)
        ):
            if new_op.operator.name == "copy" or not common.is_duplicate(new_op):
                results.append(new_op)
    return results, common.alias


def needed_ops(ops: Sequence[Operation], outputs: Iterable[Value]) -> list[Operation]:
    """Return the operations that the outputs depend on: dead code elimination.

    Operations that draw random numbers stay too.
    """
    live = {*outputs}
    live_ops = []
    for op in reversed(ops):
        if op.operator.random or not live.isdisjoint(op.outputs):
            live.update(op.inputs)
            live_ops.append(op)
    return live_ops[::-1]


def simplify(program: Program) -> Program:
    """Remove outputs of operations that the program does not use.

    Differentiation of the program might need them.
    """
    live, pruned_ops = {*program.outputs}, []
    for op in reversed(program.ops):
        op = op.operator.prune_outputs(op, live) if op.operator.prune_outputs else op
        live.update(op.inputs)
        pruned_ops.append(op)
    return replace(program, ops=tuple(pruned_ops[::-1]))


MIN_EXPANDED_ELEMENTS = 8192
"""From this many elements on, broadcasting in Paddle costs more than a copy."""

BROADCASTING = frozenset({"add", "subtract", "multiply", "divide"})


def _expand_operands(op: Operation, fresh: Iterator[int]) -> list[Operation]:
    """Expand large broadcast operands before an operation, which is faster."""
    shape = op.outputs[0].shape if op.outputs else ()
    if op.operator.name not in BROADCASTING or math.prod(shape) < MIN_EXPANDED_ELEMENTS:
        return [op]
    expansions, args = [], [*op.args]
    for i, arg in enumerate(args):
        if isinstance(arg, Value) and arg.shape != shape:
            scale = math.prod(shape) // max(math.prod(arg.shape), 1)
            args[i] = out = Value(next(fresh), shape, arg.dtype, arg.bytes * scale)
            expand_args = (arg, [*shape])
            expansions.append(
                Operation(TABLE["expand"], expand_args, (out,), False, op.where)
            )
    return [*expansions, replace(op, args=tuple(args))]


def _with_copies(
    ops: list[Operation],
    outputs: list[Value],
    live_ins: set[Value],
    shared: Sequence[bool],
    fresh: Iterator[int],
) -> tuple[list[Operation], list[Value]]:
    """Copy outputs that share memory with inputs, constants or each other."""
    root_of = alias_roots(ops)
    used_roots: set[Value] = set()
    results = []
    for i, output in enumerate(outputs):
        root = root_of.get(output, output)
        if root in live_ins or root in used_roots or (shared and shared[i]):
            copy = Value(next(fresh), output.shape, output.dtype, output.bytes)
            ops.append(Operation(TABLE["copy"], (output,), (copy,), False, ""))
            results.append(copy)
        else:
            used_roots.add(root)
            results.append(output)
    return ops, results
