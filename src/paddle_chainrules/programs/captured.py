"""The results of a capture."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from paddle import Tensor

from .batches.blocks import rows_at_once
from .compiling.passes import expand_scalar_constants
from .compiling.program import Program
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
