"""A loop for as long as a condition holds, as one operator of a program.

Many samples are one loop, which goes on for as long as one of them does. It has no
gradient: how many turns there are, and so what would have to be kept, is not known.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from paddle import Tensor

from ..paddle_side.autograd.grad_mode import grad_mode
from ..paddle_side.listener import listener
from .batches.batching import (
    closed_over,
    recorded_one,
    replayed,
    samples_of,
    without_stops,
)
from .branches import of_samples, truth
from .compiling.passes import program_of
from .compiling.program import Program
from .cond_op import in_branches
from .operators.calls import BatchCall, Call, NoRule
from .operators.entry import batch_of, define, holds_for_complex, reverse_of
from .operators.shared import ops

Condition = Callable[[list[Tensor]], Tensor]
"""A function of the carry to a single truth."""

Turn = Callable[[list[Tensor]], Sequence[Tensor]]
"""A function of the carry to the next carry, of the same shapes and dtypes."""

_numbers = itertools.count()


class WhileLoop:
    """A loop, called with its carry and with all that its two programs close over.

    Args:
        condition: takes the carry, then the tensors that it closes over.
        turn: does likewise, and gives the next carry.
        carry: how many tensors the carry has.
    """

    def __init__(self, condition: Program, turn: Program, carry: int) -> None:
        self.condition, self.turn, self.carry = condition, turn, carry
        self._number = next(_numbers)

    def __repr__(self) -> str:
        return f"Turns(no. {self._number}: {len(self.turn.ops)} operators)"

    @property
    def programs(self) -> tuple[Program, Program]:
        """The programs that it holds."""
        return self.condition, self.turn

    @cached_property
    def as_run(self) -> tuple[Program, Program]:
        """The programs without the places where gradients end."""
        return without_stops(self.condition), without_stops(self.turn)

    def parted(self, tensors: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Return the carry, and what the condition and the turn close over."""
        n, m = self.carry, len(self.condition.inputs)
        return tensors[:n], tensors[n:m], tensors[m:]

    def no_turns(self, *tensors: Tensor) -> list[Tensor]:
        """Return copies of the carry as it was given."""
        return [x.clone() for x in tensors[: self.carry]]

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """Return the last carry."""
        carry, requested, held = self.parted(tensors)
        condition, turn = self.as_run
        with grad_mode(False):
            while truth(condition.function(*carry, *requested)[0]):
                carry = turn.function(*carry, *held)
            return self.no_turns(*carry)  # which may be what it was given

    def of_many(self, call: BatchCall) -> list[Tensor]:
        """Return the results of many samples."""
        size, tensors = call.size, call.args[1:]
        flags = [i in call.batched for i in range(1, len(call.args))]
        carry, requested, held = self.parted(tensors)
        of_carry, of_asked, of_held = self.parted(flags)
        wide = [
            x if flag else ops.expand(x, [size, *x.shape])
            for x, flag in zip(carry, of_carry, strict=True)
        ]
        many = [True] * len(wide)

        def goes_on(carry: Sequence[Tensor]) -> Tensor:
            given, are_many = [*carry, *requested], [*many, *of_asked]
            (results,) = of_samples(self.condition, given, are_many, size)
            return results.reshape([size]).astype("bool")

        def turn(leaves: list[Tensor]) -> list[Tensor]:
            moving, *carry = leaves
            results = in_branches(
                (lambda given: replayed(self.turn, given), self._as_it_is),
                *(moving, [*carry, *held], (*many, *of_held)),
            )
            return [ops.logical_and(moving, goes_on(results)), *results]

        start = [goes_on(wide), *wide]
        _, *last = in_turns(lambda leaves: leaves[0].any(), turn, start)
        return last

    def _as_it_is(self, given: list[Tensor]) -> list[Tensor]:
        return [ops.assign(x) for x in given[: self.carry]]


WHILE = define(
    "while_loop", "", run=lambda turns, *tensors: turns(*tensors), opaque=True
)
WHILE.untaken = WhileLoop.no_turns

holds_for_complex("while_loop")


@reverse_of("while_loop")
def _while_reverse(call: Call) -> list[Any]:
    raise NoRule(
        "its gradient, since the number of turns is not known; use fori_loop or scan, "
        "or take the gradient outside of jit and vmap"
    )


@batch_of("while_loop")
def _while_batch(call: BatchCall) -> list[Tensor]:
    return call.args[0].of_many(call)


def in_turns(condition: Condition, turn: Turn, carry: Sequence[Tensor]) -> list[Tensor]:
    """Run a loop as one operator of the record that listens; return the last carry.

    Raises:
        CaptureError: the loop draws random numbers.
    """
    samples = samples_of(carry)
    asks, requested = _traced(lambda leaves: [condition(leaves)], samples, False)
    moves, held = _traced(turn, samples, True)
    return WHILE.bind([WhileLoop(asks, moves, len(carry)), *carry, *requested, *held])


def _traced(
    fn: Turn, samples: Sequence[Tensor], is_unlikely: bool
) -> tuple[Program, list[Tensor]]:
    """Trace one of the loop's functions.

    Returns:
        Its program, whose last inputs are the tensors that it closes over; and these.
    """
    program, record = recorded_one(fn, samples, is_unlikely)
    if record.draws:
        record.fail(
            "random numbers are drawn in a while_loop; draw them before it, and give "
            "them in the carry"
        )
    outer: Any = listener()
    if outer is not None:
        outer.writes = outer.writes or record.writes
    far, constants = closed_over(program, record)
    inputs = (*program.inputs, *far)
    traced = program_of(program.ops, inputs, constants, program.outputs, "turn")
    return traced, [*far.values()]
