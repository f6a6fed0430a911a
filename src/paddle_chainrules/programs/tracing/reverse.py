"""Gradients on a record, by the rules of its operators."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import paddle
from paddle import Tensor

from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.dtypes import same_dtype
from ...paddle_side.listener import local, not_listening
from ..operators.calls import Call, NoRule
from ..operators.entry import Operator
from .common_subexpressions import CommonSubexpressions
from .operations import Operation, Value, values_in, with_values


class TraceView(Protocol):
    """The part of :class:`.record.TraceView` that this module uses."""

    ops: list[Operation]
    taped: list[bool]
    dummies: list[Tensor]
    formulas: Formulas
    is_reused: bool

    def value_of(self, tensor: Tensor) -> Value: ...

    def tensor(self, value: Value) -> Any: ...

    def requires(self, value: Value) -> bool: ...

    def is_done(self, value: Value) -> bool: ...

    def made_by(self, value: Value) -> int: ...

    def fail(self, reason: str) -> Any: ...


class Formula(NamedTuple):
    """An operation, computed once more by other operations of a record.

    Attributes:
        names: for each input of the operation, the value that the formula used.
        results: the values of its results; None for a result that it omits.
        ops: the places of the other operations in the record.
    """

    names: dict[Value, Value]
    results: list[Value | None]
    ops: range


Formulas = dict[Operation, Formula]


class NestedTrace(TraceView, Protocol):
    """A record that may be a part of another."""

    constants: dict[Value, Tensor]

    @property
    def outer(self) -> Any: ...

    def knows(self, tensor: Tensor) -> bool: ...

    def requiring(self, tensor: Tensor) -> Value: ...


def reverse_through(
    record: NestedTrace,
    ends: Sequence[Value],
    starts: Sequence[Value],
    cotangents: Sequence[Tensor | None],
    onto: TraceView | None = None,
) -> list[Tensor | None]:
    """Return gradients on a record and on the records that it is a part of.

    Args:
        onto: the record that listens; the first one where None.
    """
    onto = onto or record
    outer: NestedTrace | None = record.outer

    def is_far(value: Value) -> bool:
        tensor = record.constants.get(value)
        return outer is not None and tensor is not None and outer.knows(tensor)

    far = [v for v in dict.fromkeys(starts) if is_far(v)]
    between = [v for v in record.constants if record.requires(v) and is_far(v)]
    every = [*dict.fromkeys([*starts, *(between if far else ())])]
    stop = 1 + max(map(record.made_by, ends), default=-1)
    known = onto.formulas  # the gradient passes all operations, those of formulas too
    grads = reverse(record, 0, stop, ends, every, cotangents, onto, known)
    results = dict(zip(every, grads, strict=True))
    if far and outer is not None:
        reached = [v for v in between if results[v] is not None]
        with not_listening():
            outer_ends = [outer.requiring(record.constants[v]) for v in reached]
            outer_starts = [outer.requiring(record.constants[v]) for v in far]
        given = [results[v] for v in reached]
        more = reverse_through(outer, outer_ends, outer_starts, given, onto)
        results.update(zip(far, more, strict=True))
    return [results[v] for v in starts]


def reverse(
    record: TraceView,
    start: int,
    stop: int,
    ends: Sequence[Value],
    starts: Sequence[Value],
    cotangents: Sequence[Tensor | None],
    onto: TraceView | None = None,
    formulas: Formulas | None = None,
) -> list[Tensor | None]:
    """Return gradients through the operations from start to stop.

    Args:
        onto: the record that listens, where it is another.
        formulas: formulas of earlier gradients; those computed here are added.
    """
    onto, formulas = onto or record, {} if formulas is None else formulas
    active, reached, alias = _active(record, start, stop, starts)
    results: dict[Value, Any] = {}
    for value, cotangent in zip(ends, cotangents, strict=True):
        _add(record, results, alias.get(value, value), cotangent)
    kept = {*starts}
    for op, named, wanted in reversed(active):
        given = [results.get(v) for v in op.outputs]
        if all(g is None for g in given):
            continue
        _check_rule(record, op, wanted)
        for v in op.outputs:
            if v not in kept:
                results.pop(v, None)
        args = [with_values(arg, record.tensor) for arg in op.args]
        outs = [record.tensor(v) for v in op.outputs]
        rule = op.operator.reverse
        try:
            if rule is not None:
                grads = rule(Call(args, outs, given, frozenset(wanted)))
            else:
                formula = _formula_of(record, onto, op, args, formulas)
                grads = _by_formula(formula, onto, op, given, wanted, formulas)
        except NoRule as error:
            record.fail(f"{op.operator.name} has no rule for {error}")
        known = {named.args[k] for k in wanted if isinstance(grads[k], Tensor)}
        for k in wanted:
            targets = named.args[k]
            parts = grads[k]
            if parts is None and k in op.operator.numbers and targets not in known:
                _refuse(record, op.operator, k)
            if isinstance(targets, Value):
                targets, parts = [targets], [parts]
            for value, grad in zip(targets, parts or (), strict=False):
                if isinstance(value, Value) and value in reached:
                    _add(record, results, value, grad)
    return [results.get(v) for v in starts]


Active = tuple[Operation, Operation, list[int]]
"""An operation, the same on values without aliases, and the active arguments."""


def _active(
    record: TraceView, start: int, stop: int, starts: Sequence[Value]
) -> tuple[list[Active], set[Value], dict[Value, Value]]:
    """Return what gradients go through, each operation once, so they are summed early.

    A leaf that was differentiated by, and is not any more, stands for the value that it
    was made of.

    Returns:
        Operations; all values with gradients; and which values are the same as others.
    """
    reached, common = {*starts}, CommonSubexpressions()
    active = []
    for i in range(start, stop):
        op = record.ops[i]
        named = common.named(op)
        if op.operator.alias and record.is_done(op.outputs[0]):
            source = named.args[0]
            if record.taped[i] or not record.requires(source):
                common.alias[op.outputs[0]] = source
                continue
        if not record.taped[i] or reached.isdisjoint(named.inputs):
            continue
        flags = tuple(map(record.requires, op.outputs))
        if (
            record.is_reused
            and reached.isdisjoint(op.outputs)
            and common.is_known(named, flags)
        ):
            continue
        wanted = [
            k
            for k, arg in enumerate(named.args)
            if k not in op.operator.shapes
            if not reached.isdisjoint(values_in([arg]))
        ]
        if wanted:
            active.append((op, named, wanted))
            reached.update(itertools.compress(op.outputs, flags))
    return active, reached, common.alias


def _check_rule(record: TraceView, op: Operation, wanted: list[int]) -> None:
    entry = op.operator
    if entry.differentiable is not None:
        for k in wanted:
            if k not in entry.differentiable:
                _refuse(record, entry, k)
    if not entry.complex and op.is_complex:
        record.fail(
            f"the operator {entry.name} has no rule for complex numbers; compute with "
            "real and imaginary parts"
        )


def _refuse(record: TraceView, entry: Operator, k: int) -> None:
    record.fail(
        f"the operator {entry.name} has no rule for its gradient by "
        f"{entry.arguments[k]}"
    )


def _by_formula(
    formula: Formula,
    onto: TraceView,
    op: Operation,
    given: list[Any],
    wanted: list[int],
    formulas: Formulas,
) -> list[Any]:
    """Return the gradients of a formula of operators that have rules."""
    names, results, ops = formula
    pairs = [
        (r, g)
        for r, g in zip(results, given, strict=False)
        if g is not None and r is not None
    ]
    by = values_in([op.args[k] for k in wanted])
    starts = [*dict.fromkeys(names[v] for v in by)]
    outcomes = reverse(
        onto,
        ops.start,
        ops.stop,
        [r for r, _ in pairs],
        starts,
        [g for _, g in pairs],
        formulas=formulas,
    )
    left = dict(zip(starts, outcomes, strict=True))
    grads: list[Any] = [None] * len(op.args)
    for k in wanted:
        # A value that is there twice has one gradient for all its places.
        grads[k] = with_values(op.args[k], lambda v: left.pop(names[v], None))
    return grads


def _formula_of(
    record: TraceView, onto: TraceView, op: Operation, args: list[Any], known: Formulas
) -> Formula:
    """Compute an operation by other operators, once for all gradients through it."""
    if op in known:
        return known[op]
    formula = op.operator.formula
    if formula is None:
        record.fail(f"the operator {op.operator.name} has no rule for its gradient")
    assert formula is not None
    start = len(onto.ops)
    before = local.listener
    try:
        local.listener = onto
        with grad_mode(True):
            result = formula(*args)
    finally:
        local.listener = before
    results = [*result] if isinstance(result, list | tuple) else [result]
    ops = range(start, len(onto.ops))
    with not_listening():
        values = [None if r is None else onto.value_of(r) for r in results]
        names = {v: onto.value_of(record.tensor(v)) for v in op.inputs}
    outcome = known[op] = Formula(names, values, ops)
    return outcome


def _add(record: TraceView, result: dict[Value, Any], value: Value, grad: Any) -> None:
    """Add to the gradient found so far of a value."""
    if grad is None:
        return
    is_empty = 0 in value.shape and tuple(grad.shape) == value.shape
    if not (grad._is_initialized() or is_empty):
        return  # an operator has left it out
    tensor = record.tensor(value)
    if not same_dtype(grad.dtype, tensor.dtype):
        if grad.is_complex() and not tensor.is_complex():
            grad = paddle._C_ops.real(grad)
        if grad.dtype != tensor.dtype:
            grad = paddle._C_ops.cast(grad, tensor.dtype)
    if grad.shape != tensor.shape:
        record.fail(f"a rule gives a gradient of {grad.shape} for {tensor.shape}")
    before = result.get(value)
    result[value] = grad if before is None else before + grad
