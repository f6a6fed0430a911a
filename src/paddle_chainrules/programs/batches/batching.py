"""A function of one sample run for many at once, by its operators' batch rules.

An operator without such a rule is batched by its formula, if it has one. Otherwise it
runs for one sample after another, and we warn about that.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.listener import listener, not_listening
from ...paddle_side.process.random_state import random_state, restore_random_state
from ..compiling.passes import program_of, simplify
from ..compiling.program import Program
from ..operators.calls import BatchCall, NoRule
from ..operators.random import SEEDS
from ..operators.table import TABLE
from ..tracing.inside import trace_inside
from ..tracing.operations import Operation, Value, fresh_numbers, values_in, with_values
from ..tracing.record import Tracer

DETACH, STOP = TABLE["Tensor.detach"], TABLE["stop_gradient"]
RANDOMNESS = ("error", "different", "same")


class BatchWarning(UserWarning):
    """Warns that an operator runs for one sample after another."""


def of_one(
    fn: Callable[[list[Tensor]], Sequence[Tensor]], samples: Sequence[Tensor]
) -> Program:
    """Return a function's program at one sample, while a record may listen outside."""
    return recorded_one(fn, samples)[0]


def recorded_one(
    fn: Callable[[list[Tensor]], Sequence[Tensor]],
    samples: Sequence[Tensor],
    is_unlikely: bool = False,
) -> tuple[Program, Tracer]:
    """Return the program as :func:`of_one` does, and its record.

    Args:
        is_unlikely: as :func:`trace_inside` takes it.
    """
    state = random_state()
    try:
        record, ends = trace_inside(fn, samples, is_unlikely)
    except BaseException:
        restore_random_state(state)
        raise
    if record.draws:
        restore_random_state(state)
    ops = [*_with_stops(record)]
    known = record.inputs, record.constants
    return program_of(ops, *known, ends, "sample"), record


def _with_stops(record: Tracer) -> Iterator[Operation]:
    """Give its operations, with stops where gradients end that would go on."""
    given = (*record.inputs, *record.constants)
    fresh = fresh_numbers(given, record.ops)
    for op, taped in zip(record.ops, record.taped, strict=True):
        if taped or not any(map(record.requires, op.inputs)):
            yield op
        elif op.operator.alias:
            yield replace(op, operator=STOP, args=op.args[:1])
        else:
            ends = [Value(next(fresh), v.shape, v.dtype, v.bytes) for v in op.outputs]
            yield replace(op, outputs=tuple(ends))
            for end, value in zip(ends, op.outputs, strict=True):
                yield Operation(STOP, (end,), (value,), False, op.where)


def samples_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors to trace a function at, for an operator that holds its program.

    Where gradients are on, all tensors that can be differentiated require them. So the
    trace shows where gradients end.
    """
    on = paddle.is_grad_enabled()
    with not_listening():
        results = [x.detach() for x in tensors]
        for x in results:
            x.stop_gradient = not (on and is_differentiable(x))
    return results


def closed_over(
    program: Program, record: Tracer
) -> tuple[dict[Value, Tensor], dict[Value, Tensor]]:
    """Split a program's constants into those from elsewhere and those made within."""
    every = program.constants.items()
    far = {v: t for v, t in every if not record.is_own(v)}
    return far, {v: t for v, t in every if v not in far}


def without_stops(program: Program) -> Program:
    """Return the program without the places where gradients end, as it runs."""
    row = [
        replace(o, operator=DETACH) if o.operator is STOP else o for o in program.ops
    ]
    known = program.inputs, program.constants
    return simplify(program_of(row, *known, program.outputs, program.name))


