"""The places of a step's shape, some of which may be done at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .elements.scalars import Shape
from .extents import ONE, ZERO, ShapeEnv, SymInt
from .ir_builder import TYPES, FunctionBuilder
from .matrix_products.products import MatrixProduct, write_call
from .nest import LoopNest, NestAccess
from .views import BufferView, along

Address = Callable[[BufferView], str]

FIXED = ShapeEnv(None)
"""Sizes within a part do not vary with the number of samples."""


ROWS, COLUMNS, TERMS = -3, -2, -1
"""The last dimensions of the space of products."""


class DomainTile(NamedTuple):
    """Some of the places of a space.

    Attributes:
        shape: how many there are, along each dimension.
        reads, writes: the strides along these.
        adds: a name of one bit: whether sums of products are added to the old content.
    """

    shape: Shape
    reads: Sequence[NestAccess]
    writes: Sequence[NestAccess]
    adds: str = "false"


class IterationDomain(NamedTuple):
    """The places of a step.

    Attributes:
        shape: for products of matrices their number, then rows, columns and terms.
        reads, writes: the strides along it, 0 where something is repeated or reduced.
        write: writes the text for some of it, of one product of matrices.
        is_product: whether it is a space of products.
    """

    shape: Shape
    reads: Sequence[NestAccess]
    writes: Sequence[NestAccess]
    write: Callable[[FunctionBuilder, DomainTile, Address], None]
    is_product: bool = False


def of_nest(
    shape: Shape,
    reads: Sequence[NestAccess],
    writes: Sequence[NestAccess],
    body: Callable[[Sequence[str], FunctionBuilder, int], Sequence[str]],
    work: int,
) -> IterationDomain:
    """Return the space of a nest of loops, with this many operations on an element."""

    def write(text: FunctionBuilder, part: DomainTile, address: Address) -> None:
        given = part.shape, part.reads, part.writes, FIXED, address
        nest = LoopNest(text, *given, work=work)
        nest.write(lambda given, lanes: body(given, text, lanes))

    return IterationDomain(shape, reads, writes, write)


def of_product(
    result: MatrixProduct, out: BufferView, note: str, sizes: ShapeEnv
) -> IterationDomain:
    """Return the space of products of matrices.

    Args:
        out: the results, in their shape.
        note: a comment.
    """
    *batch, _, columns = result.shape
    terms = result.x.view.shape[-2 if result.turned[0] else -1]
    x_rows, x_terms = _turned(result.x.view, result.turned[0])
    y_terms, y_columns = _turned(result.y.view, result.turned[1])
    rows = (
        TERMS if result.x.turned != result.turned[0] else ROWS,
        COLUMNS if result.y.turned != result.turned[1] else TERMS,
        ROWS,
    )

    def access(view: BufferView, *inner: SymInt) -> NestAccess:
        outer = view._replace(shape=view.shape[:-2], strides=view.strides[:-2])
        return NestAccess(view, (*along(outer, tuple(batch)), *inner))

    def write(text: FunctionBuilder, part: DomainTile, address: Address) -> None:
        text.line(note)
        kind = TYPES[out.memory.dtype]
        beta = text.emit(f"select i1 {part.adds}, {kind} 1.0, {kind} 0.0")
        every = *part.reads, *part.writes
        steps = [text.number(e.strides[k]) for e, k in zip(every, rows, strict=True)]
        places = [address(each.view) for each in every]
        counts = [*map(str, part.shape[-3:])]
        write_call(text, result, counts, places, steps, beta)

    return IterationDomain(
        (*result.shape, terms),
        (
            access(result.x.view, x_rows, ZERO, x_terms),
            access(result.y.view, ZERO, y_columns, y_terms),
        ),
        (access(out, sizes.of(columns), ONE, ZERO),),
        write,
        is_product=True,
    )


def _turned(view: BufferView, is_turned: bool) -> tuple[SymInt, ...]:
    """Return the strides of matrices, as those of rows and columns of a product."""
    strides = view.strides[-2:]
    return strides[::-1] if is_turned else strides
