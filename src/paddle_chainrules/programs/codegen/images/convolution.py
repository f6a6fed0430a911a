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
from ..lowering import Address, StageBuilder, lowering_rule
from ..matrix_products.products import SUFFIX
from ..nest import emit_clear
from .depthwise import Depthwise
from .windows import (
    STATIC_SHAPES,
    StridedOrigin,
    Windows,
    WindowStep,
    strides_of,
    windows_of,
)

COLUMN_MATRIX_BYTES = 1 << 18
"""The bytes of windows that are copied at a time."""

MIN_WINDOW_TERMS = 16
"""The fewest pixels of a window, in the channels of a group, to be done here.

With fewer, Paddle's own kernels are as fast.
"""


Block = tuple[str, str]
"""The index of a group of channels, and of a block of rows."""


class MatrixOperand(NamedTuple):
    """A matrix stored row by row: its first entry, and the distance of rows."""

    base: str
    row_stride: int
    transposed: bool = False


class _Convolution(WindowStep):
    """The three products of a convolution, each a stage of a region."""

    def __init__(self, builder: StageBuilder, windows: Windows, op: Operation) -> None:
        super().__init__(builder, windows, op)
        result_rows, row_size = windows.result[0], math.prod(windows.result[1:])
        max_rows = max(
            COLUMN_MATRIX_BYTES // (windows.terms * row_size * BYTES[self._dtype]), 1
        )
        fitting = range(1, min(result_rows, max_rows) + 1)
        self._rows = max(n for n in fitting if result_rows % n == 0)
        """The rows of the result at a time."""
        self._columns = self._rows * row_size
        self._column_matrix = self._scratch((windows.terms, self._columns))

    def add_forward(self, image: Value, filters: Value, result: Value) -> None:
        """Add the stage for the result of an image and filters."""
        windows = self._windows
        sizes = windows.filters, self._columns, windows.terms

        def emit(ir: FunctionBuilder, address: Address) -> None:
            self._fill_padding(ir, address)
            with self._image_loop(ir, (x, out), address) as (source, target):
                padded = self._pad_image(ir, source, address)
                with self._block_loops(ir) as block:
                    left = self._filters(ir, address(w), block)
                    right = self._im2col(ir, padded, block, address)
                    result_block = self._result_block(ir, target, block)
                    self._emit_gemm(ir, left, right, result_block, sizes)

        x, w, out = self._add_stage(
            (image, filters), result, [self._column_matrix], emit
        )

    def add_image_gradient(self, filters: Value, result: Value, image: Value) -> None:
        """Add the stage for the gradient by the image, from that of the result."""
        windows = self._windows
        sizes = windows.terms, self._columns, windows.filters

        def emit(ir: FunctionBuilder, address: Address) -> None:
            with self._image_loop(ir, (g, out), address) as (source, target):
                padded = address(self._padded) if windows.is_padded else target
                if not windows.is_matrix:
                    emit_clear(ir, self._padded, padded, STATIC_SHAPES)
                with self._block_loops(ir) as block:
                    left = self._filters(ir, address(w), block)
                    right = self._result_block(ir, source, block)
                    window_base = self._first_window(ir, padded, block)
                    product = MatrixOperand(window_base, windows.window_count)
                    if not windows.is_matrix:
                        product = MatrixOperand(
                            address(self._column_matrix), self._columns
                        )
                    transposed_filters = left._replace(transposed=True)
                    self._emit_gemm(ir, transposed_filters, right, product, sizes)
                    if not windows.is_matrix:  # added up where windows overlap
                        columns = self._columns_at(product.base)
                        self._accumulate(
                            ir,
                            self._loop_shape(),
                            columns,
                            self._window_pixels(window_base),
                        )
                if windows.is_padded:
                    self._copy_image(
                        ir, self._interior(ir, padded), self._unpadded(target)
                    )

        w, g, out = self._add_stage(
            (filters, result), image, [self._column_matrix], emit
        )

    def add_filter_gradient(self, image: Value, result: Value, filters: Value) -> None:
        """Add the stage for the gradient by the filters, from that of the result."""
        windows = self._windows
        sizes = windows.filters, windows.terms, self._columns

        def emit(ir: FunctionBuilder, address: Address) -> None:
            self._fill_padding(ir, address)
            emit_clear(ir, out, address(out), STATIC_SHAPES)
            with self._image_loop(ir, (x, g), address) as (source, cotangent):
                padded = self._pad_image(ir, source, address)
                with self._block_loops(ir) as block:
                    left = self._result_block(ir, cotangent, block)
                    right = self._im2col(ir, padded, block, address)
                    right = right._replace(transposed=True)
                    total = self._filters(ir, address(out), block)
                    self._emit_gemm(ir, left, right, total, sizes, accumulates=True)

        x, g, out = self._add_stage(
            (image, result), filters, [self._column_matrix], emit
        )

    # Addresses.

    @contextmanager
    def _block_loops(self, ir: FunctionBuilder) -> Iterator[Block]:
        """Loop over groups of channels, and in each over blocks of result rows."""
        blocks = self._windows.result[0] // self._rows
        with (
            ir.loop(str(self._windows.groups), metadata=NO_VECTORIZE) as group,
            ir.loop(str(blocks), metadata=NO_VECTORIZE) as block,
        ):
            yield group, block

    def _first_window(self, ir: FunctionBuilder, padded: str, block: Block) -> str:
        """Return the address of the first window."""
        block_stride = self._rows * self._windows.strides[0] * self._pixel_strides[0]
        strides = self._windows.channels * self._channel_stride, block_stride
        return self._address(ir, padded, *zip(block, strides, strict=True))

    def _result_block(
        self, ir: FunctionBuilder, result: str, block: Block
    ) -> MatrixOperand:
        strides = self._windows.filters * self._windows.window_count, self._columns
        base = self._address(ir, result, *zip(block, strides, strict=True))
        return MatrixOperand(base, self._windows.window_count)

    def _filters(self, ir: FunctionBuilder, base: str, block: Block) -> MatrixOperand:
        """Return the filters of a group of channels."""
        windows = self._windows
        base = self._address(ir, base, (block[0], windows.filters * windows.terms))
        return MatrixOperand(base, windows.terms)

    # Loops.

    def _loop_shape(self) -> Shape:
        """Return the shape of loops over channels, pixels in a window, and windows."""
        windows = self._windows
        return windows.channels, *windows.kernel, self._rows, *windows.result[1:]

    def _columns_at(self, base: str) -> StridedOrigin:
        return StridedOrigin(base, strides_of(self._loop_shape()))

    def _im2col(
        self, ir: FunctionBuilder, padded: str, block: Block, address: Address
    ) -> MatrixOperand:
        """Return the pixels in windows, one column for each window."""
        window_base = self._first_window(ir, padded, block)
        if self._windows.is_matrix:
            return MatrixOperand(window_base, self._windows.window_count)
        columns = address(self._column_matrix)
        pixels, column_entries = (
            [self._window_pixels(window_base)],
            [self._columns_at(columns)],
        )
        self._emit_nest(ir, self._loop_shape(), pixels, column_entries, lambda x: [x])
        return MatrixOperand(columns, self._columns)

    def _emit_gemm(
        self,
        ir: FunctionBuilder,
        x: MatrixOperand,
        y: MatrixOperand,
        target: MatrixOperand,
        sizes: Shape,
        accumulates: bool = False,
    ) -> None:
        """Emit the product of matrices, or add it to the result."""
        args = [
            *(f"i1 {str(operand.transposed).lower()}" for operand in (x, y)),
            *(f"i64 {size}" for size in sizes),
            *(f"ptr {operand.base}, i64 {operand.row_stride}" for operand in (x, y)),
            f"{self._kind} {float(accumulates)}",
            f"ptr {target.base}, i64 {target.row_stride}",
        ]
        name = f"@product.{SUFFIX[self._dtype]}"
        ir.line(f"call void {name}({', '.join(args)})")


