"""Gradients on a trace, by the reverse rules of its operators."""

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
    """The methods of :class:`.record.Tracer` that this module uses."""

    ops: list[Operation]
    taped: list[bool]
    dummies: list[Tensor]
    formulas: Formulas
    is_reused: bool

    def value_of(self, tensor: Tensor) -> Value: ...

    def tensor(self, value: Value) -> Any: ...

    def requires(self, value: Value) -> bool: ...

    def is_inactive(self, value: Value) -> bool: ...

    def producer_index(self, value: Value) -> int: ...

    def fail(self, reason: str) -> Any: ...


class Formula(NamedTuple):
    """An operation, computed once more by other operations of a trace.

    Attributes:
        input_values: for each input of the operation, the value that the formula used.
        results: the values of its results; None for a result that it omits.
        ops: the indices of the other operations in the trace.
    """

    input_values: dict[Value, Value]
    results: list[Value | None]
    ops: range


Formulas = dict[Operation, Formula]


class NestedTrace(TraceView, Protocol):
    """A trace that may be nested in an outer one."""

    constants: dict[Value, Tensor]

    @property
    def outer(self) -> Any: ...

    def knows(self, tensor: Tensor) -> bool: ...

    def differentiable_value(self, tensor: Tensor) -> Value: ...


def reverse_through(
    tracer: NestedTrace,
    ends: Sequence[Value],
    starts: Sequence[Value],
    cotangents: Sequence[Tensor | None],
    listening_tracer: TraceView | None = None,
) -> list[Tensor | None]:
    """Return gradients on a trace and on its outer traces.

    Args:
        ends: the outputs, which have the cotangents.
        starts: the values to differentiate by.
        listening_tracer: traces the rules; the first tracer where None.
    """
    listening_tracer = listening_tracer or tracer
    outer: NestedTrace | None = tracer.outer

    def is_foreign(value: Value) -> bool:
        tensor = tracer.constants.get(value)
        return outer is not None and tensor is not None and outer.knows(tensor)

    foreign = [v for v in dict.fromkeys(starts) if is_foreign(v)]
    crossing = [v for v in tracer.constants if tracer.requires(v) and is_foreign(v)]
    all_starts = [*dict.fromkeys([*starts, *(crossing if foreign else ())])]
    stop = 1 + max(map(tracer.producer_index, ends), default=-1)
    formulas = (
        listening_tracer.formulas
    )  # the gradient passes all operations, those of formulas too
    grads = reverse(
        tracer, 0, stop, ends, all_starts, cotangents, listening_tracer, formulas
    )
    grad_by_value = dict(zip(all_starts, grads, strict=True))
    if foreign and outer is not None:
        reached = [v for v in crossing if grad_by_value[v] is not None]
        with not_listening():
            outer_ends = [
                outer.differentiable_value(tracer.constants[v]) for v in reached
            ]
            outer_starts = [
                outer.differentiable_value(tracer.constants[v]) for v in foreign
            ]
        crossing_grads = [grad_by_value[v] for v in reached]
        foreign_grads = reverse_through(
            outer, outer_ends, outer_starts, crossing_grads, listening_tracer
        )
        grad_by_value.update(zip(foreign, foreign_grads, strict=True))
    return [grad_by_value[v] for v in starts]


def reverse(
    tracer: TraceView,
    start: int,
    stop: int,
    ends: Sequence[Value],
    starts: Sequence[Value],
    cotangents: Sequence[Tensor | None],
    listening_tracer: TraceView | None = None,
    formulas: Formulas | None = None,
) -> list[Tensor | None]:
    """Return gradients through the operations from start to stop.

    Args:
        listening_tracer: traces the rules, where it is another tracer.
        formulas: formulas of earlier gradients; those computed here are added.
    """
    listening_tracer, formulas = (
        listening_tracer or tracer,
        {} if formulas is None else formulas,
    )
    active_ops, reached, alias = _active_operations(tracer, start, stop, starts)
    grad_by_value: dict[Value, Any] = {}
    for value, cotangent in zip(ends, cotangents, strict=True):
        _accumulate(tracer, grad_by_value, alias.get(value, value), cotangent)
    start_values = {*starts}
    for op, canonical, wanted in reversed(active_ops):
        output_grads = [grad_by_value.get(v) for v in op.outputs]
        if all(g is None for g in output_grads):
            continue
        _check_rule(tracer, op, wanted)
        for v in op.outputs:
            if v not in start_values:
                grad_by_value.pop(v, None)
        args = [with_values(arg, tracer.tensor) for arg in op.args]
        outputs = [tracer.tensor(v) for v in op.outputs]
        rule = op.operator.reverse
        try:
            if rule is not None:
                grads = rule(Call(args, outputs, output_grads, frozenset(wanted)))
            else:
                formula = _trace_formula(tracer, listening_tracer, op, args, formulas)
                grads = _formula_gradients(
                    formula, listening_tracer, op, output_grads, wanted, formulas
                )
        except NoRule as error:
            tracer.fail(f"{op.operator.name} has no rule for {error}")
        differentiated = {
            canonical.args[k] for k in wanted if isinstance(grads[k], Tensor)
        }
        for k in wanted:
            arg_values = canonical.args[k]
            arg_grads = grads[k]
            if (
                arg_grads is None
                and k in op.operator.numbers
                and arg_values not in differentiated
            ):
                _fail_without_rule(tracer, op.operator, k)
            if isinstance(arg_values, Value):
                arg_values, arg_grads = [arg_values], [arg_grads]
            for value, grad in zip(arg_values, arg_grads or (), strict=False):
                if isinstance(value, Value) and value in reached:
                    _accumulate(tracer, grad_by_value, value, grad)
    return [grad_by_value.get(v) for v in starts]


