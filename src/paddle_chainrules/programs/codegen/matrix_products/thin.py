"""Small products with one row or one column, on vectors that stay in registers.

A library takes some 0.1 us to find out how to compute a product, and few of these take
as long. Terms are added in another order than a library's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..extents import ONE, ShapeEnv, SymInt
from ..ir_builder import BYTES, NO_VECTORIZE, TYPES, FunctionBuilder, LoopCarried
from ..views import BufferView
from .products import MatrixProduct
from .vectors import VectorType

MAX_VECTOR_BYTES = 256
"""The bytes of the longest vector."""

PARTIAL_SUMS = 4
"""The partial sums of a short vector, so that none waits for the one before."""

MAX_MATRIX_ELEMENTS = 1 << 13
"""The most elements of the matrix. With more, a library is as fast."""

MAX_UNROLLED_VECTORS = 16
"""The most vectors of a row that are unrolled."""

Address = Callable[[BufferView], str]


class Gemv(NamedTuple):
    """A row of numbers times a matrix.

    Attributes:
        row_stride: elements from one number of the row to the next.
        terms, results: how many rows and columns the matrix has.
        term_stride, result_stride: elements from one row of the matrix to the next, and
            from one column to the next.
    """

    row: BufferView
    row_stride: int
    matrix: BufferView
    terms: int
    results: int
    term_stride: int
    result_stride: int


def as_gemv(matmul: MatrixProduct, shape_env: ShapeEnv) -> Gemv | None:
    """Return a product as a row times a matrix, if it is a small one."""
    extents = [
        shape_env.extent(size) for size in (*matmul.x.view.shape, *matmul.y.view.shape)
    ]
    x, y = (operand.view.strides for operand in (matmul.x, matmul.y))
    if len(matmul.shape) > 2 or any(e.power for e in (*extents, *x, *y)):
        return None
    x_down, x_along = (e.factor for e in (x[::-1] if matmul.transposed[0] else x))
    y_down, y_along = (e.factor for e in (y[::-1] if matmul.transposed[1] else y))
    (m, n), terms = matmul.shape, matmul.x.view.shape[0 if matmul.transposed[0] else 1]
    if not 0 < m * n * terms <= MAX_MATRIX_ELEMENTS:
        return None
    if m == 1:
        return Gemv(matmul.x.view, x_along, matmul.y.view, terms, n, y_down, y_along)
    if n == 1:
        return Gemv(matmul.y.view, y_down, matmul.x.view, terms, m, x_along, x_down)
    return None


def emit_gemv(
    ir: FunctionBuilder, gemv: Gemv, out: BufferView, address: Address
) -> bool:
    """Emit the product where the matrix has no gaps along one of its dimensions.

    Args:
        out: the result, without gaps.

    Returns:
        Whether it wrote the product.
    """
    max_length = MAX_UNROLLED_VECTORS * MAX_VECTOR_BYTES // BYTES[out.buffer.dtype]
    if gemv.result_stride == 1 and gemv.results > 1 and gemv.results <= max_length:
        _emit_row_sums(ir, gemv, out, address)
    elif gemv.term_stride == 1 == gemv.row_stride and gemv.terms <= max_length:
        _emit_dots(ir, gemv, out, address)
    else:
        return False
    return True


def _vector_spans(count: int, dtype: str) -> list[tuple[int, int]]:
    """Return where each vector of a row begins, and how long it is."""
    max_width = MAX_VECTOR_BYTES // BYTES[dtype]
    return [
        (start, min(max_width, count - start)) for start in range(0, count, max_width)
    ]


def _emit_row_sums(
    ir: FunctionBuilder, gemv: Gemv, out: BufferView, address: Address
) -> None:
    """Add up rows of the matrix, each times a number."""
    dtype = out.buffer.dtype
    kind = TYPES[dtype]
    row, matrix, target = map(address, (gemv.row, gemv.matrix, out))
    for start, width in _vector_spans(gemv.results, dtype):
        vec = VectorType(ir, dtype, width)
        sum_count = max(
            1, min(PARTIAL_SUMS, MAX_VECTOR_BYTES // (width * BYTES[dtype]), gemv.terms)
        )
        matrix_base = ir.offset_address(matrix, kind, start)

        def emit_term(
            k: int, matrix_row: str, row_entry: str, vec: VectorType = vec
        ) -> str:
            number = ir.offset_address(row_entry, kind, k * gemv.row_stride)
            vector = ir.offset_address(matrix_row, kind, k * gemv.term_stride)
            return vec.multiply(vec.load(vector), vec.load_broadcast(number))

        carried = [
            LoopCarried(
                vec.kind,
                "zeroinitializer",
                ir.fresh_name("sum"),
                ir.fresh_name("next"),
            )
            for _ in range(sum_count)
        ]
        with ir.loop(str(gemv.terms // sum_count), carried, NO_VECTORIZE) as index:
            matrix_row = ir.indexed_address(
                matrix_base, kind, SymInt(sum_count * gemv.term_stride), index
            )
            row_entry = ir.indexed_address(
                row, kind, SymInt(sum_count * gemv.row_stride), index
            )
            for k, carry in enumerate(carried):
                next_sum = vec.add_instruction(
                    carry.phi, emit_term(k, matrix_row, row_entry)
                )
                ir.line(f"{carry.next} = {next_sum}")
        total = carried[0].phi
        for carry in carried[1:]:
            total = vec.add(total, carry.phi)
        for k in range(gemv.terms - gemv.terms % sum_count, gemv.terms):
            total = vec.add(total, emit_term(k, matrix_base, row))
        vec.store(total, ir.offset_address(target, kind, start))


def _emit_dots(
    ir: FunctionBuilder, gemv: Gemv, out: BufferView, address: Address
) -> None:
    """Multiply the row and each column of the matrix, whose terms are contiguous."""
    dtype = out.buffer.dtype
    kind = TYPES[dtype]
    row, matrix, target = map(address, (gemv.row, gemv.matrix, out))
    column_stride = SymInt(gemv.result_stride if gemv.results > 1 else 0)
    with ir.loop(str(gemv.results), metadata=NO_VECTORIZE) as index:
        column = ir.indexed_address(matrix, kind, column_stride, index)
        sums: dict[int, str] = {}
        for start, width in _vector_spans(gemv.terms, dtype):
            vec = VectorType(ir, dtype, width)
            vectors = (ir.offset_address(base, kind, start) for base in (column, row))
            product = vec.multiply(*map(vec.load, vectors))
            sums[width] = vec.add(sums[width], product) if width in sums else product
        total, *partials = (
            VectorType(ir, dtype, w).sum_lanes(v) for w, v in sums.items()
        )
        for partial in partials:
            total = ir.emit(f"fadd {kind} {total}, {partial}")
        ir.line(
            f"store {kind} {total}, ptr {ir.indexed_address(target, kind, ONE, index)}"
        )
