"""A program of values and gradients, cut in two: the way there and the way back.

Elsewhere these are the forward and the backward graph of a joint one, and what goes
from the one to the other is saved for backward: the residuals.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from ..sizes.samples import Samples
from ..tracing.operations import Operation, Value
from ..tracing.reach import computed_of
from .passes import expanding, needed, program_of
from .program import Program
from .reuse import memory_of

LARGE = 1 << 18
"""Bytes from which on what is cheap to make of one tensor is not kept."""


@dataclass(frozen=True, eq=False)
class There:
    """Programs for a value first and gradients later.

    Attributes:
        forward: from inputs to outputs, and then what the way back needs.
        count: how many outputs there are before that.
        reachable: what of that, by position, is in others' hands too, who may write
            into it.
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
    _apart: There | None = None

    @property
    def apart(self) -> There:
        """The same with a tensor for each result that the way back needs."""
        return self._apart or self

    def for_samples(self, samples: Samples) -> There:
        """The same for any number of samples, with a tensor for each."""
        there = self.apart
        forward = replace(there.forward, samples=samples)
        return replace(there, forward=forward, _made={}, _behind={})

    def holding(
        self,
        forward: Program,
        reachable: tuple[int, ...],
        rest: tuple[Operation, ...],
        saved: tuple[Value, ...],
        named: Callable[[Value], Value],
    ) -> There:
        """The same that keeps other tensors.

        Args:
            forward: gives these.
            reachable: of these.
            rest: goes back from these.
            saved: these.
            named: what values that were kept are on the way back.
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
        """There and back in one, with the gradients that there are."""
        forward = self.forward
        found = tuple(grad for grad in self._gradients if grad is not None)
        inputs = (*forward.inputs, *self._cotangents)
        outputs = (*forward.outputs, *found)
        ops = (*forward.ops, *self._rest)
        return Program(inputs, forward.constants, ops, outputs, samples=forward.samples)

    @property
    def used(self) -> list[bool]:
        """Of each gradient whether there is one."""
        return [grad is not None for grad in self._gradients]

    def behind(self, given: tuple[bool, ...]) -> frozenset[Value]:
        """What the given outputs are computed of, they themselves included."""
        if given not in self._behind:
            pairs = zip(self.forward.outputs, given, strict=False)
            ends = [value for value, flag in pairs if flag]
            self._behind[given] = frozenset(computed_of(self.forward.ops, ends))
        return self._behind[given]

    def again(self, values: Set[Value]) -> There:
        """The same with these values not kept, but made again on the way back."""
        return self._divided(self._together, values)

    def expanding(self, made: Collection[Value]) -> There:
        """The same, with a number for constants that are nothing but that.

        Args:
            made: as :func:`.passes.expanding` has it.
        """
        return self._divided(expanding(self._together, made))

    @property
    def _together(self) -> Program:
        """There and back, each operation once."""
        assert self._apart is None
        forward = self.forward
        ops = dict.fromkeys((*forward.ops, *self._rest))
        inputs = (*forward.inputs, *self._cotangents)
        outputs = forward.outputs[: self.count]
        return Program(inputs, forward.constants, tuple(ops), outputs)

    def _divided(self, program: Program, again: Set[Value] = frozenset()) -> There:
        numbers = len(self.forward.inputs), self.count
        return split(program, *numbers, self._gradients, again)

    @property
    def kept(self) -> tuple[tuple[Value, ...], tuple[Operation, ...]]:
        """What the way back needs besides cotangents, and what it does with that."""
        return self._saved, self._rest

    def of_used(self) -> There:
        """The same with the gradients alone that there are."""
        found = tuple(grad for grad in self._gradients if grad is not None)
        apart = self._apart and self._apart.of_used()
        return replace(self, _gradients=found, _made={}, _apart=apart)

    def back(
        self, wanted: tuple[bool, ...], given: tuple[bool, ...]
    ) -> tuple[Program, list[bool]]:
        """From what was kept and cotangents to the gradients that are wanted.

        Args:
            wanted: of each gradient whether it is.
            given: of each cotangent whether it is more than zeros.

        Returns:
            The program; and of each wanted gradient whether the program gives it, which
            it does where it depends on a given cotangent.
        """
        found = self._made.get((wanted, given))
        if found is None:
            reached = {v for v, g in zip(self._cotangents, given, strict=True) if g}
            for op in self._rest:
                if not reached.isdisjoint(op.inputs):
                    reached.update(op.outputs)
            pairs = zip(self._gradients, wanted, strict=True)
            each = [grad for grad, flag in pairs if flag]
            has = [grad is not None and grad in reached for grad in each]
            ends = [g for g, there in zip(each, has, strict=True) if there and g]
            inputs = (*self._saved, *self._cotangents)
            constants = self.forward.constants
            program = program_of(self._rest, inputs, constants, ends, "reverse")
            program = replace(program, samples=self.forward.samples)
            found = self._made[wanted, given] = program, has
        return found


def split(
    program: Program,
    inputs: int,
    outputs: int,
    gradients: Sequence[Value | None],
    made_again: Set[Value] = frozenset(),
) -> There:
    """Of a program from inputs and cotangents to outputs and gradients.

    What is a view of something is not kept but made again, and so is what is large and
    comes from a number and one tensor that is kept anyway; ``made_again`` besides.
    """
    given, cotangents = program.inputs[:inputs], program.inputs[inputs:]
    ends = program.outputs[:outputs]
    first = needed(program.ops, ends)
    there = {*first}
    rest = [op for op in program.ops if op not in there]
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
    return There(whole, outputs, reachable, *ways)


def _before_use(
    again: dict[Value, Operation], ops: Sequence[Operation]
) -> list[Operation]:
    """The operations, and what is made again just before the first that needs it."""
    found: list[Operation] = []
    there: set[Operation] = set()

    def put(op: Operation) -> None:
        for value in op.inputs:
            if value in again and again[value] not in there:
                put(again[value])
        there.add(op)
        found.append(op)

    for op in (*ops, *again.values()):
        if op not in there:
            put(op)
    return found