ActiveOperation = tuple[Operation, Operation, list[int]]
"""An operation, the same on values without aliases, and the active arguments."""


def _active_operations(
    tracer: TraceView, start: int, stop: int, starts: Sequence[Value]
) -> tuple[list[ActiveOperation], set[Value], dict[Value, Value]]:
    """Return the operations that gradients go through, each once.

    Equal operations are merged, so that their gradients are summed early. A leaf that
    nobody differentiates by any more is an alias of the value that it was copied from.

    Returns:
        The operations; all values with gradients; and the aliases of values.
    """
    reached, common = {*starts}, CommonSubexpressions()
    active_ops = []
    for i in range(start, stop):
        op = tracer.ops[i]
        canonical = common.canonical(op)
        if op.operator.alias and tracer.is_inactive(op.outputs[0]):
            source = canonical.args[0]
            if tracer.taped[i] or not tracer.requires(source):
                common.alias[op.outputs[0]] = source
                continue
        if not tracer.taped[i] or reached.isdisjoint(canonical.inputs):
            continue
        output_requires = tuple(map(tracer.requires, op.outputs))
        if (
            tracer.is_reused
            and reached.isdisjoint(op.outputs)
            and common.is_duplicate(canonical, output_requires)
        ):
            continue
        wanted = [
            k
            for k, arg in enumerate(canonical.args)
            if k not in op.operator.shapes
            if not reached.isdisjoint(values_in([arg]))
        ]
        if wanted:
            active_ops.append((op, canonical, wanted))
            reached.update(itertools.compress(op.outputs, output_requires))
    return active_ops, reached, common.alias


def _check_rule(tracer: TraceView, op: Operation, wanted: list[int]) -> None:
    entry = op.operator
    if entry.differentiable is not None:
        for k in wanted:
            if k not in entry.differentiable:
                _fail_without_rule(tracer, entry, k)
    if not entry.complex and op.is_complex:
        tracer.fail(
            f"the operator {entry.name} has no rule for complex numbers; compute with "
            "real and imaginary parts"
        )


def _fail_without_rule(tracer: TraceView, entry: Operator, arg_index: int) -> None:
    tracer.fail(
        f"the operator {entry.name} has no rule for its gradient by "
        f"{entry.arguments[arg_index]}"
    )


def _formula_gradients(
    formula: Formula,
    listening_tracer: TraceView,
    op: Operation,
    output_grads: list[Any],
    wanted: list[int],
    formulas: Formulas,
) -> list[Any]:
    """Return the gradients of a formula of operators that have rules."""
    input_values, results, op_range = formula
    pairs = [
        (r, g)
        for r, g in zip(results, output_grads, strict=False)
        if g is not None and r is not None
    ]
    wanted_values = values_in([op.args[k] for k in wanted])
    starts = [*dict.fromkeys(input_values[v] for v in wanted_values)]
    input_grads = reverse(
        listening_tracer,
        op_range.start,
        op_range.stop,
        [r for r, _ in pairs],
        starts,
        [g for _, g in pairs],
        formulas=formulas,
    )
    unassigned_grads = dict(zip(starts, input_grads, strict=True))
    grads: list[Any] = [None] * len(op.args)
    for k in wanted:
        # A value that occurs twice has one gradient for all its occurrences.
        grads[k] = with_values(
            op.args[k], lambda v: unassigned_grads.pop(input_values[v], None)
        )
    return grads


def _trace_formula(
    tracer: TraceView,
    listening_tracer: TraceView,
    op: Operation,
    args: list[Any],
    formulas: Formulas,
) -> Formula:
    """Compute an operation by other operators, once for all gradients through it."""
    if op in formulas:
        return formulas[op]
    formula = op.operator.formula
    if formula is None:
        tracer.fail(f"the operator {op.operator.name} has no rule for its gradient")
    assert formula is not None
    start = len(listening_tracer.ops)
    outer_listener = local.listener
    try:
        local.listener = listening_tracer
        with grad_mode(True):
            result = formula(*args)
    finally:
        local.listener = outer_listener
    results = [*result] if isinstance(result, list | tuple) else [result]
    op_range = range(start, len(listening_tracer.ops))
    with not_listening():
        values = [None if r is None else listening_tracer.value_of(r) for r in results]
        input_values = {
            v: listening_tracer.value_of(tracer.tensor(v)) for v in op.inputs
        }
    traced = formulas[op] = Formula(input_values, values, op_range)
    return traced


def _accumulate(
    tracer: TraceView, grad_by_value: dict[Value, Any], value: Value, grad: Any
) -> None:
    """Add to the accumulated gradient of a value."""
    if grad is None:
        return
    is_empty = 0 in value.shape and tuple(grad.shape) == value.shape
    if not (grad._is_initialized() or is_empty):
        return  # an operator has left it out
    tensor = tracer.tensor(value)
    if not same_dtype(grad.dtype, tensor.dtype):
        if grad.is_complex() and not tensor.is_complex():
            grad = paddle._C_ops.real(grad)
        if grad.dtype != tensor.dtype:
            grad = paddle._C_ops.cast(grad, tensor.dtype)
    if grad.shape != tensor.shape:
        tracer.fail(f"a rule gives a gradient of {grad.shape} for {tensor.shape}")
    previous = grad_by_value.get(value)
    grad_by_value[value] = grad if previous is None else previous + grad
