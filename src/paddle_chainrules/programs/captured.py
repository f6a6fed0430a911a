"""The results of a capture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ..paddle_side.autograd.grad_mode import grad_mode
from ..paddle_side.devices import are_on_cpu
from ..settings import loops_are_on
from .batches.blocks import rows_at_once
from .codegen.fusion import may_fuse_producer
from .compiling.common_subkernels import share_subkernels
from .compiling.passes import expand_scalar_constants
from .compiling.program import Program
from .compiling.rematerialize import recompute_cheap_residuals
from .compiling.residuals import pack_small_residuals
from .compiling.split import ForwardBackward, split
from .sizes.any_size import infer_samples
from .tracing.operations import Value

PLACE: Any = type("Place", (), {"__repr__": lambda self: "PLACE"})()
"""Stands for an output of the program among the results of its function."""


class CapturedFunction(NamedTuple):
    """A program, and what else was seen of its function."""

    program: Program
    outputs: list[Any]
    """The function's results, with :data:`PLACE` for each tensor."""
    requires: tuple[bool, ...]
    """Tells for each result if it depends on an outside tensor with gradients.

    Such a tensor required gradients before the call.
    """
    free: list[Tensor]
    """Tensors that required gradients before and are not arguments."""
    outside_constants: tuple[Tensor, ...]
    """Constants of the program that the function has not created."""
    kinds: tuple[Any, ...]
    """Their kinds when they were captured, by :func:`signatures_of`."""
    own_constants: frozenset[Value] = frozenset()
    """Constants that the function creates from nothing that may change."""
    by_series: bool = False
    """Tells whether it asked for derivatives at points, which may run in blocks."""

    def is_stale(self) -> bool:
        """Tell whether constants differ from those that were captured."""
        return bool(self.outside_constants) and self.kinds != signatures_of(
            self.outside_constants
        )

    def differs_in_program_only(self, other: CapturedFunction) -> bool:
        """Tell whether only the programs differ, and there are no free variables."""
        own_facts = self.outputs, self.requires, self.kinds
        other_facts = other.outputs, other.requires, other.kinds
        return own_facts == other_facts and not (
            self._uses_free_variables() or other._uses_free_variables()
        )

    def with_expanded_scalars(self) -> CapturedFunction:
        """Return a copy whose program expands constants that are one number."""
        return self._replace(
            program=expand_scalar_constants(self.program, self.own_constants)
        )

    def max_samples_at_once(self, limit: int, size: int) -> int:
        """Return how many of ``limit`` samples it may serve, captured for ``size``.

        With more points, derivatives may run in blocks.
        """
        return min(limit, rows_at_once(self.program, size)) if self.by_series else limit

    def for_any_size(
        self, size: int, other: CapturedFunction, other_size: int, max_samples: int
    ) -> CapturedFunction | None:
        """Return it for any number of samples, if two captures agree on that.

        Args:
            size: the number of samples that this one was captured for.
            other: captured for another number, ``other_size``.
            max_samples: the largest number that it serves.
        """
        max_samples = self.max_samples_at_once(max_samples, size)
        if True in self.requires:
            return None
        for one, two in (
            (self, other),
            (self.with_expanded_scalars(), other.with_expanded_scalars()),
        ):
            if one.differs_in_program_only(two):
                sizes = size, two.program, other_size, max_samples
                samples = infer_samples(one.program, *sizes)
                if samples is not None:
                    program = replace(one.program, samples=samples)
                    return one._replace(program=program)
        return None

    def split(
        self, outputs: int, inputs: Sequence[Tensor]
    ) -> tuple[ForwardBackward, CapturedFunction]:
        """Split results and their gradients in forward and backward pass.

        Args:
            outputs: how many results come before the gradients.
            inputs: the program's inputs before the cotangents.

        Returns:
            The split program, and what was seen of the function without gradients.
        """
        values, grad_slots = self.outputs[:outputs], self.outputs[outputs:]
        value_count = sum(slot is PLACE for slot in values)
        grad_values = iter(self.program.outputs[value_count:])
        grads = [next(grad_values) if slot is PLACE else None for slot in grad_slots]
        shared = tuple(share_subkernels(self.program.ops))
        program = replace(self.program, ops=shared)
        result = split(program, len(inputs), value_count, grads)
        if loops_are_on() and are_on_cpu(inputs):
            result = pack_small_residuals(
                recompute_cheap_residuals(result, may_fuse_producer)
            )
        return result, self._replace(outputs=values)

    def split_for_any_size(
        self,
        halves: ForwardBackward,
        size: int,
        other: CapturedFunction,
        other_halves: ForwardBackward,
        other_size: int,
        max_samples: int,
    ) -> tuple[ForwardBackward, CapturedFunction] | None:
        """Do as :meth:`for_any_size` with what :meth:`split` gave for both."""
        if halves.gradient_exists != other_halves.gradient_exists:
            return None
        max_samples = self.max_samples_at_once(max_samples, size)
        one, two = (self, halves.unpacked), (other, other_halves.unpacked)
        for (first, half), (second, other_half) in (
            (one, two),
            (_with_expanded_scalars(*one), _with_expanded_scalars(*two)),
        ):
            if not first.differs_in_program_only(second):
                continue
            if half.reachable == other_half.reachable:
                sizes = size, other_half.combined, other_size, max_samples
                samples = infer_samples(half.combined, *sizes)
                if samples is not None:
                    half = half.for_samples(samples)
                    return pack_small_residuals(half) if loops_are_on() else half, first
        return None

    @property
    def tensor_outputs(self) -> list[int]:
        """Indices of the tensors among the function's results."""
        return [i for i, output in enumerate(self.outputs) if output is PLACE]

    def example_cotangents(self) -> list[Tensor]:
        """Return a cotangent with distinct values for each result that requires one."""
        pairs = zip(self.program.outputs, self.requires, strict=True)
        return [_ramp_like(value) for value, requires in pairs if requires]

    def _uses_free_variables(self) -> bool:
        """Tell whether the program has a free variable that it did not drop."""
        constants = {*map(id, self.program.constants.values())}
        return not constants.isdisjoint(map(id, self.free))

    def filled(self, tensors: list[Any]) -> list[Any]:
        """Return the function's results, with tensors in place of :data:`PLACE`."""
        if len(tensors) == len(self.outputs):
            return tensors
        remaining = iter(tensors)
        return [
            next(remaining) if output is PLACE else output for output in self.outputs
        ]


def signatures_of(tensors: Iterable[Tensor]) -> tuple[Any, ...]:
    """Return for each its dtype, whether it requires gradients, and its shape."""
    return tuple((t.dtype, t.stop_gradient, *t.shape) for t in tensors)


def _ramp_like(value: Value) -> Tensor:
    with grad_mode(False):
        ramp = paddle.linspace(0.5, 1.5, math.prod(value.shape), "float32")
        return ramp.reshape(value.shape).astype(getattr(paddle, value.dtype))


def _with_expanded_scalars(
    captured: CapturedFunction, halves: ForwardBackward
) -> tuple[CapturedFunction, ForwardBackward]:
    expanded = halves.with_expanded_scalars(captured.own_constants)
    return captured.with_expanded_scalars(), expanded
