"""The places of a step's shape, some of which may be done at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .elements.scalars import Shape
from .extents import ONE, ZERO, Extent, Sizes
from .matrix_products.products import Product, write_call
from .nest import Access, Nest
from .text import TYPES, Text
from .views import View, along

Address = Callable[[View], str]

FIXED = Sizes(None)
"""Sizes within a part do not vary with the number of samples."""


ROWS, COLUMNS, TERMS = -3, -2, -1
"""The last dimensions of the space of products."""


class Part(NamedTuple):
    """Some of the places of a space.

    Attributes:
        shape: how many there are, along each dimension.
        reads, writes: the strides along these.
        adds: a name of one bit: whether sums of products are added to the old content.
    """

    shape: Shape
    reads: Sequence[Access]
    writes: Sequence[Access]
    adds: str = "false"


class Space(NamedTuple):
    """The places of a step.

    Attributes:
        shape: for products of matrices their number, then rows, columns and terms.
        reads, writes: the strides along it, 0 where something is repeated or reduced.
        write: writes the text for some of it, of one product of matrices.
        is_product: whether it is a space of products.
    """

    shape: Shape
    reads: Sequence[Access]
    writes: Sequence[Access]
    write: Callable[[Text, Part, Address], None]
    is_product: bool = False


def of_nest(
    shape: Shape,
    reads: Sequence[Access],
    writes: Sequence[Access],
    body: Callable[[Sequence[str], Text, int], Sequence[str]],
    work: int,
) -> Space:
    """Return the space of a nest of loops, with this many operations on an element."""

    def write(text: Text, part: Part, address: Address) -> None:
        given = part.shape, part.reads, part.writes, FIXED, address
        nest = Nest(text, *given, work=work)
        nest.write(lambda given, lanes: body(given, text, lanes))

    return Space(shape, reads, writes, write)


def of_product(found: Product, out: View, note: str, sizes: Sizes) -> Space:
    """Return the space of products of matrices.

    Args:
        out: the results, in their shape.
        note: a comment.
    """
    *batch, _, columns = found.shape
    terms = found.x.view.shape[-2 if found.turned[0] else -1]
    x_rows, x_terms = _turned(found.x.view, found.turned[0])
    y_terms, y_columns = _turned(found.y.view, found.turned[1])
    rows = (
        TERMS if found.x.turned != found.turned[0] else ROWS,
        COLUMNS if found.y.turned != found.turned[1] else TERMS,
        ROWS,
    )

    def access(view: View, *inner: Extent) -> Access:
        outer = view._replace(shape=view.shape[:-2], strides=view.strides[:-2])
        return Access(view, (*along(outer, tuple(batch)), *inner))

    def write(text: Text, part: Part, address: Address) -> None:
        text.line(note)
        kind = TYPES[out.memory.dtype]
        beta = text.put(f"select i1 {part.adds}, {kind} 1.0, {kind} 0.0")
        every = *part.reads, *part.writes
        steps = [text.number(e.strides[k]) for e, k in zip(every, rows, strict=True)]
        places = [address(each.view) for each in every]
        counts = [*map(str, part.shape[-3:])]
        write_call(text, found, counts, places, steps, beta)

    return Space(
        (*found.shape, terms),
        (
            access(found.x.view, x_rows, ZERO, x_terms),
            access(found.y.view, ZERO, y_columns, y_terms),
        ),
        (access(out, sizes.of(columns), ONE, ZERO),),
        write,
        is_product=True,
    )


def _turned(view: View, is_turned: bool) -> tuple[Extent, ...]:
    """Return the strides of matrices, as those of rows and columns of a product."""
    strides = view.strides[-2:]
    return strides[::-1] if is_turned else strides
