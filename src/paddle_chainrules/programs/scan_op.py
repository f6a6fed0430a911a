"""Loops of steps as one operator of a program, whose steps are a program too.

Its gradients are such an operator again. It goes back over the carries at the start of
each step and runs each step once more. Many samples are one loop whose steps are for
all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import paddle
from paddle import Tensor

from ..paddle_side.autograd.grad_mode import grad_mode
from ..paddle_side.dtypes import is_differentiable
from ..paddle_side.listener import listener, not_listening
from ..settings import loops_are_on
from .batches.batching import (
    batched,
    closed_over,
    recorded_one,
    replayed,
    samples_of,
    without_stops,
)
from .compiling.passes import program_of
from .compiling.program import Program
from .compiling.repeated_steps import RepeatedStep
from .derivatives.taylor import leaf_of
from .operators.calls import BatchCall, Call
from .operators.entry import batch_of, define, reverse_of
from .operators.shared import ops
from .tracing.operations import Operation, Value

Step = Callable[[list[Tensor]], Sequence[Tensor]]
"""A function of a carry and a step's inputs, to the next carry and the outputs."""

_numbers = itertools.count()


class Scan:
    """The steps of a loop, called with all their inputs.

    Args:
        program: of a step. It takes the carry, the step's own inputs, and the inputs of
            all steps. It gives the next carry and the step's outputs.
        carry: how many tensors the carry has.
        xs: how many tensors come with each step.
        count: how many steps there are.
        backwards: whether they go from the last row of their inputs to the first.
        saved: how many of the last results are the carries that steps begin with. The
            backward pass needs them.
    """

    def __init__(
        self,
        program: Program,
        carry: int,
        xs: int,
        count: int,
        backwards: bool,
        saved: int,
    ) -> None:
        self.program, self.carry, self.xs = program, carry, xs
        self.count, self.backwards, self.saved = count, backwards, saved
        self._number = next(_numbers)

    def __repr__(self) -> str:
        direction = ", backwards" if self.backwards else ""
        size = f"{len(self.program.ops)} operators"
        return f"Steps(no. {self._number}: {self.count} of {size}{direction})"

    @property
    def description(self) -> str:
        """What a user calls it."""
        return f"a scan of {self.count} steps"

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs that it holds."""
        return (self.program,)

    @cached_property
    def as_run(self) -> Program:
        """The program without operators that only stop gradients."""
        return without_stops(self.program)

    @cached_property
    def without_saved(self) -> Scan:
        """The scan without saved carries, for calls that need no backward pass."""
        outputs = self.program.outputs[: -self.saved]
        live_ins = self.program.inputs, self.program.constants
        program = program_of(self.program.ops, *live_ins, outputs, "step")
        return Scan(program, self.carry, self.xs, self.count, self.backwards, 0)

    def split_tensors(self, tensors: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Split tensors into the carry, the stacked inputs and the loop invariants."""
        n, m = self.carry, self.carry + self.xs
        return tensors[:n], tensors[n:m], tensors[m:]

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """Return the last carry, and the outputs of all steps."""
        carry, xs, invariants = self.split_tensors(tensors)
        with grad_mode(False):
            if loops_are_on():
                repeated_step = RepeatedStep.of(
                    self.as_run, carry, xs, invariants, self.backwards
                )
                if repeated_step is not None:
                    for _ in repeated_step.run_steps(self.count):
                        pass
                    last, ys = repeated_step.result()
                    return [*last, *ys]
            rows: list[Sequence[Tensor]] = []
            stride = -1 if self.backwards else 1
            for t in range(self.count)[::stride]:
                result = self.as_run(*carry, *(x[t] for x in xs), *invariants)
                carry = result[: self.carry]
                rows.append(result[self.carry :])
            rows = rows[::stride]
            return [*carry, *(paddle.stack([*y]) for y in zip(*rows, strict=True))]

    def gradients_of(self, call: Call) -> list[Tensor | None]:
        """Return the gradients of a call's tensors, by a scan in reverse."""
        tensors, n, m = call.args[1:], self.carry, self.carry + self.xs
        _, xs, invariants = self.split_tensors(tensors)
        saved = call.outputs[len(call.outputs) - self.saved :]
        output_grads = [(i, g) for i, g in enumerate(call.cotangents) if g is not None]
        seeds = [(i, g) for i, g in output_grads if i >= n]
        reached = self._reached_inputs([i for i, _ in output_grads])

        # All by their positions among the tensors.
        reached_carry = {i for i, _ in output_grads} | reached
        carry_positions = [
            i for i in range(n) if i in reached_carry and is_differentiable(tensors[i])
        ]
        wanted = [
            i
            for i in range(n, len(tensors))
            if i in reached and i + 1 in call.wanted and is_differentiable(tensors[i])
        ]
        xs_positions, invariant_positions = (
            [i for i in wanted if i < m],
            [i for i in wanted if i >= m],
        )
        initial_grads = [
            _or_zeros(call.cotangents[i], tensors[i]) for i in carry_positions
        ]
        initial_grads += [paddle.zeros_like(tensors[i]) for i in invariant_positions]

        def backward_step(leaves: list[Tensor]) -> list[Tensor]:
            remaining_leaves = iter(leaves)
            output_seeds = [(i, next(remaining_leaves)) for i in carry_positions]
            sums = [next(remaining_leaves) for _ in invariant_positions]
            tracer: Any = listener()
            with grad_mode(True):
                primals = [leaf_of(tracer, next(remaining_leaves)) for _ in range(m)]
                primals += (leaf_of(tracer, x) for x in invariants)
                results = replayed(self.program, primals)
            output_seeds += [(i, next(remaining_leaves)) for i, _ in seeds]
            output_seeds = [
                (i, g) for i, g in output_seeds if not results[i].stop_gradient
            ]
            grad_positions = [*carry_positions, *invariant_positions, *xs_positions]
            grads = tracer.gradients(
                [results[i] for i, _ in output_seeds],
                [primals[i] for i in grad_positions],
                [g for _, g in output_seeds],
                create_graph=paddle.is_grad_enabled(),
            )
            grad_of = {
                i: _or_zeros(g, primals[i])
                for i, g in zip(grad_positions, grads, strict=True)
            }
            new_sums = [
                s + grad_of[i] for s, i in zip(sums, invariant_positions, strict=True)
            ]
            return [
                *(grad_of[i] for i in carry_positions),
                *new_sums,
                *(grad_of[i] for i in xs_positions),
            ]

        stacked_inputs = [*saved, *xs, *(g for _, g in seeds)]
        results = trace_scan(
            backward_step, initial_grads, stacked_inputs, self.count, not self.backwards
        )
        assert results is not None
        grad_by_position = dict(
            zip(
                (*carry_positions, *invariant_positions, *xs_positions),
                results,
                strict=True,
            )
        )
        return [
            grad_by_position.get(i) if i in reached else None
            for i in range(len(tensors))
        ]

    def _reached_inputs(self, output_positions: Sequence[int]) -> set[int]:
        """Return the positions of program inputs that gradients reach or may reach.

        Args:
            output_positions: of the steps' results that have gradients.
        """
        rows = self.program.reached
        live, reached = {*output_positions}, set[int]()
        while True:
            reached = set[int]().union(*(rows[i] for i in live))
            new_carry = {i for i in reached if i < self.carry} - live
            if not new_carry:
                return reached
            live |= new_carry

    def batch(self, call: BatchCall) -> list[Tensor]:
        """Return the results of many samples."""
        carry, xs, invariants = self.split_tensors(call.args[1:])
        flags = [i in call.batched for i in range(1, len(call.args))]
        _, xs_batched, invariants_batched = self.split_tensors(flags)
        size = call.size

        def expand_unbatched(x: Tensor, flag: bool) -> Tensor:
            return x if flag else ops.expand(x, [size, *x.shape])

        initial_carry = [
            expand_unbatched(x, flag) for x, flag in zip(carry, flags, strict=False)
        ]
        stacked_inputs = [
            paddle.moveaxis(x, 0, 1) if flag else x
            for x, flag in zip(xs, xs_batched, strict=True)
        ]
        step_batched = [
            *(True for _ in initial_carry),
            *xs_batched,
            *invariants_batched,
        ]

        def batched_step(leaves: list[Tensor]) -> list[Tensor]:
            results, is_batched = batched(
                self.program, [*leaves, *invariants], step_batched
            )
            return [*map(expand_unbatched, results, is_batched)]

        results = trace_scan(
            batched_step,
            initial_carry,
            stacked_inputs,
            self.count,
            self.backwards,
            self.saved,
        )
        assert results is not None
        stop = self.carry
        return [*results[:stop], *(paddle.moveaxis(y, 0, 1) for y in results[stop:])]


