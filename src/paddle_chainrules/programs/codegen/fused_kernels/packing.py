"""Packing of matrices in memory, so that a library multiplies them fast.

Rows that are a multiple of some kilobytes apart map to few sets of the processor's
cache. Products of such rows take up to three times as long. So intermediate results get
rows of another length, and such factors from outside are copied, a matrix at a time.
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
"""Rows a multiple of this many bytes apart map to few sets of the cache."""

ROW_PADDING_BYTES = 64
"""The bytes that we add to the distance of such rows."""

MAX_COPY_BYTES = 1 << 23
"""The most bytes of a copy."""

OPERAND_DIMS = (ROWS, TERMS), (TERMS, COLUMNS)
"""The dimensions of each factor in the domain of a product."""


def padded_row(length: int, dtype: str) -> int:
    """Return the distance between rows of this many entries."""
    aliases = length and length * BYTES[dtype] % CACHE_ALIAS_STRIDE == 0
    return length + ROW_PADDING_BYTES // BYTES[dtype] if aliases else length


class PackedMatrix(NamedTuple):
    """A copy of a matrix.

    Attributes:
        source: many matrices, one of which is copied.
        outer, inner: the dimensions of a matrix, the second without gaps.
        shape: of these.
        target: the view of the copy.
    """

    source: NestAccess
    outer: int
    inner: int
    shape: tuple[int, int]
    target: BufferView

    @property
    def row_stride(self) -> SymInt:
        """The distance from a row of the source to the next."""
        return self.source.strides[self.outer]

    @property
    def strides(self) -> tuple[SymInt, ...]:
        """The strides of the copy, along the domain of the product."""
        results = [*self.source.strides]
        results[self.outer], results[self.inner] = self.target.strides
        return tuple(results)

    def write(self, ir: FunctionBuilder, pointer: str, address: Address) -> None:
        """Emit the copy.

        Args:
            pointer: a pointer to the matrix.
        """
        strides = self.source.strides
        view = BufferView(self.source.view.buffer, (), (), ())
        read = NestAccess(view, (strides[self.outer], strides[self.inner]))
        write = NestAccess(self.target, self.target.strides)
        pointers = {id(view): pointer, id(self.target): address(self.target)}
        nest = LoopNest(
            ir, self.shape, [read], [write], STATIC_SHAPES, lambda v: pointers[id(v)]
        )
        nest.emit(lambda elements, lanes: elements)


def packed_operands(
    domain: IterationDomain, internal: Collection[Buffer]
) -> list[PackedMatrix | None]:
    """Return for each operand of a product its packed copy, or None.

    Args:
        internal: buffers that the chain itself writes, which need no copy.
    """
    if not domain.is_product:
        return [None] * len(domain.reads)
    results: list[PackedMatrix | None] = []
    for access, dims in zip(domain.reads, OPERAND_DIMS, strict=True):
        outer, inner = (len(domain.shape) + k for k in dims)
        if access.strides[outer] == ONE:
            outer, inner = inner, outer
        buffer, row_stride = access.view.buffer, access.strides[outer]
        shape = domain.shape[outer], domain.shape[inner]
        length = padded_row(shape[1], buffer.dtype)
        size = BYTES[buffer.dtype]
        is_slow = (
            not row_stride.power and row_stride.factor * size % CACHE_ALIAS_STRIDE == 0
        )
        is_small = shape[0] * length * size <= MAX_COPY_BYTES
        has_rows = access.strides[inner] == ONE
        if buffer in internal or not (is_slow and is_small and has_rows):
            results.append(None)
            continue
        copy_buffer = Buffer(
            Value(-1, shape, buffer.dtype, 0), SymInt(shape[0] * length)
        )
        target = BufferView(copy_buffer, (), shape, (SymInt(length), ONE))
        results.append(PackedMatrix(access, outer, inner, shape, target))
    return results
