"""Calls of one of two functions as an operator, and that operator's rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import paddle
from paddle import Tensor

from ..errors import CaptureError
from ..paddle_side.autograd.grad_mode import grad_mode
from ..paddle_side.dtypes import is_differentiable
from ..paddle_side.listener import listener, not_listening
from ..paddle_side.rules.derivatives.piecewise import is_nonzero
from .batches.batching import closed_over, recorded_one, replayed, samples_of
from .branches import Branches, results_for_samples
from .compiling.passes import program_of
from .compiling.program import Program
from .derivatives.taylor import leaf_of
from .operators.calls import BatchCall, Call, NoRule
from .operators.entry import batch_of, define, formula_of, holds_for_complex, reverse_of
from .operators.shared import ops
from .tracing.operations import Value, fresh_numbers

Branch = Callable[[list[Tensor]], Sequence[Tensor]]
"""A function of a list of tensors. Both branches give the same shapes and dtypes."""


def _run_branches(branches: Branches, *tensors: Tensor) -> list[Tensor]:
    return branches(*tensors)


COND = define("cond", "", run=_run_branches, opaque=True)
DRAWING_COND = define("drawing_cond", "", run=_run_branches, opaque=True, random=True)
"""The operator for branches that draw random numbers."""

holds_for_complex("cond", "drawing_cond")


@reverse_of("cond", "drawing_cond")
def _cond_reverse(call: Call) -> list[Any]:
    return [None, None, *_cond_gradients(call.args[0], call)]


@formula_of("cond")
def _cond_formula(branches: Branches, predicate: Tensor, *tensors: Tensor) -> Any:
    if not branches.is_light:
        raise NoRule(
            "a branch with so much to do that only one is to run; leave it lazy"
        )
    return branches.compute_both(predicate, tensors)


@batch_of("cond", "drawing_cond")
def _cond_batch(call: BatchCall) -> list[Tensor]:
    return _batch_branches(call.args[0], call)


def trace_cond(
    branches: tuple[Branch, Branch],
    predicate: Tensor,
    tensors: Sequence[Tensor],
    batched: tuple[bool, ...] | None = None,
    drawn: Sequence[range] = (range(0), range(0)),
    operands: int = 0,
) -> list[Tensor]:
    """Call one of two functions as one operator of the listening tracer.

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
        chosen = None if batched is not None else (0 if is_nonzero(predicate) else 1)
    samples = samples_of(rows)
    traces = [
        _trace_branch(fn, samples, drawn[k], is_unlikely=k != chosen)
        for k, fn in enumerate(branches)
    ]
    closed_over_tensors = [x for trace in traces for x in trace[1]]
    true_program, false_program = (program for program, *_ in traces)
    sample_count = len(samples)
    true_extras, false_extras = (
        true_program.inputs[sample_count:],
        false_program.inputs[sample_count:],
    )
    programs = (
        replace(
            true_program,
            inputs=(*true_program.inputs, *_unused_inputs(true_program, false_extras)),
        ),
        replace(
            false_program,
            inputs=(
                *false_program.inputs[:sample_count],
                *_unused_inputs(false_program, true_extras),
                *false_extras,
            ),
        ),
    )
    draw_counts = traces[0][2], traces[1][2]
    all_batched = (
        None if batched is None else (*batched, *(False for _ in closed_over_tensors))
    )
    joint_branches = Branches(programs, draw_counts, all_batched, operands)
    if any(draw_counts) and batched is not None:
        raise CaptureError(
            "random numbers are drawn in a branch of cond that differs from sample to "
            "sample; draw them before it, and give them as an operand"
        )
    operator = DRAWING_COND if any(draw_counts) else COND
    return operator.bind([joint_branches, predicate, *tensors, *closed_over_tensors])[
        : joint_branches.count
    ]


def _trace_branch(
    fn: Branch, samples: Sequence[Tensor], drawn: range, is_unlikely: bool
) -> tuple[Program, list[Tensor], int]:
    """Trace a branch.

    Returns:
        Its program, whose last inputs are the tensors that it closes over; these
        tensors; and how many random numbers it draws, which are its last outputs.
    """
    program, tracer = recorded_one(fn, samples, is_unlikely=is_unlikely)
    outer: Any = listener()
    if outer is not None:
        outer.writes = outer.writes or tracer.writes
        outer.differentiates = outer.differentiates or tracer.differentiates
    branch_ops, outputs, inputs = [*program.ops], program.outputs, program.inputs
    random_ops = [op for op in branch_ops if op.operator.random]
    drawn_values = [v for op in random_ops for v in op.outputs if v.dtype != "none"]
    closed_over_tensors, constants = closed_over(program, tracer)
    draw_count = 0
    if drawn:
        branch_ops = [op for op in branch_ops if not op.operator.random]
        replaced_inputs = dict(zip(drawn, drawn_values, strict=True))
        inputs = tuple(replaced_inputs.get(i, v) for i, v in enumerate(inputs))
    elif random_ops:
        outputs, draw_count = (*outputs, *drawn_values), len(drawn_values)
    program = program_of(
        branch_ops, (*inputs, *closed_over_tensors), constants, outputs, "branch"
    )
    return program, [*closed_over_tensors.values()], draw_count


def _unused_inputs(program: Program, like: Sequence[Value]) -> list[Value]:
    """Return new inputs with these shapes and dtypes, which a program does not read."""
    live_ins = (*program.inputs, *program.constants)
    fresh = fresh_numbers(live_ins, program.ops)
    return [Value(next(fresh), v.shape, v.dtype, v.bytes) for v in like]


