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
from .compiling.repeated_steps import NotRepeatable, RepeatedStep
from .derivatives.taylor import leaf_of
from .operators.calls import BatchCall, Call
from .operators.entry import batch_of, define, reverse_of
from .operators.shared import ops
from .switch import loops_are_on
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
        backwards: whether they go from the last part of their inputs to the first.
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
        back = ", backwards" if self.backwards else ""
        size = f"{len(self.program.ops)} operators"
        return f"Steps(no. {self._number}: {self.count} of {size}{back})"

    @property
    def programs(self) -> tuple[Program, ...]:
        """The programs that it holds."""
        return (self.program,)

    @cached_property
    def as_run(self) -> Program:
        """The program without the places where gradients end."""
        return without_stops(self.program)

    @cached_property
    def without_saved(self) -> Scan:
        """The same without the saved carries, for calls that need no backward pass."""
        ends = self.program.outputs[: -self.saved]
        given = self.program.inputs, self.program.constants
        program = program_of(self.program.ops, *given, ends, "step")
        return Scan(program, self.carry, self.xs, self.count, self.backwards, 0)

    def parted(self, tensors: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Return the carry, the inputs of single steps, and the inputs of all steps."""
        n, m = self.carry, self.carry + self.xs
        return tensors[:n], tensors[n:m], tensors[m:]

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """Return the last carry, and the outputs of all steps."""
        carry, xs, held = self.parted(tensors)
        with grad_mode(False):
            if loops_are_on():
                try:
                    made = RepeatedStep(self.as_run, carry, xs, held, self.backwards)
                except NotRepeatable:
                    pass
                else:
                    for _ in made.run_steps(self.count):
                        pass
                    last, ys = made.result()
                    return [*last, *ys]
            rows: list[Sequence[Tensor]] = []
            step = -1 if self.backwards else 1
            for t in range(self.count)[::step]:
                result = self.as_run(*carry, *(x[t] for x in xs), *held)
                carry = result[: self.carry]
                rows.append(result[self.carry :])
            rows = rows[::step]
            return [*carry, *(paddle.stack([*y]) for y in zip(*rows, strict=True))]

    def back(self, call: Call) -> list[Tensor | None]:
        """Return the gradients of all tensors that it is given."""
        tensors, n, m = call.args[1:], self.carry, self.carry + self.xs
        _, xs, held = self.parted(tensors)
        saved = call.outputs[len(call.outputs) - self.saved :]
        given = [(i, g) for i, g in enumerate(call.cotangents) if g is not None]
        seeds = [(i, g) for i, g in given if i >= n]
        reached = self._reached([i for i, _ in given])

        # All by their numbers among what is given.
        into = {i for i, _ in given} | reached
        moving = [i for i in range(n) if i in into and is_differentiable(tensors[i])]
        wanted = [
            i
            for i in range(n, len(tensors))
            if i in reached and i + 1 in call.wanted and is_differentiable(tensors[i])
        ]
        of_xs, of_held = [i for i in wanted if i < m], [i for i in wanted if i >= m]
        start = [_zeros_unless(call.cotangents[i], tensors[i]) for i in moving]
        start += [paddle.zeros_like(tensors[i]) for i in of_held]

        def step(leaves: list[Tensor]) -> list[Tensor]:
            each = iter(leaves)
            ends = [(i, next(each)) for i in moving]
            sums = [next(each) for _ in of_held]
            record: Any = listener()
            with grad_mode(True):
                here = [leaf_of(record, next(each)) for _ in range(m)]
                here += (leaf_of(record, x) for x in held)
                results = replayed(self.program, here)
            ends += [(i, next(each)) for i, _ in seeds]
            ends = [(i, g) for i, g in ends if not results[i].stop_gradient]
            row = [*moving, *of_held, *of_xs]
            grads = record.gradients(
                [results[i] for i, _ in ends],
                [here[i] for i in row],
                [g for _, g in ends],
                create_graph=paddle.is_grad_enabled(),
            )
            by = {i: _zeros_unless(g, here[i]) for i, g in zip(row, grads, strict=True)}
            more = [s + by[i] for s, i in zip(sums, of_held, strict=True)]
            return [*(by[i] for i in moving), *more, *(by[i] for i in of_xs)]

        rows = [*saved, *xs, *(g for _, g in seeds)]
        results = in_steps(step, start, rows, self.count, not self.backwards)
        made = dict(zip((*moving, *of_held, *of_xs), results, strict=True))
        return [made.get(i) if i in reached else None for i in range(len(tensors))]

    def _reached(self, ends: Sequence[int]) -> set[int]:
        """Return the positions of program inputs that gradients reach or may reach.

        Gradients come from the steps' results whose positions ``ends`` gives.
        """
        rows = self.program.reached
        live, reached = {*ends}, set[int]()
        while True:
            reached = set[int]().union(*(rows[i] for i in live))
            more = {i for i in reached if i < self.carry} - live
            if not more:
                return reached
            live |= more

    def of_many(self, call: BatchCall) -> list[Tensor]:
        """Return the results of many samples."""
        carry, xs, held = self.parted(call.args[1:])
        flags = [i in call.batched for i in range(1, len(call.args))]
        _, by_xs, by_held = self.parted(flags)
        size = call.size

        def spread(x: Tensor, flag: bool) -> Tensor:
            return x if flag else ops.expand(x, [size, *x.shape])

        start = [spread(x, flag) for x, flag in zip(carry, flags, strict=False)]
        rows = [
            paddle.moveaxis(x, 0, 1) if flag else x
            for x, flag in zip(xs, by_xs, strict=True)
        ]
        every = [*(True for _ in start), *by_xs, *by_held]

        def step(leaves: list[Tensor]) -> list[Tensor]:
            results, differ = batched(self.program, [*leaves, *held], every)
            return [*map(spread, results, differ)]

        results = in_steps(step, start, rows, self.count, self.backwards, self.saved)
        stop = self.carry
        return [*results[:stop], *(paddle.moveaxis(y, 0, 1) for y in results[stop:])]


def _zeros_unless(x: Tensor | None, like: Tensor) -> Tensor:
    result: Tensor = paddle.zeros_like(like) if x is None else x
    return result


STEPS = define("steps", "", run=lambda steps, *tensors: steps(*tensors), opaque=True)


@reverse_of("steps")
def _steps_reverse(call: Call) -> list[Any]:
    return [None, *call.args[0].back(call)]


@batch_of("steps")
def _steps_batch(call: BatchCall) -> list[Tensor]:
    return call.args[0].of_many(call)


def _prune_outputs(op: Operation, wanted: Collection[Value]) -> Operation:
    """Return the operation without the carries that nobody needs."""
    steps, *rest = op.args
    stop = len(op.outputs) - steps.saved
    if not steps.saved or not {*op.outputs[stop:]}.isdisjoint(wanted):
        return op
    return replace(op, args=(steps.without_saved, *rest), outputs=op.outputs[:stop])


STEPS.prune_outputs = _prune_outputs


class ScanDraws(Exception):
    """Raised where steps draw random numbers. Each step has its own."""


def in_steps(
    step: Step,
    carry: Sequence[Tensor],
    xs: Sequence[Tensor],
    count: int,
    backwards: bool = False,
    saved: int | None = None,
) -> list[Tensor]:
    """Run a loop as one operator of the record that listens.

    Args:
        step: gives as many tensors of the carry's shapes and dtypes first.
        xs: a part along the first axis comes with each step.
        backwards: whether to begin with the last part.
        saved: how many of the last results of a step are the carry that it begins with.
            With None we find this out.

    Returns:
        The last carry, and the outputs of the steps along a first axis.

    Raises:
        ScanDraws: the steps draw random numbers.
    """
    on = paddle.is_grad_enabled()
    with not_listening():
        rows = [x[-1 if backwards else 0] for x in xs]
    samples = samples_of([*carry, *rows])
    program, record = recorded_one(step, samples)
    if record.draws:
        raise ScanDraws
    outer: Any = listener()
    if outer is not None:
        outer.writes = outer.writes or record.writes
    far, constants = closed_over(program, record)
    inputs, ends = (*program.inputs, *far), program.outputs
    held, more = [*far.values()], 0
    if saved is None and on and any(not x.stop_gradient for x in (*carry, *xs, *held)):
        more = len(carry)
        ends = (*ends, *program.inputs[:more])
    program = program_of(program.ops, inputs, constants, ends, "step")
    kinds = len(carry), len(xs), count, backwards
    steps = Scan(program, *kinds, more if saved is None else saved)
    results = STEPS.every([steps, *carry, *xs, *held])
    return results[: len(results) - more]
