"""Convolutions as products of matrices, an image and some rows at a time.

The pixels in a window are copied into a column of a matrix that stays in the cache. The
filters times that matrix are some rows of the result. The gradients are products with
the same matrix, by the filters, and sums from it, by the image. Paddle's kernels do the
same for a whole image at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ...tracing.operations import Operation, Value
from ..elements.scalars import NotLowerable, Shape
from ..ir_builder import BYTES, NO_VECTORIZE, FunctionBuilder
from ..lowering import Address, StageBuilder, lowers
from ..matrix_products.products import SUFFIX
from ..nest import emit_clear
from .depthwise import Depthwise
from .windows import (
    STATIC_SHAPES,
    StridedOrigin,
    Windows,
    WindowStep,
    steps_of,
    windows_of,
)

COLUMNS = 1 << 18
"""The bytes of windows that are copied at a time."""

LEAST = 16
"""The fewest pixels of a window, in the channels of a group, to be done here.

With fewer, Paddle's own kernels are as fast.
"""


Block = tuple[str, str]
"""The index of a group of channels, and of a block of rows."""


class MatrixOperand(NamedTuple):
    """A matrix stored row by row: its first entry, and the distance of rows."""

    first: str
    step: int
    turned: bool = False


class _Convolution(WindowStep):
    """The three products of a convolution, each a step of a region."""

    def __init__(self, builder: StageBuilder, windows: Windows, op: Operation) -> None:
        super().__init__(builder, windows, op)
        first, rest = windows.result[0], math.prod(windows.result[1:])
        most = max(COLUMNS // (windows.terms * rest * BYTES[self._dtype]), 1)
        fitting = range(1, min(first, most) + 1)
        self._rows = max(n for n in fitting if first % n == 0)
        """The rows of the result at a time."""
        self._columns = self._rows * rest
        self._matrix = self._scratch((windows.terms, self._columns))

    def forward(self, image: Value, filters: Value, result: Value) -> None:
        """Add the step for the result of an image and filters."""
        it = self._it
        sizes = it.filters, self._columns, it.terms

        def write(ir: FunctionBuilder, address: Address) -> None:
            self._fill_around(ir, address)
            with self._images(ir, (x, out), address) as (here, to):
                padded = self._around(ir, here, address)
                with self._blocks(ir) as block:
                    left = self._filters(ir, address(w), block)
                    right = self._covered(ir, padded, block, address)
                    part = self._part(ir, to, block)
                    self._multiply(ir, left, right, part, sizes)

        x, w, out = self._put((image, filters), result, [self._matrix], write)

    def by_image(self, filters: Value, result: Value, image: Value) -> None:
        """Add the step for the gradient by the image, from that of the result."""
        it = self._it
        sizes = it.terms, self._columns, it.filters

        def write(ir: FunctionBuilder, address: Address) -> None:
            with self._images(ir, (g, out), address) as (here, to):
                padded = address(self._padded) if it.is_padded else to
                if not it.is_matrix:
                    emit_clear(ir, self._padded, padded, STATIC_SHAPES)
                with self._blocks(ir) as block:
                    left = self._filters(ir, address(w), block)
                    right = self._part(ir, here, block)
                    first = self._image(ir, padded, block)
                    made = MatrixOperand(first, it.places)
                    if not it.is_matrix:
                        made = MatrixOperand(address(self._matrix), self._columns)
                    turned = left._replace(turned=True)
                    self._multiply(ir, turned, right, made, sizes)
                    if not it.is_matrix:  # added up where windows overlap
                        columns = self._columns_at(made.first)
                        self._add(ir, self._over(), columns, self._windows(first))
                if it.is_padded:
                    self._copy(ir, self._within(ir, padded), self._whole(to))

        w, g, out = self._put((filters, result), image, [self._matrix], write)

    def by_filters(self, image: Value, result: Value, filters: Value) -> None:
        """Add the step for the gradient by the filters, from that of the result."""
        it = self._it
        sizes = it.filters, it.terms, self._columns

        def write(ir: FunctionBuilder, address: Address) -> None:
            self._fill_around(ir, address)
            emit_clear(ir, out, address(out), STATIC_SHAPES)
            with self._images(ir, (x, g), address) as (here, given):
                padded = self._around(ir, here, address)
                with self._blocks(ir) as block:
                    left = self._part(ir, given, block)
                    right = self._covered(ir, padded, block, address)
                    right = right._replace(turned=True)
                    total = self._filters(ir, address(out), block)
                    self._multiply(ir, left, right, total, sizes, onto=True)

        x, g, out = self._put((image, result), filters, [self._matrix], write)

    # Where things are.

    @contextmanager
    def _blocks(self, ir: FunctionBuilder) -> Iterator[Block]:
        """Loop over groups of channels, and in each over blocks of result rows."""
        blocks = self._it.result[0] // self._rows
        with (
            ir.loop(str(self._it.groups), metadata=NO_VECTORIZE) as group,
            ir.loop(str(blocks), metadata=NO_VECTORIZE) as block,
        ):
            yield group, block

    def _image(self, ir: FunctionBuilder, padded: str, block: Block) -> str:
        """Return the address of the first window."""
        rows = self._rows * self._it.steps[0] * self._place[0]
        steps = self._it.channels * self._channel, rows
        return self._at(ir, padded, *zip(block, steps, strict=True))

    def _part(self, ir: FunctionBuilder, result: str, block: Block) -> MatrixOperand:
        """Return a block of the result."""
        steps = self._it.filters * self._it.places, self._columns
        first = self._at(ir, result, *zip(block, steps, strict=True))
        return MatrixOperand(first, self._it.places)

    def _filters(self, ir: FunctionBuilder, first: str, block: Block) -> MatrixOperand:
        """Return the filters of a group of channels."""
        it = self._it
        first = self._at(ir, first, (block[0], it.filters * it.terms))
        return MatrixOperand(first, it.terms)

    # What is done.

    def _over(self) -> Shape:
        """Return the shape of loops over channels, pixels in a window, and windows."""
        it = self._it
        return it.channels, *it.kernel, self._rows, *it.result[1:]

    def _columns_at(self, first: str) -> StridedOrigin:
        return StridedOrigin(first, steps_of(self._over()))

    def _covered(
        self, ir: FunctionBuilder, padded: str, block: Block, address: Address
    ) -> MatrixOperand:
        """Return the pixels in windows, one column for each window."""
        first = self._image(ir, padded, block)
        if self._it.is_matrix:
            return MatrixOperand(first, self._it.places)
        columns = address(self._matrix)
        given, made = [self._windows(first)], [self._columns_at(columns)]
        self._nest(ir, self._over(), given, made, lambda x: [x])
        return MatrixOperand(columns, self._columns)

    def _multiply(
        self,
        ir: FunctionBuilder,
        x: MatrixOperand,
        y: MatrixOperand,
        to: MatrixOperand,
        sizes: Shape,
        onto: bool = False,
    ) -> None:
        """Write the product of matrices, or add it to the result."""
        given = [
            *(f"i1 {str(each.turned).lower()}" for each in (x, y)),
            *(f"i64 {size}" for size in sizes),
            *(f"ptr {each.first}, i64 {each.step}" for each in (x, y)),
            f"{self._kind} {float(onto)}",
            f"ptr {to.first}, i64 {to.step}",
        ]
        name = f"@product.{SUFFIX[self._dtype]}"
        ir.line(f"call void {name}({', '.join(given)})")


def _of(
    builder: StageBuilder, op: Operation, image: Value, result: Value
) -> _Convolution | Depthwise:
    attrs = op.named
    is_same = "transpose" in op.operator.name and attrs["padding_algorithm"] == "SAME"
    if is_same or not builder.has_products:
        raise NotLowerable
    windows = windows_of(image, attrs["filter"], result, attrs)
    if (windows.channels, windows.filters) == (1, 1):
        return Depthwise(builder, windows, op)
    if windows.groups > 1 and windows.terms < LEAST:
        raise NotLowerable
    return _Convolution(builder, windows, op)


PLAIN = ("conv2d", "conv3d", "depthwise_conv2d")
TRANSPOSED = tuple(f"{name}_transpose" for name in PLAIN)
CONVOLUTIONS = frozenset(
    f"{name}{end}" for name in (*PLAIN, *TRANSPOSED) for end in ("", "_grad")
)
"""Operators that go over windows with filters."""


@lowers(*PLAIN)
def _plain_loop(builder: StageBuilder, op: Operation) -> None:
    x, filters, (out,) = *op.args[:2], op.outputs
    _of(builder, op, x, out).forward(x, filters, out)


@lowers(*(f"{name}_grad" for name in PLAIN))
def _plain_grad_loop(builder: StageBuilder, op: Operation) -> None:
    x, filters, g = op.args[:3]
    by_x, by_filters = op.outputs
    it = _of(builder, op, x, g)
    it.by_filters(x, g, by_filters)
    it.by_image(filters, g, by_x)


@lowers(*TRANSPOSED)
def _turned_loop(builder: StageBuilder, op: Operation) -> None:
    x, filters, (out,) = *op.args[:2], op.outputs
    _of(builder, op, out, x).by_image(filters, x, out)


@lowers(*(f"{name}_grad" for name in TRANSPOSED))
def _turned_grad_loop(builder: StageBuilder, op: Operation) -> None:
    x, filters, g = op.args[:3]
    by_x, by_filters = op.outputs
    it = _of(builder, op, g, x)
    it.by_filters(g, x, by_filters)
    it.forward(g, filters, by_x)