def _or_zeros(x: Tensor | None, like: Tensor) -> Tensor:
    result: Tensor = paddle.zeros_like(like) if x is None else x
    return result


SCAN = define("steps", "", run=lambda steps, *tensors: steps(*tensors), opaque=True)


@reverse_of("steps")
def _steps_reverse(call: Call) -> list[Any]:
    return [None, *call.args[0].gradients_of(call)]


@batch_of("steps")
def _steps_batch(call: BatchCall) -> list[Tensor]:
    return call.args[0].batch(call)


def _prune_outputs(op: Operation, wanted: Collection[Value]) -> Operation:
    """Return the operation without the carries that nobody needs."""
    scan, *rest = op.args
    stop = len(op.outputs) - scan.saved
    if not scan.saved or not {*op.outputs[stop:]}.isdisjoint(wanted):
        return op
    return replace(op, args=(scan.without_saved, *rest), outputs=op.outputs[:stop])


SCAN.prune_outputs = _prune_outputs


def trace_scan(
    step: Step,
    carry: Sequence[Tensor],
    xs: Sequence[Tensor],
    count: int,
    backwards: bool = False,
    saved: int | None = None,
) -> list[Tensor] | None:
    """Run a loop as one operator of the listening tracer.

    Args:
        step: gives as many tensors of the carry's shapes and dtypes first.
        xs: inputs of the steps, stacked along the first axis.
        backwards: whether to begin with the last row.
        saved: how many of the last results of a step are the carry that it begins with.
            With None we find this out.

    Returns:
        The last carry, and the outputs of the steps along a first axis; None where
        steps draw random numbers, since each has its own.
    """
    needs_gradients = paddle.is_grad_enabled()
    with not_listening():
        first_rows = [x[-1 if backwards else 0] for x in xs]
    samples = samples_of([*carry, *first_rows])
    program, tracer = recorded_one(step, samples)
    if tracer.draws:
        return None
    outer: Any = listener()
    if outer is not None:
        outer.writes = outer.writes or tracer.writes
    closed_over_tensors, constants = closed_over(program, tracer)
    inputs, outputs = (*program.inputs, *closed_over_tensors), program.outputs
    invariants, saved_count = [*closed_over_tensors.values()], 0
    if (
        saved is None
        and needs_gradients
        and any(not x.stop_gradient for x in (*carry, *xs, *invariants))
    ):
        saved_count = len(carry)
        outputs = (*outputs, *program.inputs[:saved_count])
    program = program_of(program.ops, inputs, constants, outputs, "step")
    counts = len(carry), len(xs), count, backwards
    scan = Scan(program, *counts, saved_count if saved is None else saved)
    results = SCAN.bind([scan, *carry, *xs, *invariants])
    return results[: len(results) - saved_count]
