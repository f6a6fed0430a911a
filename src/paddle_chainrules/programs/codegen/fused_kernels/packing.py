"""Layout of blocks in memory, so that a library multiplies them fast.

Rows that are a multiple of some kilobytes apart share few places of the processor's
cache. Products of such rows take up to three times as long. So intermediate results get
rows of another length, and such factors from elsewhere are copied, a matrix at a time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from ...tracing.operations import Value
from ..extents import ONE, SymInt
from ..ir_builder import BYTES, FunctionBuilder
from ..iteration_domains import (
    COLUMNS,
    ROWS,
    STATIC_SHAPES,
    TERMS,
    Address,
    IterationDomain,
)
from ..nest import LoopNest, NestAccess
from ..views import Buffer, BufferView

CACHE_ALIAS_STRIDE = 1024
"""Rows a multiple of this many bytes apart share few places of the cache."""

ROW_PADDING_BYTES = 64
"""The bytes that we add to the distance of such rows."""

LARGEST = 1 << 23
"""The most bytes of a copy."""

FACTORS = (ROWS, TERMS), (TERMS, COLUMNS)
"""The dimensions of each factor in the space of a product."""


def padded(row: int, dtype: str) -> int:
    """Return the distance between rows of this many entries."""
    shares = row and row * BYTES[dtype] % CACHE_ALIAS_STRIDE == 0
    return row + ROW_PADDING_BYTES // BYTES[dtype] if shares else row


class PackedMatrix(NamedTuple):
    """A copy of a matrix.

    Attributes:
        source: many matrices, one of which is copied.
        outer, inner: the dimensions of a matrix, the second without gaps.
        shape: of these.
        to: where it goes.
    """

    source: NestAccess
    outer: int
    inner: int
    shape: tuple[int, int]
    to: BufferView

    @property
    def row(self) -> SymInt:
        """The distance from a row of the source to the next."""
        return self.source.strides[self.outer]

    @property
    def strides(self) -> tuple[SymInt, ...]:
        """The strides of the copy, along the space of the product."""
        results = [*self.source.strides]
        results[self.outer], results[self.inner] = self.to.strides
        return tuple(results)

    def write(self, ir: FunctionBuilder, pointer: str, address: Address) -> None:
        """Write the copying.

        Args:
            pointer: a pointer to the matrix.
        """
        strides = self.source.strides
        view = BufferView(self.source.view.buffer, (), (), ())
        read = NestAccess(view, (strides[self.outer], strides[self.inner]))
        write = NestAccess(self.to, self.to.strides)
        first = {id(view): pointer, id(self.to): address(self.to)}
        nest = LoopNest(
            ir, self.shape, [read], [write], STATIC_SHAPES, lambda v: first[id(v)]
        )
        nest.emit(lambda given, lanes: given)


def packed(
    domain: IterationDomain, made: Collection[Buffer]
) -> list[PackedMatrix | None]:
    """Return for each input of a product its copy, if there is to be one.

    Args:
        made: memory that is no factor from elsewhere.
    """
    if not domain.is_product:
        return [None] * len(domain.reads)
    results: list[PackedMatrix | None] = []
    for each, dims in zip(domain.reads, FACTORS, strict=True):
        outer, inner = (len(domain.shape) + k for k in dims)
        if each.strides[outer] == ONE:
            outer, inner = inner, outer
        memory, row = each.view.buffer, each.strides[outer]
        shape = domain.shape[outer], domain.shape[inner]
        length = padded(shape[1], memory.dtype)
        size = BYTES[memory.dtype]
        is_slow = not row.power and row.factor * size % CACHE_ALIAS_STRIDE == 0
        is_small = shape[0] * length * size <= LARGEST
        has_rows = each.strides[inner] == ONE
        if memory in made or not (is_slow and is_small and has_rows):
            results.append(None)
            continue
        own = Buffer(Value(-1, shape, memory.dtype, 0), SymInt(shape[0] * length))
        to = BufferView(own, (), shape, (SymInt(length), ONE))
        results.append(PackedMatrix(each, outer, inner, shape, to))
    return results