def replayed(program: Program, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return a program's outputs, run by operators that a listener notes."""
    known = {**program.constants, **dict(zip(program.inputs, tensors, strict=False))}
    for op in program.ops:
        args = [with_values(arg, known.__getitem__) for arg in op.args]
        operator = DETACH if op.operator is STOP else op.operator
        known.update(zip(op.outputs, operator.bind(args), strict=True))
    return [known[v] for v in program.outputs]


def batched(
    program: Program,
    tensors: Sequence[Tensor],
    flags: Sequence[bool],
    randomness: str = "error",
    drawn: dict[Value, Tensor] | None = None,
) -> tuple[list[Tensor], list[bool]]:
    """Return the outputs of all samples, and which differ from sample to sample.

    Args:
        tensors: for the program's inputs.
        flags: tells for each whether it has samples along its first axis, all in the
            same number.
        randomness: whether random numbers are refused, or drawn for each sample or once
            for all.
        drawn: the values that were drawn for all samples, kept for other calls.

    Raises:
        NoRule: an operator can't be batched.
    """
    record: Any = listener()
    if record is not None:
        record.by_samples = True
    known = {**program.constants, **dict(zip(program.inputs, tensors, strict=True))}
    many = {v for v, flag in zip(program.inputs, flags, strict=True) if flag}
    size = next(t.shape[0] for t, flag in zip(tensors, flags, strict=True) if flag)
    for op, gone in zip(program.ops, program.last_uses, strict=True):
        if op.operator.name in SEEDS:
            raise NoRule(
                "random numbers of a seed, over a batch, where each sample would begin "
                "with it; draw them before, and give them as an argument"
            )
        if op.operator.random and randomness == "error":
            raise NoRule(
                f"the operator {op.operator.name}, which draws random numbers, over a "
                "batch; say randomness='different' or 'same'"
            )
        if op.operator is STOP:
            known[op.outputs[0]] = DETACH.bind([known[op.args[0]]])[0]
            many.update(op.outputs if op.args[0] in many else ())
            continue
        different = op.operator.random and randomness == "different"
        if many.isdisjoint(op.inputs) and not different:
            if drawn is None or not drawn.keys() >= {*op.outputs}:
                args = [with_values(arg, known.__getitem__) for arg in op.args]
                results = op.operator.bind(args)
                if drawn is not None and op.operator.random:
                    drawn.update(zip(op.outputs, results, strict=True))
            else:
                results = [drawn[v] for v in op.outputs]
            known.update(zip(op.outputs, results, strict=True))
        else:
            unused = frozenset(i for i, v in enumerate(op.outputs) if v in gone)
            results = _of_many(op, known, many, size, randomness, unused)
            known.update(zip(op.outputs, results, strict=True))
            many.update(op.outputs)
        for value in gone:
            known.pop(value, None)
    return [known[v] for v in program.outputs], [v in many for v in program.outputs]


def _of_many(
    op: Operation,
    known: dict[Value, Tensor],
    many: set[Value],
    size: int,
    random: str,
    unused: frozenset[int],
) -> list[Tensor]:
    """Return the results of one operation for all samples."""
    if op.operator.random:
        if random == "same":
            raise NoRule(
                f"the same random numbers for all samples in {op.operator.name}, whose "
                "argument differs from sample to sample; say randomness='different'"
            )
        return _one_by_one(op, known, many, size)
    places, args = set(), [with_values(arg, known.__getitem__) for arg in op.args]
    for i, arg in enumerate(op.args):
        if not many.isdisjoint(values_in([arg])):
            places.add(i)
            if not isinstance(arg, Value):
                each = [_in_list(v, known, many, size) for v in arg]
                args[i] = tuple(each) if isinstance(arg, tuple) else each
    shapes = [v.shape for v in op.outputs]
    if op.operator.promotes:
        _promote(op, args)
    if op.operator.batch is not None and not op.is_complex:
        try:
            call = BatchCall(args, frozenset(places), size, shapes, unused)
            return [*op.operator.batch(call)]
        except NoRule:  # of these arguments
            pass
    if op.operator.formula is not None:
        try:
            return _by_formula(op, known, many)
        except NoRule:  # it leaves out what the operator gives besides
            pass
    name = op.operator.name
    warnings.warn(
        f"the operator {name} has no rule for batches of such arguments, and runs for "
        f"one of {size} samples after another",
        BatchWarning,
        stacklevel=2,
    )
    return _one_by_one(op, known, many, size)


def _promote(op: Operation, args: list[Any]) -> None:
    """Bring arguments to the dtype that Paddle would choose for one sample.

    Paddle's choice depends on their dimensions, too.
    """
    places = op.operator.promotes
    values = [op.args[i] for i in places if i < len(op.args)]
    if len(values) < 2 or not all(isinstance(v, Value) for v in values):
        return
    if values[0].dtype == values[1].dtype:
        return
    with not_listening():
        x, y = (paddle.zeros([1][: len(v.shape)], v.dtype) for v in values)
        dtype = (x + y).dtype
    for i in places:
        args[i] = args[i].astype(dtype)


def _by_formula(
    op: Operation, known: dict[Value, Tensor], many: set[Value]
) -> list[Tensor]:
    """Return the same by a formula of operators that may have rules."""
    formula = op.operator.formula
    assert formula is not None
    inputs = [*dict.fromkeys(op.inputs)]
    with not_listening():
        samples = [_sample(known, v, 0) if v in many else known[v] for v in inputs]
        for sample, v in zip(samples, inputs, strict=True):
            sample.stop_gradient = known[v].stop_gradient

    def of_tensors(tensors: list[Tensor]) -> list[Tensor]:
        named = dict(zip(inputs, tensors, strict=True))
        result = formula(*(with_values(arg, named.__getitem__) for arg in op.args))
        results = [*result] if isinstance(result, list | tuple) else [result]
        if len(results) < len(op.outputs) or any(y is None for y in results):
            raise NoRule("all of its results; the formula leaves some out")
        return results[: len(op.outputs)]

    program = of_one(of_tensors, samples)
    flags = [v in many for v in inputs]
    size = next(known[v].shape[0] for v in inputs if v in many)
    results, differs = batched(program, [known[v] for v in inputs], flags)
    return [
        y if flag else paddle.expand(y, [size, *y.shape])
        for y, flag in zip(results, differs, strict=True)
    ]


def _one_by_one(
    op: Operation, known: dict[Value, Tensor], many: set[Value], size: int
) -> list[Tensor]:
    """Run one sample after another."""
    rows = []
    for k in range(size):

        def of(v: Value, k: int = k) -> Tensor:
            return _sample(known, v, k) if v in many else known[v]

        rows.append(op.operator.bind([with_values(arg, of) for arg in op.args]))
    return [
        column[0] if v.dtype == "none" else paddle.stack([*column])
        for v, column in zip(op.outputs, zip(*rows, strict=True), strict=True)
    ]


def _sample(known: dict[Value, Tensor], value: Value, k: int) -> Tensor:
    """Return one of many samples in memory of its own; an omitted result as it is."""
    x = known[value]
    return x if value.dtype == "none" else paddle.assign(x[k])


def _in_list(
    value: Any, known: dict[Value, Tensor], many: set[Value], size: int
) -> Any:
    if not isinstance(value, Value):  # a slice beside tensors, in an index
        return value
    result = known[value]
    return (
        result if value in many else paddle._C_ops.expand(result, [size, *result.shape])
    )