def _convolution_of(
    builder: StageBuilder, op: Operation, image: Value, result: Value
) -> _Convolution | Depthwise:
    attrs = op.named
    is_same = "transpose" in op.operator.name and attrs["padding_algorithm"] == "SAME"
    if is_same or not builder.has_products:
        raise NotLowerable
    windows = windows_of(image, attrs["filter"], result, attrs)
    if (windows.channels, windows.filters) == (1, 1):
        return Depthwise(builder, windows, op)
    if windows.groups > 1 and windows.terms < MIN_WINDOW_TERMS:
        raise NotLowerable
    return _Convolution(builder, windows, op)


PLAIN = ("conv2d", "conv3d", "depthwise_conv2d")
TRANSPOSED = tuple(f"{name}_transpose" for name in PLAIN)
CONVOLUTIONS = frozenset(
    f"{name}{end}" for name in (*PLAIN, *TRANSPOSED) for end in ("", "_grad")
)
"""Operators that apply filters to windows."""


@lowering_rule(*PLAIN)
def _lower_plain(builder: StageBuilder, op: Operation) -> None:
    x, filters, (out,) = *op.args[:2], op.outputs
    _convolution_of(builder, op, x, out).add_forward(x, filters, out)


@lowering_rule(*(f"{name}_grad" for name in PLAIN))
def _lower_plain_grad(builder: StageBuilder, op: Operation) -> None:
    x, filters, g = op.args[:3]
    x_grad, filters_grad = op.outputs
    convolution = _convolution_of(builder, op, x, g)
    convolution.add_filter_gradient(x, g, filters_grad)
    convolution.add_image_gradient(filters, g, x_grad)


@lowering_rule(*TRANSPOSED)
def _lower_turned(builder: StageBuilder, op: Operation) -> None:
    x, filters, (out,) = *op.args[:2], op.outputs
    _convolution_of(builder, op, out, x).add_image_gradient(filters, x, out)


@lowering_rule(*(f"{name}_grad" for name in TRANSPOSED))
def _lower_turned_grad(builder: StageBuilder, op: Operation) -> None:
    x, filters, g = op.args[:3]
    x_grad, filters_grad = op.outputs
    convolution = _convolution_of(builder, op, g, x)
    convolution.add_filter_gradient(g, x, filters_grad)
    convolution.add_forward(g, filters, x_grad)
