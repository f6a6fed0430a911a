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

from ...errors import BatchWarning
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

DETACH, STOP_GRADIENT = TABLE["Tensor.detach"], TABLE["stop_gradient"]


def trace_sample(
    fn: Callable[[list[Tensor]], Sequence[Tensor]], samples: Sequence[Tensor]
) -> Program:
    """Return a function's program at one sample, while a record may listen outside."""
    return recorded_one(fn, samples)[0]


def recorded_one(
    fn: Callable[[list[Tensor]], Sequence[Tensor]],
    samples: Sequence[Tensor],
    is_unlikely: bool = False,
) -> tuple[Program, Tracer]:
    """Return the program as :func:`trace_sample` does, and its tracer.

    Args:
        is_unlikely: as :func:`trace_inside` takes it.
    """
    state = random_state()
    try:
        record, outputs = trace_inside(fn, samples, is_unlikely)
    except BaseException:
        restore_random_state(state)
        raise
    if record.draws:
        restore_random_state(state)
    ops = [*_with_stop_gradients(record)]
    leaves = record.inputs, record.constants
    return program_of(ops, *leaves, outputs, "sample"), record


def _with_stop_gradients(record: Tracer) -> Iterator[Operation]:
    """Give its operations, with stop_gradient where the tape is cut."""
    leaves = (*record.inputs, *record.constants)
    fresh = fresh_numbers(leaves, record.ops)
    for op, taped in zip(record.ops, record.taped, strict=True):
        if taped or not any(map(record.requires, op.inputs)):
            yield op
        elif op.operator.alias:
            yield replace(op, operator=STOP_GRADIENT, args=op.args[:1])
        else:
            detached = [
                Value(next(fresh), v.shape, v.dtype, v.bytes) for v in op.outputs
            ]
            yield replace(op, outputs=tuple(detached))
            for unstopped, value in zip(detached, op.outputs, strict=True):
                yield Operation(STOP_GRADIENT, (unstopped,), (value,), False, op.where)


def samples_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors to trace a function at, for an operator that holds its program.

    Where gradients are on, all tensors that can be differentiated require them. So the
    trace shows where gradients end.
    """
    grad_enabled = paddle.is_grad_enabled()
    with not_listening():
        results = [x.detach() for x in tensors]
        for x in results:
            x.stop_gradient = not (grad_enabled and is_differentiable(x))
    return results


def closed_over(
    program: Program, record: Tracer
) -> tuple[dict[Value, Tensor], dict[Value, Tensor]]:
    """Split a program's constants into captured ones and its own."""
    constants = program.constants.items()
    captured = {v: t for v, t in constants if not record.is_own(v)}
    return captured, {v: t for v, t in constants if v not in captured}


def without_stops(program: Program) -> Program:
    """Return the program with detach for stop_gradient, as it runs."""
    ops = [
        replace(op, operator=DETACH) if op.operator is STOP_GRADIENT else op
        for op in program.ops
    ]
    leaves = program.inputs, program.constants
    return simplify(program_of(ops, *leaves, program.outputs, program.name))


