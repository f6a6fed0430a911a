"""What a capture has found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from paddle import Tensor

from .batches.blocks import rows_at_once
from .compiling.passes import expanding
from .compiling.program import Program
from .tracing.operations import Value

PLACE: Any = type("Place", (), {"__repr__": lambda self: "PLACE"})()
"""Stands among what a function gives for an output of its program."""


class Captured(NamedTuple):
    """A program, and what else was seen of its function."""

    program: Program
    outputs: list[Any]
    """What the function gives, with :data:`PLACE` for each tensor."""
    requires: tuple[bool, ...]
    """Of each of these, does it depend on a tensor that required gradients before."""
    free: list[Tensor]
    """Such tensors that are no arguments."""
    kinds: tuple[Any, ...]
    """Of each constant of the program what it was."""
    made: frozenset[Value] = frozenset()
    """Constants that the function makes, of nothing that may change."""
    by_series: bool = False
    """Whether it asked for derivatives by points, of which many may go in blocks."""

    def is_stale(self) -> bool:
        """Whether constants are others than those that were captured."""
        kinds = self.kinds
        return bool(kinds) and kinds != kinds_of(self.program.constants.values())

    def is_like(self, other: Captured) -> bool:
        """Whether they differ in their programs alone, and have no free variables."""
        own = self.outputs, self.requires, self.kinds
        theirs = other.outputs, other.requires, other.kinds
        return own == theirs and not (self._reaches() or other._reaches())

    def expanding(self) -> Captured:
        """The same, with a number for constants that are nothing but that."""
        program = expanding(self.program, self.made)
        kinds = kinds_of(program.constants.values())
        return self._replace(program=program, kinds=kinds)

    def at_once(self, most: int, size: int) -> int:
        """Of so many samples how many it may serve, as captured for this number: more
        derivatives by points may go in blocks."""
        return min(most, rows_at_once(self.program, size)) if self.by_series else most

    def _reaches(self) -> bool:
        """Whether the program has a free variable; what it dropped is none."""
        constants = {*map(id, self.program.constants.values())}
        return not constants.isdisjoint(map(id, self.free))

    def filled(self, tensors: list[Any]) -> list[Any]:
        """All that the function gives, with tensors in their places."""
        if len(tensors) == len(self.outputs):
            return tensors
        each = iter(tensors)
        return [next(each) if part is PLACE else part for part in self.outputs]


def kinds_of(tensors: Iterable[Tensor]) -> tuple[Any, ...]:
    """Dtype, whether it requires gradients, and shape, of each."""
    return tuple((t.dtype, t.stop_gradient, *t.shape) for t in tensors)
