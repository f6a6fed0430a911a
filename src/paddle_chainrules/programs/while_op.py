"""A loop for as long as a condition holds, as one operator of a program.

Many samples are one loop, which goes on for as long as one of them does. It has no
gradient: the number of iterations, and so of residuals, is not known.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from paddle import Tensor

from ..paddle_side.autograd.grad_mode import grad_mode
from ..paddle_side.listener import listener
from ..paddle_side.rules.derivatives.piecewise import is_nonzero
from .batches.batching import (
    closed_over,
    recorded_one,
    replayed,
    samples_of,
    without_stops,
)
from .branches import results_for_samples
from .compiling.passes import program_of
from .compiling.program import Program
from .cond_op import trace_cond
from .operators.calls import BatchCall, Call, NoRule
from .operators.entry import batch_of, define, holds_for_complex, reverse_of
from .operators.shared import ops

Condition = Callable[[list[Tensor]], Tensor]
"""A function of the carry to a single truth."""

LoopBody = Callable[[list[Tensor]], Sequence[Tensor]]
"""A function of the carry to the next carry, of the same shapes and dtypes."""

_numbers = itertools.count()


class WhileLoop:
    """A loop, called with its carry and with all that its two programs close over.

    Args:
        condition: takes the carry, then the tensors that it closes over.
        body: does likewise, and gives the next carry.
        carry: how many tensors the carry has.
    """

    def __init__(self, condition: Program, body: Program, carry: int) -> None:
        self.condition, self.body, self.carry = condition, body, carry
        self._number = next(_numbers)

    def __repr__(self) -> str:
        return f"Turns(no. {self._number}: {len(self.body.ops)} operators)"

    @property
    def programs(self) -> tuple[Program, Program]:
        """The programs that it holds."""
        return self.condition, self.body

    @cached_property
    def as_run(self) -> tuple[Program, Program]:
        """The programs without operators that only stop gradients."""
        return without_stops(self.condition), without_stops(self.body)

    def split_tensors(self, tensors: Sequence[Any]) -> tuple[Any, Any, Any]:
        """Split tensors into the carry and what condition and body close over."""
        n, m = self.carry, len(self.condition.inputs)
        return tensors[:n], tensors[n:m], tensors[m:]

    def copy_carry(self, *tensors: Tensor) -> list[Tensor]:
        """Return copies of the carry, the first of the tensors."""
        return [x.clone() for x in tensors[: self.carry]]

    def __call__(self, *tensors: Tensor) -> list[Tensor]:
        """Return the last carry."""
        carry, condition_constants, body_constants = self.split_tensors(tensors)
        condition, body = self.as_run
        with grad_mode(False):
            while is_nonzero(condition.function(*carry, *condition_constants)[0]):
                carry = body.function(*carry, *body_constants)
            return self.copy_carry(*carry)  # which may be the arguments

    def batch(self, call: BatchCall) -> list[Tensor]:
        """Return the results of many samples."""
        size, tensors = call.size, call.args[1:]
        flags = [i in call.batched for i in range(1, len(call.args))]
        carry, condition_constants, body_constants = self.split_tensors(tensors)
        carry_batched, condition_batched, body_batched = self.split_tensors(flags)
        batched_carry = [
            x if flag else ops.expand(x, [size, *x.shape])
            for x, flag in zip(carry, carry_batched, strict=True)
        ]
        all_batched = [True] * len(batched_carry)

        def condition_holds(carry: Sequence[Tensor]) -> Tensor:
            inputs, batched_flags = (
                [*carry, *condition_constants],
                [*all_batched, *condition_batched],
            )
            (results,) = results_for_samples(
                self.condition, inputs, batched_flags, size
            )
            return results.reshape([size]).astype("bool")

        def batched_body(leaves: list[Tensor]) -> list[Tensor]:
            is_running, *carry = leaves
            results = trace_cond(
                (lambda inputs: replayed(self.body, inputs), self._copy_carry_inputs),
                *(is_running, [*carry, *body_constants], (*all_batched, *body_batched)),
            )
            return [ops.logical_and(is_running, condition_holds(results)), *results]

        initial_carry = [condition_holds(batched_carry), *batched_carry]
        _, *last_carry = trace_while(
            lambda leaves: leaves[0].any(), batched_body, initial_carry
        )
        return last_carry

    def _copy_carry_inputs(self, tensors: list[Tensor]) -> list[Tensor]:
        return [ops.assign(x) for x in tensors[: self.carry]]


WHILE = define(
    "while_loop", "", run=lambda turns, *tensors: turns(*tensors), opaque=True
)
WHILE.untaken = WhileLoop.copy_carry

holds_for_complex("while_loop")


@reverse_of("while_loop")
def _while_reverse(call: Call) -> list[Any]:
    raise NoRule(
        "its gradient, since the number of turns is not known; use fori_loop or scan, "
        "or take the gradient outside of jit and vmap"
    )


@batch_of("while_loop")
def _while_batch(call: BatchCall) -> list[Tensor]:
    return call.args[0].batch(call)


def trace_while(
    condition: Condition, body: LoopBody, carry: Sequence[Tensor]
) -> list[Tensor]:
    """Run a loop as one operator of the listening tracer; return the last carry.

    Raises:
        CaptureError: the loop draws random numbers.
    """
    samples = samples_of(carry)
    condition_program, condition_constants = _trace_function(
        lambda leaves: [condition(leaves)], samples, False
    )
    body_program, body_constants = _trace_function(body, samples, True)
    return WHILE.bind(
        [
            WhileLoop(condition_program, body_program, len(carry)),
            *carry,
            *condition_constants,
            *body_constants,
        ]
    )


def _trace_function(
    fn: LoopBody, samples: Sequence[Tensor], is_unlikely: bool
) -> tuple[Program, list[Tensor]]:
    """Trace one of the loop's functions.

    Returns:
        Its program, whose last inputs are the tensors that it closes over; and these.
    """
    program, tracer = recorded_one(fn, samples, is_unlikely)
    if tracer.draws:
        tracer.fail(
            "random numbers are drawn in a while_loop; draw them before it, and give "
            "them in the carry"
        )
    outer: Any = listener()
    if outer is not None:
        outer.writes = outer.writes or tracer.writes
    closed_over_tensors, constants = closed_over(program, tracer)
    inputs = (*program.inputs, *closed_over_tensors)
    traced = program_of(program.ops, inputs, constants, program.outputs, "turn")
    return traced, [*closed_over_tensors.values()]
