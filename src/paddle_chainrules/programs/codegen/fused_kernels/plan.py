"""Buffer assignment: memory for intermediate results, reused when they are dead."""

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
    """Slots of memory for buffers.

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


def _round_to_alignment(size: SymInt) -> SymInt:
    return SymInt(-(-size.factor // ALIGNED) * ALIGNED, size.power)


def assign_buffers(
    stages: Sequence[Stage], inputs: Collection[Buffer], outputs: Collection[Buffer]
) -> BufferAssignment:
    """Assign a slot to each buffer that is neither an input nor an output.

    A buffer reuses the slot of one that its stage reads last, at the same indices, or a
    free slot of the same size.
    """
    external = {*inputs, *outputs}
    last_use: dict[Buffer, int] = {}
    for i, stage in enumerate(stages):
        last_use.update(dict.fromkeys((*stage.reads, *stage.writes), i))
    slots: dict[Buffer, int] = {}
    sizes: list[SymInt] = []
    free: dict[SymInt, list[int]] = {}
    for i, stage in enumerate(stages):
        overwritten = set()
        for buffer in stage.writes:
            if buffer in external or buffer in slots:
                continue
            for candidate in stage.may_overwrite.get(buffer, ()):
                if (
                    candidate in slots
                    and last_use[candidate] == i
                    and candidate not in overwritten
                ):
                    slots[buffer] = slots[candidate]
                    overwritten.add(candidate)
                    break
            if buffer in slots:
                continue
            size = _round_to_alignment(buffer.extent.times(SymInt(BYTES[buffer.dtype])))
            if not free.get(size):
                free.setdefault(size, []).append(len(sizes))
                sizes.append(size)
            slots[buffer] = free[size].pop()
        for buffer in dict.fromkeys((*stage.reads, *stage.writes)):
            if buffer in slots and last_use[buffer] == i and buffer not in overwritten:
                free[sizes[slots[buffer]]].append(slots[buffer])
    return BufferAssignment(slots, sizes)