def _cond_gradients(branches: Branches, call: Call) -> list[Tensor | None]:
    """Return the gradients of a call's tensors, by a call of the gradient branches."""
    predicate, *tensors = call.args[1:]
    drawn = call.outputs[branches.count :]
    output_grads = [(i, g) for i, g in enumerate(call.cotangents) if g is not None]
    output_positions = [
        [_output_position(branches, branch_index, i) for i, _ in output_grads]
        for branch_index in range(2)
    ]
    reached = {*range(branches.operands)}
    for program, positions in zip(branches.programs, output_positions, strict=True):
        reached.update(*(program.reached[i] for i in positions if i is not None))
    wanted = [
        i
        for i, x in enumerate(tensors)
        if i in reached and i + 2 in call.wanted and is_differentiable(x)
    ]
    grads: list[Tensor | None] = [None] * len(tensors)
    if not wanted:
        return grads

    def gradient_of(branch_index: int) -> Branch:
        def gradient(leaves: list[Tensor]) -> list[Tensor]:
            primal_count = len(tensors)
            tracer: Any = listener()
            with grad_mode(True):
                primals = [leaf_of(tracer, x) for x in leaves[:primal_count]]
                results = replayed(branches.programs[branch_index], primals)
            cotangents = leaves[primal_count + len(drawn) :]
            seeds = [
                (results[i], g)
                for i, g in zip(output_positions[branch_index], cotangents, strict=True)
                if i is not None and not results[i].stop_gradient
            ]
            starts = [primals[i] for i in wanted]
            branch_grads = tracer.gradients(
                [end for end, _ in seeds],
                starts,
                [g for _, g in seeds],
                create_graph=paddle.is_grad_enabled(),
            )
            pairs = zip(branch_grads, starts, strict=True)
            return [paddle.zeros_like(x) if g is None else g for g, x in pairs]

        return gradient

    tensor_count = len(tensors)
    draw_ranges = [
        range(tensor_count, tensor_count + branches.drawn[0]),
        range(tensor_count + branches.drawn[0], tensor_count + sum(branches.drawn)),
    ]
    all_tensors = [*tensors, *drawn, *(g for _, g in output_grads)]
    flags = branches.batched
    if flags is not None:
        flags = (*flags, *(True for _ in (*drawn, *output_grads)))
    results = trace_cond(
        (gradient_of(0), gradient_of(1)),
        *(predicate, all_tensors, flags, draw_ranges, branches.operands),
    )
    for i, grad in zip(wanted, results, strict=True):
        is_unbatched = branches.batched is not None and not branches.batched[i]
        grads[i] = grad.sum(0) if is_unbatched else grad
    return grads


def _output_position(
    branches: Branches, branch_index: int, position: int
) -> int | None:
    """Return a branch's output position for a position among all outputs, if any."""
    if position < branches.count or not branch_index:
        return position if position < branches.count + branches.drawn[0] else None
    branch_position = position - branches.drawn[0]
    return branch_position if branch_position >= branches.count else None


def _batch_branches(branches: Branches, call: BatchCall) -> list[Tensor]:
    """Return the results of a call for many samples.

    Raises:
        NoRule: random numbers are drawn.
    """
    if any(branches.drawn):
        raise NoRule("a branch that draws random numbers; draw them before cond")
    predicate, *tensors = call.args[1:]
    flags = tuple(i in call.batched for i in range(2, len(call.args)))
    size = call.size
    if branches.batched is not None:
        return _batch_batched_branches(branches, predicate, 1 in call.batched, call)
    if 1 in call.batched:
        predicates = predicate.reshape([size])
        batched_branches = Branches(
            branches.programs, batched=flags, operands=branches.operands
        )
        return COND.bind([batched_branches, predicates, *tensors])

    def batched_branch(program: Program) -> Branch:
        return lambda leaves: results_for_samples(program, leaves, flags, size)

    true_program, false_program = branches.programs
    return trace_cond(
        (batched_branch(true_program), batched_branch(false_program)),
        predicate,
        tensors,
        operands=branches.operands,
    )


def _batch_batched_branches(
    branches: Branches, predicates: Tensor, has_outer_predicates: bool, call: BatchCall
) -> list[Tensor]:
    """Return the results for samples of two axes, which are merged into one."""
    assert branches.batched is not None
    size, inner = call.size, predicates.shape[-1]

    def merge_axes(x: Tensor, is_outer: bool, is_inner: bool) -> Tensor:
        rest = x.shape[is_outer + is_inner :]
        x = x.reshape([size if is_outer else 1, inner if is_inner else 1, *rest])
        return ops.expand(x, [size, inner, *rest]).reshape([size * inner, *rest])

    outer = [i in call.batched for i in range(2, len(call.args))]
    tensors = [
        merge_axes(x, a, b) if a or b else x
        for x, a, b in zip(call.args[2:], outer, branches.batched, strict=True)
    ]
    flags = tuple(a or b for a, b in zip(outer, branches.batched, strict=True))
    batched_branches = Branches(
        branches.programs, batched=flags, operands=branches.operands
    )
    results = COND.bind(
        [batched_branches, merge_axes(predicates, has_outer_predicates, True), *tensors]
    )
    return [y.reshape([size, inner, *y.shape[1:]]) for y in results]
