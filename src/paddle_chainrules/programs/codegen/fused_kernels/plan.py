"""Memory for intermediate results: new, or taken from results no longer needed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..extents import SymInt
from ..ir_builder import BYTES
from ..lowering import Stage
from ..views import Buffer


@dataclass(frozen=True)
class BufferAssignment:
    """Slots of memory.

    Attributes:
        slots: the number of the slot of each intermediate result.
        bytes: the size of each slot.
    """

    slots: dict[Buffer, int]
    bytes: list[SymInt]

    @cached_property
    def starts(self) -> list[tuple[SymInt, ...]]:
        """The bytes before each slot, as a sum."""
        total: dict[int, int] = {}
        results = []
        for factor, power in self.bytes:
            results.append(tuple(SymInt(f, p) for p, f in total.items()))
            total[power] = total.get(power, 0) + factor
        return results


ALIGNED = 64
"""Slots are a multiple of this many bytes."""


def _rounded(size: SymInt) -> SymInt:
    return SymInt(-(-size.factor // ALIGNED) * ALIGNED, size.power)


def planned(
    steps: Sequence[Stage], given: Collection[Buffer], ends: Collection[Buffer]
) -> BufferAssignment:
    """Plan a slot for each result that is neither given nor an end.

    A result lies over what its step reads for the last time at the same places, or in a
    free slot of the same size.
    """
    elsewhere = {*given, *ends}
    last: dict[Buffer, int] = {}
    for i, step in enumerate(steps):
        last.update(dict.fromkeys((*step.reads, *step.writes), i))
    slots: dict[Buffer, int] = {}
    sizes: list[SymInt] = []
    free: dict[SymInt, list[int]] = {}
    for i, step in enumerate(steps):
        over = set()
        for memory in step.writes:
            if memory in elsewhere or memory in slots:
                continue
            for below in step.may_overwrite.get(memory, ()):
                if below in slots and last[below] == i and below not in over:
                    slots[memory] = slots[below]
                    over.add(below)
                    break
            if memory in slots:
                continue
            size = _rounded(memory.extent.times(SymInt(BYTES[memory.dtype])))
            if not free.get(size):
                free.setdefault(size, []).append(len(sizes))
                sizes.append(size)
            slots[memory] = free[size].pop()
        for memory in dict.fromkeys((*step.reads, *step.writes)):
            if memory in slots and last[memory] == i and memory not in over:
                free[sizes[slots[memory]]].append(slots[memory])
    return BufferAssignment(slots, sizes)
