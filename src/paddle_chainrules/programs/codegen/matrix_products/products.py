"""Products of matrices as calls of a library, on views."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ....paddle_side.dtypes import FLOATS
from ...tracing.operations import Operation
from ..elements.scalars import NotLowerable
from ..extents import ONE, ShapeEnv, SymInt
from ..ir_builder import NO_VECTORIZE, TYPES, FunctionBuilder
from ..views import BufferView, broadcast_strides, is_dense, reshaped

SUFFIX = {"float32": "f32", "float64": "f64"}


class Factor(NamedTuple):
    """An operand as a library takes it: dense rows or columns.

    Attributes:
        transposed: whether the columns have no gaps, rather than the rows.
        leading_dim: elements from one of these to the next.
    """

    view: BufferView
    transposed: bool
    leading_dim: SymInt


def matrix_factor(view: BufferView, shape_env: ShapeEnv) -> Factor:
    """Return the last two dimensions of a view as a factor.

    Raises:
        NotLowerable: both rows and columns have gaps, or a stride is negative.
    """
    rows, columns = view.shape[-2:]
    row_stride, column_stride = view.strides[-2:]
    if min(row_stride.factor, column_stride.factor) < 0:
        raise NotLowerable
    if column_stride == ONE or columns == 1:
        return Factor(
            view, False, row_stride if rows != 1 else shape_env.extent(columns)
        )
    if row_stride == ONE or rows == 1:
        return Factor(view, True, column_stride)
    raise NotLowerable


class MatrixProduct(NamedTuple):
    """A product of matrices, or many.

    Attributes:
        shape: of the result, as matrices.
        transposed: tells for each factor whether it is transposed.
    """

    x: Factor
    y: Factor
    shape: tuple[int, ...]
    transposed: tuple[bool, bool]


def product(
    op: Operation, views: Sequence[BufferView], shape_env: ShapeEnv
) -> MatrixProduct:
    """Return the product that a ``matmul`` computes.

    Raises:
        NotLowerable: the entries are not floats, have several dtypes, or have gaps.
    """
    _, _, transpose_x, transpose_y = op.args
    kinds = {view.buffer.dtype for view in views} | {op.outputs[0].dtype}
    if len(kinds) > 1 or not kinds <= FLOATS:
        raise NotLowerable
    x, y = views
    shape = [*op.outputs[0].shape]
    if len(x.shape) == 1:
        x, transpose_x = reshaped(x, (1, *x.shape), shape_env), False
        shape.insert(len(shape) - (len(y.shape) > 1), 1)
    if len(y.shape) == 1:
        y, transpose_y = reshaped(y, (*y.shape, 1), shape_env), False
        shape.append(1)
    if (
        len(y.shape) == 2
        and len(x.shape) > 2
        and not transpose_x
        and is_dense(x, shape_env)
    ):
        rows = math.prod(x.shape[:-1])
        if shape_env.extent(rows) == shape_env.product(
            x.shape[:-1]
        ):  # one after another
            x = reshaped(x, (rows, x.shape[-1]), shape_env)
            shape = [rows, shape[-1]]
    transposed = bool(transpose_x), bool(transpose_y)
    return MatrixProduct(
        matrix_factor(x, shape_env),
        matrix_factor(y, shape_env),
        tuple(shape),
        transposed,
    )


def shared_batch(matmul: MatrixProduct) -> int | None:
    """Return the batch dimension that threads may share, if any."""
    batch = matmul.shape[:-2]
    return next((k for k, size in enumerate(batch) if size != 1), None)


def emit_product(
    ir: FunctionBuilder,
    matmul: MatrixProduct,
    out: BufferView,
    shape_env: ShapeEnv,
    address: Callable[[BufferView], str],
) -> None:
    """Emit the call, in loops over the batch.

    Args:
        out: the result, without gaps, in its shape as matrices.
    """
    x, y = matmul.x, matmul.y
    dtype, batch = x.view.buffer.dtype, matmul.shape[:-2]
    batch_strides = [
        broadcast_strides(
            view._replace(shape=view.shape[:-2], strides=view.strides[:-2]), batch
        )
        for view in (x.view, y.view, out)
    ]
    terms = x.view.shape[-2 if matmul.transposed[0] else -1]
    counts = [
        ir.size_value(shape_env.extent(size)) for size in (*matmul.shape[-2:], terms)
    ]
    leading_dims = [*map(ir.size_value, (x.leading_dim, y.leading_dim)), counts[1]]
    element = TYPES[dtype]

    def emit_batch_loop(depth: int, pointers: Sequence[str]) -> None:
        if depth == len(batch):
            emit_gemm_call(ir, matmul, counts, pointers, leading_dims)
            return
        start, stop = "0", ir.size_value(shape_env.extent(batch[depth]))
        if depth == shared_batch(matmul):
            start, stop = ir.thread_range(stop)
        with ir.loop(stop, metadata=NO_VECTORIZE, start=start) as index:
            pairs = zip(pointers, batch_strides, strict=True)
            advanced = [
                ir.indexed_address(p, element, strides[depth], index)
                for p, strides in pairs
            ]
            emit_batch_loop(depth + 1, advanced)

    emit_batch_loop(0, [address(view) for view in (x.view, y.view, out)])


def emit_gemm_call(
    ir: FunctionBuilder,
    matmul: MatrixProduct,
    counts: Sequence[str],
    pointers: Sequence[str],
    leading_dims: Sequence[str],
    beta: str = "0.0",
) -> None:
    """Emit the call for one of the products.

    Args:
        counts: rows, columns, and terms.
        pointers: to both factors, and the result.
        leading_dims: the distance of rows of each in memory.
        beta: the factor of the old content.
    """
    dtype = matmul.x.view.buffer.dtype
    pairs = zip((matmul.x, matmul.y), matmul.transposed, strict=True)
    flags = [
        f"i1 {str(operand.transposed != transposed).lower()}"
        for operand, transposed in pairs
    ]
    a, b, c = (
        f"ptr {pointer}, i64 {leading_dim}"
        for pointer, leading_dim in zip(pointers, leading_dims, strict=True)
    )
    sizes = (f"i64 {size}" for size in counts)
    args = ", ".join([*flags, *sizes, a, b, f"{TYPES[dtype]} {beta}", c])
    ir.line(f"call void @product.{SUFFIX[dtype]}({args})")
