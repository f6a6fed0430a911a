"""Layout of blocks in memory, so that a library multiplies them fast.

Rows that are a multiple of some kilobytes apart share few places of the processor's
cache. Products of such rows take up to three times as long. So intermediate results get
rows of another length, and such factors from elsewhere are copied, a matrix at a time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ...tracing.operations import Value
from ..extents import ONE, Extent
from ..nest import Access, Nest
from ..spaces import COLUMNS, FIXED, ROWS, TERMS, Address, Space
from ..text import BYTES, Text
from ..views import Memory, View

SHARED = 1024
"""Rows a multiple of this many bytes apart share few places of the cache."""

MORE = 64
"""The bytes that we add to the distance of such rows."""

LARGEST = 1 << 23
"""The most bytes of a copy."""

FACTORS = (ROWS, TERMS), (TERMS, COLUMNS)
"""The dimensions of each factor in the space of a product."""


def padded(row: int, dtype: str) -> int:
    """Return the distance between rows of this many entries."""
    shares = row and row * BYTES[dtype] % SHARED == 0
    return row + MORE // BYTES[dtype] if shares else row


class Packed(NamedTuple):
    """A copy of a matrix.

    Attributes:
        source: many matrices, one of which is copied.
        outer, inner: the dimensions of a matrix, the second without gaps.
        shape: of these.
        to: where it goes.
    """

    source: Access
    outer: int
    inner: int
    shape: tuple[int, int]
    to: View

    @property
    def row(self) -> Extent:
        """The distance from a row of the source to the next."""
        return self.source.strides[self.outer]

    @property
    def strides(self) -> tuple[Extent, ...]:
        """The strides of the copy, along the space of the product."""
        found = [*self.source.strides]
        found[self.outer], found[self.inner] = self.to.strides
        return tuple(found)

    def write(self, text: Text, pointer: str, address: Address) -> None:
        """Write the copying.

        Args:
            pointer: a pointer to the matrix.
        """
        strides = self.source.strides
        view = View(self.source.view.memory, (), (), ())
        read = Access(view, (strides[self.outer], strides[self.inner]))
        write = Access(self.to, self.to.strides)
        first = {id(view): pointer, id(self.to): address(self.to)}
        nest = Nest(text, self.shape, [read], [write], FIXED, lambda v: first[id(v)])
        nest.write(lambda given, lanes: given)


def packed(space: Space, made: Collection[Memory]) -> list[Packed | None]:
    """Return for each input of a product its copy, if there is to be one.

    Args:
        made: memory that is no factor from elsewhere.
    """
    if not space.is_product:
        return [None] * len(space.reads)
    found: list[Packed | None] = []
    for each, dims in zip(space.reads, FACTORS, strict=True):
        outer, inner = (len(space.shape) + k for k in dims)
        if each.strides[outer] == ONE:
            outer, inner = inner, outer
        memory, row = each.view.memory, each.strides[outer]
        shape = space.shape[outer], space.shape[inner]
        length = padded(shape[1], memory.dtype)
        size = BYTES[memory.dtype]
        is_slow = not row.power and row.factor * size % SHARED == 0
        is_small = shape[0] * length * size <= LARGEST
        has_rows = each.strides[inner] == ONE
        if memory in made or not (is_slow and is_small and has_rows):
            found.append(None)
            continue
        own = Memory(Value(-1, shape, memory.dtype, 0), Extent(shape[0] * length))
        to = View(own, (), shape, (Extent(length), ONE))
        found.append(Packed(each, outer, inner, shape, to))
    return found
