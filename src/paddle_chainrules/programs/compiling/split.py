"""A program of values and gradients, split into forward and backward pass.

Other systems call these the forward and the backward graph of a joint graph. The values
that go from the one to the other are saved for backward: the residuals.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from paddle import Tensor

from ..sizes.samples import Samples
from ..tracing.operations import Operation, Value
from ..tracing.reach import ancestors_of
from .passes import expand_scalar_constants, needed_ops, program_of
from .program import Program
from .reuse import alias_roots

MIN_RECOMPUTED_BYTES = 1 << 18
"""Results of this many bytes or more are recomputed where that is cheap."""


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
    _backward_ops: tuple[Operation, ...]
    _residuals: tuple[Value, ...]
    _cotangents: tuple[Value, ...]
    _gradients: tuple[Value | None, ...]
    _backward_cache: dict[Any, tuple[Program, list[bool]]] = field(default_factory=dict)
    _ancestors_cache: dict[tuple[bool, ...], frozenset[Value]] = field(
        default_factory=dict
    )
    _unpacked: ForwardBackward | None = None

    @property
    def unpacked(self) -> ForwardBackward:
        """The forward and backward program with a tensor for each residual."""
        return self._unpacked or self

    def for_samples(self, samples: Samples) -> ForwardBackward:
        """Return a copy for any number of samples, with a tensor per residual."""
        forward_backward = self.unpacked
        forward = replace(forward_backward.forward, samples=samples)
        return replace(
            forward_backward, forward=forward, _backward_cache={}, _ancestors_cache={}
        )

    def with_residuals(
        self,
        forward: Program,
        reachable: tuple[int, ...],
        backward_ops: tuple[Operation, ...],
        residuals: tuple[Value, ...],
        backward_value: Callable[[Value], Value],
    ) -> ForwardBackward:
        """Return a copy with other residuals.

        Args:
            forward: the forward program, which ends with the residuals.
            reachable: positions of the residuals that other code also holds.
            backward_ops: the backward operations on the residuals.
            residuals: the new residuals.
            backward_value: gives for a former residual its value in the backward pass.
        """
        gradients = tuple(g and backward_value(g) for g in self._gradients)
        return replace(
            self,
            forward=forward,
            reachable=reachable,
            _backward_ops=backward_ops,
            _residuals=residuals,
            _gradients=gradients,
            _backward_cache={},
            _ancestors_cache={},
            _unpacked=self,
        )

    @property
    def combined(self) -> Program:
        """Forward and backward pass in one program, with the gradients that exist."""
        forward = self.forward
        gradients = tuple(grad for grad in self._gradients if grad is not None)
        inputs = (*forward.inputs, *self._cotangents)
        outputs = (*forward.outputs, *gradients)
        ops = (*forward.ops, *self._backward_ops)
        return Program(inputs, forward.constants, ops, outputs, samples=forward.samples)

    @cached_property
    def joint(self) -> Program:
        """The program of outputs and gradients, without residuals between them."""
        combined, forward = self.unpacked.combined, self.unpacked.forward
        gradients = combined.outputs[len(forward.outputs) :]
        outputs = [*combined.outputs[: self.count], *gradients]
        program = program_of(
            combined.ops, combined.inputs, combined.constants, outputs, "joint"
        )
        return replace(program, samples=combined.samples)

    @property
    def gradient_exists(self) -> list[bool]:
        """Tells for each gradient whether it exists."""
        return [grad is not None for grad in self._gradients]

    def ancestors(self, has_cotangent: tuple[bool, ...]) -> frozenset[Value]:
        """Return the values that outputs with a cotangent depend on, and themselves."""
        if has_cotangent not in self._ancestors_cache:
            pairs = zip(self.forward.outputs, has_cotangent, strict=False)
            outputs = [value for value, flag in pairs if flag]
            self._ancestors_cache[has_cotangent] = frozenset(
                ancestors_of(self.forward.ops, outputs)
            )
        return self._ancestors_cache[has_cotangent]

    def depends_on(
        self, sources: Sequence[int | Tensor], has_cotangent: tuple[bool, ...]
    ) -> list[bool]:
        """Tell for inputs, by position, and constants if outputs depend on them.

        Args:
            has_cotangent: tells of which outputs.
        """
        ancestors, inputs = self.ancestors(has_cotangent), self.forward.inputs
        values = self._value_of_constant
        return [
            (inputs[x] if isinstance(x, int) else values.get(id(x))) in ancestors
            for x in sources
        ]

    @cached_property
    def _value_of_constant(self) -> dict[int, Value]:
        return {id(t): value for value, t in self.forward.constants.items()}

    def recomputing(self, values: Set[Value]) -> ForwardBackward:
        """Return a copy whose backward pass recomputes these values."""
        return self._split_again(self._merged, values)

    def with_expanded_scalars(
        self, own_constants: Collection[Value]
    ) -> ForwardBackward:
        """Return a copy that expands constants that are one number, repeated.

        Args:
            own_constants: as :func:`.passes.expand_scalar_constants` has it.
        """
        return self._split_again(expand_scalar_constants(self._merged, own_constants))

    @property
    def _merged(self) -> Program:
        """Forward and backward pass, each operation once."""
        assert self._unpacked is None
        forward = self.forward
        ops = dict.fromkeys((*forward.ops, *self._backward_ops))
        inputs = (*forward.inputs, *self._cotangents)
        outputs = forward.outputs[: self.count]
        return Program(inputs, forward.constants, tuple(ops), outputs)

    def _split_again(
        self, program: Program, recomputed: Set[Value] = frozenset()
    ) -> ForwardBackward:
        counts = len(self.forward.inputs), self.count
        return split(program, *counts, self._gradients, recomputed)

    @property
    def residuals_and_backward(self) -> tuple[tuple[Value, ...], tuple[Operation, ...]]:
        """The residuals, and the operations of the backward pass on them."""
        return self._residuals, self._backward_ops

    def with_existing_gradients(self) -> ForwardBackward:
        """Return a copy with only the gradients that exist."""
        gradients = tuple(grad for grad in self._gradients if grad is not None)
        unpacked = self._unpacked and self._unpacked.with_existing_gradients()
        return replace(
            self, _gradients=gradients, _backward_cache={}, _unpacked=unpacked
        )

    def backward_program(
        self, wanted: tuple[bool, ...], has_cotangent: tuple[bool, ...]
    ) -> tuple[Program, list[bool]]:
        """Return the program from residuals and cotangents to the gradients wanted.

        Args:
            wanted: tells for each gradient whether it is wanted.
            has_cotangent: tells for each cotangent whether it is more than zeros.

        Returns:
            The program, and for each wanted gradient whether the program computes it.
            It does where the gradient depends on a cotangent that is not zeros.
        """
        cached = self._backward_cache.get((wanted, has_cotangent))
        if cached is None:
            reached = {
                v for v, g in zip(self._cotangents, has_cotangent, strict=True) if g
            }
            for op in self._backward_ops:
                if not reached.isdisjoint(op.inputs):
                    reached.update(op.outputs)
            pairs = zip(self._gradients, wanted, strict=True)
            requested = [grad for grad, flag in pairs if flag]
            is_reached = [grad is not None and grad in reached for grad in requested]
            outputs = [
                g
                for g, exists in zip(requested, is_reached, strict=True)
                if exists and g
            ]
            inputs = (*self._residuals, *self._cotangents)
            constants = self.forward.constants
            program = program_of(
                self._backward_ops, inputs, constants, outputs, "reverse"
            )
            program = replace(program, samples=self.forward.samples)
            cached = self._backward_cache[wanted, has_cotangent] = program, is_reached
        return cached


def split(
    program: Program,
    input_count: int,
    output_count: int,
    gradients: Sequence[Value | None],
    recomputed: Set[Value] = frozenset(),
) -> ForwardBackward:
    """Split a joint program from inputs and cotangents to outputs and gradients.

    Views are not saved but recomputed. So are large values that come from a number and
    one tensor that is saved anyway, and the values ``recomputed``.
    """
    primals, cotangents = program.inputs[:input_count], program.inputs[input_count:]
    outputs = program.outputs[:output_count]
    forward_ops = needed_ops(program.ops, outputs)
    in_forward = {*forward_ops}
    backward_ops = [op for op in program.ops if op not in in_forward]
    producers = {v: op for op in forward_ops for v in op.outputs}
    residuals = {v for op in backward_ops for v in op.inputs} | {
        v for v in gradients if v
    }
    residuals -= {v for op in backward_ops for v in op.outputs}
    recomputing_ops: dict[Value, Operation] = {}

    def is_cheap(value: Value) -> bool:
        op = producers.get(value)
        if op is None or op.operator.view or value in recomputed:
            return op is not None
        is_scaled = op.operator.cheap and len(op.inputs) == 1
        return (
            is_scaled
            and value.bytes >= MIN_RECOMPUTED_BYTES
            and op.inputs[0] in residuals
        )

    while cheap := [*filter(is_cheap, residuals)]:
        for v in cheap:
            recomputing_ops.update(dict.fromkeys(producers[v].outputs, producers[v]))
            residuals.difference_update(producers[v].outputs)
            residuals.update(producers[v].inputs)
    backward_ops = _insert_before_use(recomputing_ops, backward_ops)
    available = {*cotangents, *program.constants}
    ordered_residuals = tuple(sorted(residuals - available, key=lambda v: v.number))
    forward = program_of(forward_ops, primals, program.constants, outputs, "forward")
    forward_and_residuals = Program(
        primals,
        program.constants,
        forward.ops,
        (*forward.outputs, *ordered_residuals),
        "forward",
    )
    root_of = alias_roots(forward.ops)
    visible = (*primals, *program.constants, *forward.outputs)
    visible_roots = {root_of.get(v, v) for v in visible}
    pairs = enumerate(root_of.get(v, v) for v in ordered_residuals)
    reachable = tuple(i for i, root in pairs if root in visible_roots)
    backward_fields = (
        tuple(backward_ops),
        ordered_residuals,
        cotangents,
        tuple(gradients),
    )
    return ForwardBackward(
        forward_and_residuals, output_count, reachable, *backward_fields
    )


def _insert_before_use(
    recomputing_ops: dict[Value, Operation], ops: Sequence[Operation]
) -> list[Operation]:
    """Insert each recomputed operation just before its first use."""
    results: list[Operation] = []
    emitted: set[Operation] = set()

    def emit(op: Operation) -> None:
        for value in op.inputs:
            if value in recomputing_ops and recomputing_ops[value] not in emitted:
                emit(recomputing_ops[value])
        emitted.add(op)
        results.append(op)

    for op in (*ops, *recomputing_ops.values()):
        if op not in emitted:
            emit(op)
    return results
