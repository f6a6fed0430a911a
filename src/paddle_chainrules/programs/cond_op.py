"""Calls of one of two functions as an operator, and that operator's rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import paddle
from paddle import Tensor

from ..paddle_side.autograd.grad_mode import grad_mode
from ..paddle_side.dtypes import is_differentiable
from ..paddle_side.listener import listener, not_listening
from .batches.batching import closed_over, recorded_one, replayed, samples_of
from .branches import Branches, of_samples, truth
from .capture_error import CaptureError
from .compiling.passes import program_of
from .compiling.program import Program
from .derivatives.taylor import leaf_of
from .operators.calls import BatchCall, Call, NoRule
from .operators.entry import batch_of, define, formula_of, holds_for_complex, reverse_of
from .operators.shared import ops
from .tracing.operations import Value, fresh_numbers

Branch = Callable[[list[Tensor]], Sequence[Tensor]]
"""A function of a list of tensors. Both branches give the same shapes and dtypes."""


def _run(branches: Branches, *tensors: Tensor) -> list[Tensor]:
    return branches(*tensors)


COND = define("cond", "", run=_run, opaque=True)
DRAWING_COND = define("drawing_cond", "", run=_run, opaque=True, random=True)
"""The operator for branches that draw random numbers."""

holds_for_complex("cond", "drawing_cond")


@reverse_of("cond", "drawing_cond")
def _cond_reverse(call: Call) -> list[Any]:
    return [None, None, *_back(call.args[0], call)]


@formula_of("cond")
def _cond_formula(branches: Branches, predicate: Tensor, *tensors: Tensor) -> Any:
    if not branches.is_light:
        raise NoRule(
            "a branch with so much to do that only one is to run; leave it lazy"
        )
    return branches.both(predicate, tensors)


@batch_of("cond", "drawing_cond")
def _cond_batch(call: BatchCall) -> list[Tensor]:
    return _of_many(call.args[0], call)


def in_branches(
    branches: tuple[Branch, Branch],
    predicate: Tensor,
    tensors: Sequence[Tensor],
    batched: tuple[bool, ...] | None = None,
    drawn: Sequence[range] = (range(0), range(0)),
    operands: int = 0,
) -> list[Tensor]:
    """Call one of two functions as one operator of the record that listens.

    Args:
        branches: for a true predicate and a false one.
        predicate: a truth; with ``batched`` one for each sample.
        tensors: the arguments of both functions.
        batched: for many samples, tells which tensors have them along their first axis.
            The functions are of one sample.
        drawn: for each function the positions of tensors that replace the random
            numbers that it would draw, in this order.
        operands: as :class:`Branches` takes it.

    Returns:
        The results.

    Raises:
        ValueError: the predicate is not a single truth.
        CaptureError: a branch can't be traced.
    """
    with not_listening():
        flags = batched or [False] * len(tensors)
        rows = [x[0] if flag else x for x, flag in zip(tensors, flags, strict=True)]
        taken = None if batched is not None else (0 if truth(predicate) else 1)
    samples = samples_of(rows)
    traced = [
        _traced(fn, samples, drawn[k], is_unlikely=k != taken)
        for k, fn in enumerate(branches)
    ]
    far = [x for each in traced for x in each[1]]
    one, other = (program for program, *_ in traced)
    first = len(samples)
    a, b = one.inputs[first:], other.inputs[first:]
    programs = (
        replace(one, inputs=(*one.inputs, *_unused(one, b))),
        replace(other, inputs=(*other.inputs[:first], *_unused(other, a), *b)),
    )
    counts = traced[0][2], traced[1][2]
    every = None if batched is None else (*batched, *(False for _ in far))
    made = Branches(programs, counts, every, operands)
    if any(counts) and batched is not None:
        raise CaptureError(
            "random numbers are drawn in a branch of cond that differs from sample to "
            "sample; draw them before it, and give them as an operand"
        )
    operator = DRAWING_COND if any(counts) else COND
    return operator.bind([made, predicate, *tensors, *far])[: made.count]


def _traced(
    fn: Branch, samples: Sequence[Tensor], drawn: range, is_unlikely: bool
) -> tuple[Program, list[Tensor], int]:
    """Trace a branch.

    Returns:
        Its program, whose last inputs are the tensors that it closes over; these
        tensors; and how many random numbers it draws, which are its last outputs.
    """
    program, record = recorded_one(fn, samples, is_unlikely=is_unlikely)
    outer: Any = listener()
    if outer is not None:
        outer.writes = outer.writes or record.writes
        outer.differentiates = outer.differentiates or record.differentiates
    row, ends, inputs = [*program.ops], program.outputs, program.inputs
    random = [op for op in row if op.operator.random]
    made = [v for op in random for v in op.outputs if v.dtype != "none"]
    far, constants = closed_over(program, record)
    count = 0
    if drawn:
        row = [op for op in row if not op.operator.random]
        unused = dict(zip(drawn, made, strict=True))
        inputs = tuple(unused.get(i, v) for i, v in enumerate(inputs))
    elif random:
        ends, count = (*ends, *made), len(made)
    program = program_of(row, (*inputs, *far), constants, ends, "branch")
    return program, [*far.values()], count


def _unused(program: Program, like: Sequence[Value]) -> list[Value]:
    """Return inputs of the same kinds that a program does not read."""
    given = (*program.inputs, *program.constants)
    fresh = fresh_numbers(given, program.ops)
    return [Value(next(fresh), v.shape, v.dtype, v.bytes) for v in like]


def _back(branches: Branches, call: Call) -> list[Tensor | None]:
    """Return the gradients of the tensors that a call was given."""
    predicate, *tensors = call.args[1:]
    drawn = call.outputs[branches.count :]
    given = [(i, g) for i, g in enumerate(call.cotangents) if g is not None]
    ends = [[_place(branches, k, i) for i, _ in given] for k in range(2)]
    reached = {*range(branches.operands)}
    for program, places in zip(branches.programs, ends, strict=True):
        reached.update(*(program.reached[i] for i in places if i is not None))
    wanted = [
        i
        for i, x in enumerate(tensors)
        if i in reached and i + 2 in call.wanted and is_differentiable(x)
    ]
    grads: list[Tensor | None] = [None] * len(tensors)
    if not wanted:
        return grads

    def gradient_of(k: int) -> Branch:
        def gradient(leaves: list[Tensor]) -> list[Tensor]:
            m = len(tensors)
            record: Any = listener()
            with grad_mode(True):
                here = [leaf_of(record, x) for x in leaves[:m]]
                results = replayed(branches.programs[k], here)
            cotangents = leaves[m + len(drawn) :]
            seeds = [
                (results[i], g)
                for i, g in zip(ends[k], cotangents, strict=True)
                if i is not None and not results[i].stop_gradient
            ]
            starts = [here[i] for i in wanted]
            own_grads = record.gradients(
                [end for end, _ in seeds],
                starts,
                [g for _, g in seeds],
                create_graph=paddle.is_grad_enabled(),
            )
            pairs = zip(own_grads, starts, strict=True)
            return [paddle.zeros_like(x) if g is None else g for g, x in pairs]

        return gradient

    first = len(tensors)
    own_draws = [
        range(first, first + branches.drawn[0]),
        range(first + branches.drawn[0], first + sum(branches.drawn)),
    ]
    every = [*tensors, *drawn, *(g for _, g in given)]
    flags = branches.batched
    if flags is not None:
        flags = (*flags, *(True for _ in (*drawn, *given)))
    results = in_branches(
        (gradient_of(0), gradient_of(1)),
        *(predicate, every, flags, own_draws, branches.operands),
    )
    for i, grad in zip(wanted, results, strict=True):
        shared = branches.batched is not None and not branches.batched[i]
        grads[i] = grad.sum(0) if shared else grad
    return grads


def _place(branches: Branches, k: int, i: int) -> int | None:
    """Return the place in branch k of the output at this position, if it has it."""
    if i < branches.count or not k:
        return i if i < branches.count + branches.drawn[0] else None
    place = i - branches.drawn[0]
    return place if place >= branches.count else None


def _of_many(branches: Branches, call: BatchCall) -> list[Tensor]:
    """Return the results of many samples.

    Raises:
        NoRule: random numbers are drawn.
    """
    if any(branches.drawn):
        raise NoRule("a branch that draws random numbers; draw them before cond")
    predicate, *tensors = call.args[1:]
    flags = tuple(i in call.batched for i in range(2, len(call.args)))
    size = call.size
    if branches.batched is not None:
        return _of_samples_of_samples(branches, predicate, 1 in call.batched, call)
    if 1 in call.batched:
        chosen = predicate.reshape([size])
        made = Branches(branches.programs, batched=flags, operands=branches.operands)
        return COND.bind([made, chosen, *tensors])

    def wide(program: Program) -> Branch:
        return lambda leaves: of_samples(program, leaves, flags, size)

    one, other = branches.programs
    return in_branches(
        (wide(one), wide(other)), predicate, tensors, operands=branches.operands
    )


def _of_samples_of_samples(
    branches: Branches, chosen: Tensor, is_many: bool, call: BatchCall
) -> list[Tensor]:
    """Return the results for samples of two axes, which become one."""
    assert branches.batched is not None
    size, inner = call.size, chosen.shape[-1]

    def spread(x: Tensor, is_outer: bool, is_inner: bool) -> Tensor:
        rest = x.shape[is_outer + is_inner :]
        x = x.reshape([size if is_outer else 1, inner if is_inner else 1, *rest])
        return ops.expand(x, [size, inner, *rest]).reshape([size * inner, *rest])

    outer = [i in call.batched for i in range(2, len(call.args))]
    tensors = [
        spread(x, a, b) if a or b else x
        for x, a, b in zip(call.args[2:], outer, branches.batched, strict=True)
    ]
    flags = tuple(a or b for a, b in zip(outer, branches.batched, strict=True))
    made = Branches(branches.programs, batched=flags, operands=branches.operands)
    results = COND.bind([made, spread(chosen, is_many, True), *tensors])
    return [y.reshape([size, inner, *y.shape[1:]]) for y in results]
