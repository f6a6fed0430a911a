"""Products of matrices as calls of a library, on views."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...tracing.operations import Operation
from ..elements.scalars import FLOATS, NotLowerable
from ..extents import ONE, ShapeEnv, SymInt
from ..ir_builder import NO_VECTORIZE, TYPES, FunctionBuilder
from ..views import BufferView, broadcast_strides, is_dense, reshaped

SUFFIX = {"float32": "f32", "float64": "f64"}


class Factor(NamedTuple):
    """A matrix as the library takes it: rows or columns without gaps.

    Attributes:
        turned: whether the columns have no gaps, rather than the rows.
        step: elements from one of these to the next.
    """

    view: BufferView
    turned: bool
    step: SymInt


def factor(view: BufferView, shape_env: ShapeEnv) -> Factor:
    """Return the last two dimensions of a view as a factor.

    Raises:
        NotLowerable: both rows and columns have gaps, or they lie backwards.
    """
    rows, columns = view.shape[-2:]
    down, across = view.strides[-2:]
    if min(down.factor, across.factor) < 0:
        raise NotLowerable
    if across == ONE or columns == 1:
        return Factor(view, False, down if rows != 1 else shape_env.extent(columns))
    if down == ONE or rows == 1:
        return Factor(view, True, across)
    raise NotLowerable


class MatrixProduct(NamedTuple):
    """A product of matrices, or many.

    Attributes:
        shape: of the result, as matrices.
        turned: tells for each factor whether it is transposed.
    """

    x: Factor
    y: Factor
    shape: tuple[int, ...]
    turned: tuple[bool, bool]


def product(
    op: Operation, views: Sequence[BufferView], shape_env: ShapeEnv
) -> MatrixProduct:
    """Return the product that a ``matmul`` computes.

    Raises:
        NotLowerable: the entries are not floats, have several dtypes, or have gaps.
    """
    _, _, turn_x, turn_y = op.args
    kinds = {view.buffer.dtype for view in views} | {op.outputs[0].dtype}
    if len(kinds) > 1 or not kinds <= FLOATS:
        raise NotLowerable
    x, y = views
    shape = [*op.outputs[0].shape]
    if len(x.shape) == 1:
        x, turn_x = reshaped(x, (1, *x.shape), shape_env), False
        shape.insert(len(shape) - (len(y.shape) > 1), 1)
    if len(y.shape) == 1:
        y, turn_y = reshaped(y, (*y.shape, 1), shape_env), False
        shape.append(1)
    if len(y.shape) == 2 and len(x.shape) > 2 and not turn_x and is_dense(x, shape_env):
        rows = math.prod(x.shape[:-1])
        if shape_env.extent(rows) == shape_env.product(
            x.shape[:-1]
        ):  # one after another
            x = reshaped(x, (rows, x.shape[-1]), shape_env)
            shape = [rows, shape[-1]]
    turned = bool(turn_x), bool(turn_y)
    return MatrixProduct(
        factor(x, shape_env), factor(y, shape_env), tuple(shape), turned
    )


def shared_batch(result: MatrixProduct) -> int | None:
    """Return the dimension of many products that threads may share, if any."""
    batch = result.shape[:-2]
    return next((k for k, size in enumerate(batch) if size != 1), None)


def write_product(
    ir: FunctionBuilder,
    result: MatrixProduct,
    out: BufferView,
    shape_env: ShapeEnv,
    address: Callable[[BufferView], str],
) -> None:
    """Write the call, in loops where there are many matrices.

    Args:
        out: the result, without gaps, in its shape as matrices.
    """
    x, y = result.x, result.y
    kind, batch = x.view.buffer.dtype, result.shape[:-2]
    steps = [
        broadcast_strides(
            view._replace(shape=view.shape[:-2], strides=view.strides[:-2]), batch
        )
        for view in (x.view, y.view, out)
    ]
    inner = x.view.shape[-2 if result.turned[0] else -1]
    counts = [
        ir.size_value(shape_env.extent(size)) for size in (*result.shape[-2:], inner)
    ]
    rows = [*map(ir.size_value, (x.step, y.step)), counts[1]]
    element = TYPES[kind]

    def level(depth: int, pointers: Sequence[str]) -> None:
        if depth == len(batch):
            write_call(ir, result, counts, pointers, rows)
            return
        start, stop = "0", ir.size_value(shape_env.extent(batch[depth]))
        if depth == shared_batch(result):
            start, stop = ir.thread_range(stop)
        with ir.loop(stop, metadata=NO_VECTORIZE, start=start) as index:
            pairs = zip(pointers, steps, strict=True)
            here = [
                ir.indexed_address(p, element, each[depth], index) for p, each in pairs
            ]
            level(depth + 1, here)

    level(0, [address(view) for view in (x.view, y.view, out)])


def write_call(
    ir: FunctionBuilder,
    result: MatrixProduct,
    counts: Sequence[str],
    pointers: Sequence[str],
    steps: Sequence[str],
    beta: str = "0.0",
) -> None:
    """Write the call for one of the products.

    Args:
        counts: rows, columns, and terms.
        pointers: to both factors, and the result.
        steps: from a row of each to the next, as it lies in memory.
        beta: the factor of the old content.
    """
    kind = result.x.view.buffer.dtype
    pairs = zip((result.x, result.y), result.turned, strict=True)
    flags = [f"i1 {str(each.turned != turned).lower()}" for each, turned in pairs]
    a, b, c = (
        f"ptr {at}, i64 {step}" for at, step in zip(pointers, steps, strict=True)
    )
    sizes = (f"i64 {size}" for size in counts)
    given = ", ".join([*flags, *sizes, a, b, f"{TYPES[kind]} {beta}", c])
    ir.line(f"call void @product.{SUFFIX[kind]}({given})")
