"""Iteration domains of stages, which may run tile by tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .elements.scalars import Shape
from .extents import ONE, ZERO, ShapeEnv, SymInt
from .ir_builder import TYPES, FunctionBuilder
from .matrix_products.products import MatrixProduct, emit_gemm_call
from .nest import LoopNest, NestAccess
from .views import BufferView, broadcast_strides

Address = Callable[[BufferView], str]

STATIC_SHAPES = ShapeEnv(None)
"""Sizes within a tile do not vary with the number of samples."""


ROWS, COLUMNS, TERMS = -3, -2, -1
"""The last dimensions of the domain of products."""


class DomainTile(NamedTuple):
    """A tile of an iteration domain.

    Attributes:
        shape: its extent along each dimension.
        reads, writes: the accesses, with strides along these.
        accumulates: the name of a bit: whether products add to the old content.
    """

    shape: Shape
    reads: Sequence[NestAccess]
    writes: Sequence[NestAccess]
    accumulates: str = "false"


class IterationDomain(NamedTuple):
    """The iteration domain of a stage.

    Attributes:
        shape: for products of matrices the batch, then rows, columns and terms.
        reads, writes: the strides along it, 0 where something is repeated or reduced.
        emit_tile: emits the code of a tile, or of one product of matrices.
        is_product: whether it is a domain of products.
    """

    shape: Shape
    reads: Sequence[NestAccess]
    writes: Sequence[NestAccess]
    emit_tile: Callable[[FunctionBuilder, DomainTile, Address], None]
    is_product: bool = False


def nest_domain(
    shape: Shape,
    reads: Sequence[NestAccess],
    writes: Sequence[NestAccess],
    body: Callable[[Sequence[str], FunctionBuilder, int], Sequence[str]],
    work: int,
) -> IterationDomain:
    """Return the domain of a loop nest, with this many operations on an element."""

    def emit_tile(ir: FunctionBuilder, tile: DomainTile, address: Address) -> None:
        args = tile.shape, tile.reads, tile.writes, STATIC_SHAPES, address
        nest = LoopNest(ir, *args, work=work)
        nest.emit(lambda args, lanes: body(args, ir, lanes))

    return IterationDomain(shape, reads, writes, emit_tile)


def product_domain(
    matmul: MatrixProduct, out: BufferView, comment: str, shape_env: ShapeEnv
) -> IterationDomain:
    """Return the domain of products of matrices.

    Args:
        out: the results, in their shape.
        comment: a line before the code.
    """
    *batch, _, columns = matmul.shape
    terms = matmul.x.view.shape[-2 if matmul.transposed[0] else -1]
    x_rows, x_terms = _matrix_strides(matmul.x.view, matmul.transposed[0])
    y_terms, y_columns = _matrix_strides(matmul.y.view, matmul.transposed[1])
    leading_dims = (
        TERMS if matmul.x.transposed != matmul.transposed[0] else ROWS,
        COLUMNS if matmul.y.transposed != matmul.transposed[1] else TERMS,
        ROWS,
    )

    def access(view: BufferView, *inner: SymInt) -> NestAccess:
        outer = view._replace(shape=view.shape[:-2], strides=view.strides[:-2])
        return NestAccess(view, (*broadcast_strides(outer, tuple(batch)), *inner))

    def emit_tile(ir: FunctionBuilder, tile: DomainTile, address: Address) -> None:
        ir.line(comment)
        kind = TYPES[out.buffer.dtype]
        beta = ir.emit(f"select i1 {tile.accumulates}, {kind} 1.0, {kind} 0.0")
        accesses = *tile.reads, *tile.writes
        leading_strides = [
            ir.size_value(e.strides[k])
            for e, k in zip(accesses, leading_dims, strict=True)
        ]
        pointers = [address(operand.view) for operand in accesses]
        counts = [*map(str, tile.shape[-3:])]
        emit_gemm_call(ir, matmul, counts, pointers, leading_strides, beta)

    return IterationDomain(
        (*matmul.shape, terms),
        (
            access(matmul.x.view, x_rows, ZERO, x_terms),
            access(matmul.y.view, ZERO, y_columns, y_terms),
        ),
        (access(out, shape_env.extent(columns), ONE, ZERO),),
        emit_tile,
        is_product=True,
    )


def _matrix_strides(view: BufferView, is_transposed: bool) -> tuple[SymInt, ...]:
    """Return the row and column strides of matrices after transposition."""
    strides = view.strides[-2:]
    return strides[::-1] if is_transposed else strides
