"""A program of values and gradients, split into forward and backward pass.

Other systems call these the forward and the backward graph of a joint graph. The values
that go from the one to the other are saved for backward: the residuals.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..sizes.samples import Samples
from ..tracing.operations import Operation, Value
from ..tracing.reach import computed_of
from .passes import expanding, needed, program_of
from .program import Program
from .reuse import memory_of

LARGE = 1 << 18
"""Results of this many bytes or more are not kept if one tensor cheaply gives them."""


@dataclass(frozen=True, eq=False)
class ForwardBackward:
    """A forward program for values, and what the backward program needs later.

    Attributes:
        forward: from inputs to outputs, followed by the residuals.
        count: how many outputs come before the residuals.
        reachable: positions of the residuals that other code also holds and may write
            into.
    """

    forward: Program
    count: int
    reachable: tuple[int, ...]
    _rest: tuple[Operation, ...]
    _saved: tuple[Value, ...]
    _cotangents: tuple[Value, ...]
    _gradients: tuple[Value | None, ...]
    _made: dict[Any, tuple[Program, list[bool]]] = field(default_factory=dict)
    _behind: dict[tuple[bool, ...], frozenset[Value]] = field(default_factory=dict)
    _apart: ForwardBackward | None = None

    @property
    def apart(self) -> ForwardBackward:
        """The same with a tensor for each residual."""
        return self._apart or self

    def for_samples(self, samples: Samples) -> ForwardBackward:
        """Return the same for any number of samples, with a tensor per residual."""
        forward_backward = self.apart
        forward = replace(forward_backward.forward, samples=samples)
        return replace(forward_backward, forward=forward, _made={}, _behind={})

    def holding(
        self,
        forward: Program,
        reachable: tuple[int, ...],
        rest: tuple[Operation, ...],
        saved: tuple[Value, ...],
        named: Callable[[Value], Value],
    ) -> ForwardBackward:
        """Return the same with other residuals.

        Args:
            forward: the forward program, which gives these.
            reachable: their positions that other code holds.
            rest: the backward operations, which start from these.
            saved: the residuals.
            named: gives for a former residual its value in the backward pass.
        """
        gradients = tuple(g and named(g) for g in self._gradients)
        return replace(
            self,
            forward=forward,
            reachable=reachable,
            _rest=rest,
            _saved=saved,
            _gradients=gradients,
            _made={},
            _behind={},
            _apart=self,
        )

    @property
    def whole(self) -> Program:
        """Forward and backward pass in one program, with the gradients that exist."""
        forward = self.forward
        results = tuple(grad for grad in self._gradients if grad is not None)
        inputs = (*forward.inputs, *self._cotangents)
        outputs = (*forward.outputs, *results)
        ops = (*forward.ops, *self._rest)
        return Program(inputs, forward.constants, ops, outputs, samples=forward.samples)

    @cached_property
    def joint(self) -> Program:
        """The program of outputs and gradients, without residuals between them."""
        whole, forward = self.apart.whole, self.apart.forward
        gradients = whole.outputs[len(forward.outputs) :]
        ends = [*whole.outputs[: self.count], *gradients]
        result = program_of(whole.ops, whole.inputs, whole.constants, ends, "joint")
        return replace(result, samples=whole.samples)

    @property
    def used(self) -> list[bool]:
        """Tells for each gradient whether it exists."""
        return [grad is not None for grad in self._gradients]

    def behind(self, given: tuple[bool, ...]) -> frozenset[Value]:
        """Return the values that given outputs are computed from, and themselves."""
        if given not in self._behind:
            pairs = zip(self.forward.outputs, given, strict=False)
            ends = [value for value, flag in pairs if flag]
            self._behind[given] = frozenset(computed_of(self.forward.ops, ends))
        return self._behind[given]

    def again(self, values: Set[Value]) -> ForwardBackward:
        """Return the same, with these values made again in the backward pass."""
        return self._divided(self._together, values)

    def expanding(self, made: Collection[Value]) -> ForwardBackward:
        """Return the same, with one number for each constant that is only a number.

        Args:
            made: as :func:`.passes.expanding` has it.
        """
        return self._divided(expanding(self._together, made))

    @property
    def _together(self) -> Program:
        """Forward and backward pass, each operation once."""
        assert self._apart is None
        forward = self.forward
        ops = dict.fromkeys((*forward.ops, *self._rest))
        inputs = (*forward.inputs, *self._cotangents)
        outputs = forward.outputs[: self.count]
        return Program(inputs, forward.constants, tuple(ops), outputs)

    def _divided(
        self, program: Program, again: Set[Value] = frozenset()
    ) -> ForwardBackward:
        numbers = len(self.forward.inputs), self.count
        return split(program, *numbers, self._gradients, again)

    @property
    def residuals_and_backward(self) -> tuple[tuple[Value, ...], tuple[Operation, ...]]:
        """The residuals, and the operations of the backward pass on them."""
        return self._saved, self._rest

    def of_used(self) -> ForwardBackward:
        """Return the same with only the gradients that exist."""
        results = tuple(grad for grad in self._gradients if grad is not None)
        apart = self._apart and self._apart.of_used()
        return replace(self, _gradients=results, _made={}, _apart=apart)

    def backward_program(
        self, wanted: tuple[bool, ...], given: tuple[bool, ...]
    ) -> tuple[Program, list[bool]]:
        """Return the program from residuals and cotangents to the gradients wanted.

        Args:
            wanted: tells for each gradient whether it is wanted.
            given: tells for each cotangent whether it is more than zeros.

        Returns:
            The program, and for each wanted gradient whether the program gives it. It
            does where the gradient depends on a given cotangent.
        """
        results = self._made.get((wanted, given))
        if results is None:
            reached = {v for v, g in zip(self._cotangents, given, strict=True) if g}
            for op in self._rest:
                if not reached.isdisjoint(op.inputs):
                    reached.update(op.outputs)
            pairs = zip(self._gradients, wanted, strict=True)
            each = [grad for grad, flag in pairs if flag]
            has = [grad is not None and grad in reached for grad in each]
            ends = [
                g
                for g, forward_backward in zip(each, has, strict=True)
                if forward_backward and g
            ]
            inputs = (*self._saved, *self._cotangents)
            constants = self.forward.constants
            program = program_of(self._rest, inputs, constants, ends, "reverse")
            program = replace(program, samples=self.forward.samples)
            results = self._made[wanted, given] = program, has
        return results


def split(
    program: Program,
    inputs: int,
    outputs: int,
    gradients: Sequence[Value | None],
    made_again: Set[Value] = frozenset(),
) -> ForwardBackward:
    """Split a program from inputs and cotangents to outputs and gradients.

    Views are not kept but made again. So are large values that come from a number and
    one tensor that is kept anyway, and the values ``made_again``.
    """
    given, cotangents = program.inputs[:inputs], program.inputs[inputs:]
    ends = program.outputs[:outputs]
    first = needed(program.ops, ends)
    forward_backward = {*first}
    rest = [op for op in program.ops if op not in forward_backward]
    made = {v: op for op in first for v in op.outputs}
    kept = {v for op in rest for v in op.inputs} | {v for v in gradients if v}
    kept -= {v for op in rest for v in op.outputs}
    again: dict[Value, Operation] = {}

    def is_cheap(value: Value) -> bool:
        op = made.get(value)
        if op is None or op.operator.view or value in made_again:
            return op is not None
        is_scaled = op.operator.cheap and len(op.inputs) == 1
        return is_scaled and value.bytes >= LARGE and op.inputs[0] in kept

    while cheap := [*filter(is_cheap, kept)]:
        for v in cheap:
            again.update(dict.fromkeys(made[v].outputs, made[v]))
            kept.difference_update(made[v].outputs)
            kept.update(made[v].inputs)
    rest = _before_use(again, rest)
    outside = {*cotangents, *program.constants}
    saved = tuple(sorted(kept - outside, key=lambda v: v.number))
    forward = program_of(first, given, program.constants, ends, "forward")
    whole = Program(
        given, program.constants, forward.ops, (*forward.outputs, *saved), "forward"
    )
    memory = memory_of(forward.ops)
    others = (*given, *program.constants, *forward.outputs)
    known = {memory.get(v, v) for v in others}
    pairs = enumerate(memory.get(v, v) for v in saved)
    reachable = tuple(i for i, root in pairs if root in known)
    ways = tuple(rest), saved, cotangents, tuple(gradients)
    return ForwardBackward(whole, outputs, reachable, *ways)


def _before_use(
    again: dict[Value, Operation], ops: Sequence[Operation]
) -> list[Operation]:
    """Return the operations, with each repeated one just before its first use."""
    results: list[Operation] = []
    forward_backward: set[Operation] = set()

    def put(op: Operation) -> None:
        for value in op.inputs:
            if value in again and again[value] not in forward_backward:
                put(again[value])
        forward_backward.add(op)
        results.append(op)

    for op in (*ops, *again.values()):
        if op not in forward_backward:
            put(op)
    return results