def replayed(program: Program, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return a program's outputs, run by operators that a listener notes."""
    env = {**program.constants, **dict(zip(program.inputs, tensors, strict=False))}
    for op in program.ops:
        args = [with_values(arg, env.__getitem__) for arg in op.args]
        operator = DETACH if op.operator is STOP_GRADIENT else op.operator
        env.update(zip(op.outputs, operator.bind(args), strict=True))
    return [env[v] for v in program.outputs]


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
        drawn: the values that were drawn for all samples, to reuse in other calls.

    Raises:
        NoRule: an operator can't be batched.
    """
    record: Any = listener()
    if record is not None:
        record.by_samples = True
    env = {**program.constants, **dict(zip(program.inputs, tensors, strict=True))}
    batched_values = {v for v, flag in zip(program.inputs, flags, strict=True) if flag}
    size = next(t.shape[0] for t, flag in zip(tensors, flags, strict=True) if flag)
    for op, dead in zip(program.ops, program.last_uses, strict=True):
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
        if op.operator is STOP_GRADIENT:
            env[op.outputs[0]] = DETACH.bind([env[op.args[0]]])[0]
            batched_values.update(op.outputs if op.args[0] in batched_values else ())
            continue
        per_sample = op.operator.random and randomness == "different"
        if batched_values.isdisjoint(op.inputs) and not per_sample:
            if drawn is None or not drawn.keys() >= {*op.outputs}:
                args = [with_values(arg, env.__getitem__) for arg in op.args]
                results = op.operator.bind(args)
                if drawn is not None and op.operator.random:
                    drawn.update(zip(op.outputs, results, strict=True))
            else:
                results = [drawn[v] for v in op.outputs]
            env.update(zip(op.outputs, results, strict=True))
        else:
            unused = frozenset(i for i, v in enumerate(op.outputs) if v in dead)
            results = _run_batched(op, env, batched_values, size, randomness, unused)
            env.update(zip(op.outputs, results, strict=True))
            batched_values.update(op.outputs)
        for value in dead:
            env.pop(value, None)
    return [env[v] for v in program.outputs], [
        v in batched_values for v in program.outputs
    ]


def _run_batched(
    op: Operation,
    env: dict[Value, Tensor],
    batched_values: set[Value],
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
        return _loop_over_samples(op, env, batched_values, size)
    batched_args, args = set(), [with_values(arg, env.__getitem__) for arg in op.args]
    for i, arg in enumerate(op.args):
        if not batched_values.isdisjoint(values_in([arg])):
            batched_args.add(i)
            if not isinstance(arg, Value):
                elements = [_batched_element(v, env, batched_values, size) for v in arg]
                args[i] = tuple(elements) if isinstance(arg, tuple) else elements
    shapes = [v.shape for v in op.outputs]
    if op.operator.promotes:
        _promote_dtypes(op, args)
    if op.operator.batch is not None and not op.is_complex:
        try:
            call = BatchCall(args, frozenset(batched_args), size, shapes, unused)
            return [*op.operator.batch(call)]
        except NoRule:  # of these arguments
            pass
    if op.operator.formula is not None:
        try:
            return _batch_by_formula(op, env, batched_values)
        except NoRule:  # it leaves out what the operator gives besides
            pass
    name = op.operator.name
    warnings.warn(
        f"the operator {name} has no rule for batches of such arguments, and runs for "
        f"one of {size} samples after another",
        BatchWarning,
        stacklevel=2,
    )
    return _loop_over_samples(op, env, batched_values, size)


def _promote_dtypes(op: Operation, args: list[Any]) -> None:
    """Bring arguments to the dtype that Paddle would choose for one sample.

    Paddle's choice depends on their dimensions, too.
    """
    positions = op.operator.promotes
    values = [op.args[i] for i in positions if i < len(op.args)]
    if len(values) < 2 or not all(isinstance(v, Value) for v in values):
        return
    if values[0].dtype == values[1].dtype:
        return
    dtype: Any = op.outputs[0].dtype
    if dtype == "bool" or dtype not in (v.dtype for v in values):  # of a comparison
        with not_listening():
            x, y = (paddle.zeros([1][: len(v.shape)], v.dtype) for v in values)
            dtype = (x + y).dtype
    for i in positions:
        args[i] = args[i].astype(dtype)


def _batch_by_formula(
    op: Operation, env: dict[Value, Tensor], batched_values: set[Value]
) -> list[Tensor]:
    """Run an operation batched by its formula of operators that may have rules."""
    formula = op.operator.formula
    assert formula is not None
    inputs = [*dict.fromkeys(op.inputs)]
    with not_listening():
        samples = [
            _sample(env, v, 0) if v in batched_values else env[v] for v in inputs
        ]
        for sample, v in zip(samples, inputs, strict=True):
            sample.stop_gradient = env[v].stop_gradient

    def formula_of_tensors(tensors: list[Tensor]) -> list[Tensor]:
        tensor_of = dict(zip(inputs, tensors, strict=True))
        result = formula(*(with_values(arg, tensor_of.__getitem__) for arg in op.args))
        results = [*result] if isinstance(result, list | tuple) else [result]
        if len(results) < len(op.outputs) or any(y is None for y in results):
            raise NoRule("all of its results; the formula leaves some out")
        return results[: len(op.outputs)]

    program = trace_sample(formula_of_tensors, samples)
    flags = [v in batched_values for v in inputs]
    size = next(env[v].shape[0] for v in inputs if v in batched_values)
    results, is_batched = batched(program, [env[v] for v in inputs], flags)
    return [
        y if flag else paddle.expand(y, [size, *y.shape])
        for y, flag in zip(results, is_batched, strict=True)
    ]


def _loop_over_samples(
    op: Operation, env: dict[Value, Tensor], batched_values: set[Value], size: int
) -> list[Tensor]:
    """Run an operation on one sample after another, and stack the results."""
    rows = []
    for k in range(size):

        def value_of(v: Value, k: int = k) -> Tensor:
            return _sample(env, v, k) if v in batched_values else env[v]

        rows.append(op.operator.bind([with_values(arg, value_of) for arg in op.args]))
    return [
        column[0] if v.dtype == "none" else paddle.stack([*column])
        for v, column in zip(op.outputs, zip(*rows, strict=True), strict=True)
    ]


def _sample(env: dict[Value, Tensor], value: Value, k: int) -> Tensor:
    """Return one of many samples in memory of its own; an omitted result as it is."""
    x = env[value]
    return x if value.dtype == "none" else paddle.assign(x[k])


def _batched_element(
    value: Any, env: dict[Value, Tensor], batched_values: set[Value], size: int
) -> Any:
    if not isinstance(value, Value):  # a slice beside tensors, in an index
        return value
    result = env[value]
    return (
        result
        if value in batched_values
        else paddle._C_ops.expand(result, [size, *result.shape])
    )
