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

VECTOR = 256
"""The bytes of the longest vector."""

SUMS = 4
"""The partial sums of a short vector, so that none waits for the one before."""

MOST = 1 << 13
"""The most elements of the matrix. With more, a library is as fast."""

VECTORS = 16
"""The most vectors in a row that each have text of their own."""

Address = Callable[[BufferView], str]


class Gemv(NamedTuple):
    """A row of numbers times a matrix.

    Attributes:
        step: elements from one number of the row to the next.
        terms, results: how many rows and columns the matrix has.
        down, along: elements from one of its rows to the next, and from one of its
            columns to the next.
    """

    row: BufferView
    step: int
    matrix: BufferView
    terms: int
    results: int
    down: int
    along: int


def thin(result: MatrixProduct, shape_env: ShapeEnv) -> Gemv | None:
    """Return the product, if it is one of these."""
    extents = [
        shape_env.extent(size) for size in (*result.x.view.shape, *result.y.view.shape)
    ]
    x, y = (each.view.strides for each in (result.x, result.y))
    if len(result.shape) > 2 or any(e.power for e in (*extents, *x, *y)):
        return None
    x_down, x_along = (e.factor for e in (x[::-1] if result.turned[0] else x))
    y_down, y_along = (e.factor for e in (y[::-1] if result.turned[1] else y))
    (m, n), terms = result.shape, result.x.view.shape[0 if result.turned[0] else 1]
    if not 0 < m * n * terms <= MOST:
        return None
    if m == 1:
        return Gemv(result.x.view, x_along, result.y.view, terms, n, y_down, y_along)
    if n == 1:
        return Gemv(result.y.view, y_down, result.x.view, terms, m, x_along, x_down)
    return None


def write_thin(
    ir: FunctionBuilder, it: Gemv, out: BufferView, address: Address
) -> bool:
    """Write the product where the matrix has no gaps along one of its dimensions.

    Args:
        out: the result, without gaps.

    Returns:
        Whether it wrote the product.
    """
    most = VECTORS * VECTOR // BYTES[out.buffer.dtype]
    if it.along == 1 and it.results > 1 and it.results <= most:
        _combined(ir, it, out, address)
    elif it.down == 1 == it.step and it.terms <= most:
        _dots(ir, it, out, address)
    else:
        return False
    return True


def _widths(count: int, dtype: str) -> list[tuple[int, int]]:
    """Return where each vector of a row begins, and how long it is."""
    most = VECTOR // BYTES[dtype]
    return [(at, min(most, count - at)) for at in range(0, count, most)]


def _combined(ir: FunctionBuilder, it: Gemv, out: BufferView, address: Address) -> None:
    """Add up rows of the matrix, each times a number."""
    dtype = out.buffer.dtype
    kind = TYPES[dtype]
    row, matrix, to = map(address, (it.row, it.matrix, out))
    for at, width in _widths(it.results, dtype):
        of = VectorType(ir, dtype, width)
        sums = max(1, min(SUMS, VECTOR // (width * BYTES[dtype]), it.terms))
        first = ir.offset_address(matrix, kind, at)

        def term(k: int, down: str, along: str, of: VectorType = of) -> str:
            number = ir.offset_address(along, kind, k * it.step)
            vector = ir.offset_address(down, kind, k * it.down)
            return of.times(of.loaded(vector), of.of_one(number))

        carried = [
            LoopCarried(
                of.kind, "zeroinitializer", ir.fresh_name("sum"), ir.fresh_name("next")
            )
            for _ in range(sums)
        ]
        with ir.loop(str(it.terms // sums), carried, NO_VECTORIZE) as index:
            down = ir.indexed_address(first, kind, SymInt(sums * it.down), index)
            along = ir.indexed_address(row, kind, SymInt(sums * it.step), index)
            for k, each in enumerate(carried):
                now = of.plus_as(each.phi, term(k, down, along))
                ir.line(f"{each.next} = {now}")
        total = carried[0].phi
        for each in carried[1:]:
            total = of.plus(total, each.phi)
        for k in range(it.terms - it.terms % sums, it.terms):
            total = of.plus(total, term(k, first, row))
        of.stored(total, ir.offset_address(to, kind, at))


def _dots(ir: FunctionBuilder, it: Gemv, out: BufferView, address: Address) -> None:
    """Multiply the row and each column of the matrix, whose terms are contiguous."""
    dtype = out.buffer.dtype
    kind = TYPES[dtype]
    row, matrix, to = map(address, (it.row, it.matrix, out))
    step = SymInt(it.along if it.results > 1 else 0)
    with ir.loop(str(it.results), metadata=NO_VECTORIZE) as index:
        column = ir.indexed_address(matrix, kind, step, index)
        sums: dict[int, str] = {}
        for at, width in _widths(it.terms, dtype):
            of = VectorType(ir, dtype, width)
            vectors = (ir.offset_address(base, kind, at) for base in (column, row))
            part = of.times(*map(of.loaded, vectors))
            sums[width] = of.plus(sums[width], part) if width in sums else part
        total, *rest = (VectorType(ir, dtype, w).total(v) for w, v in sums.items())
        for each in rest:
            total = ir.emit(f"fadd {kind} {total}, {each}")
        ir.line(f"store {kind} {total}, ptr {ir.indexed_address(to, kind, ONE, index)}")
