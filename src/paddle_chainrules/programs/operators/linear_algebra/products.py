"""More products of vectors and matrices, and traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle import Tensor

from ....paddle_side.rules.derivatives import linear_algebra as linear_algebra_rules
from ....paddle_side.rules.derivatives.formulas import where_traced
from ....paddle_side.rules.derivatives.linear_algebra import addmm
from ....paddle_side.rules.requested_gradients import differentiate_all
from ..axes import ANYWHERE, FIRST, batched_arg
from ..calls import BatchCall, Call
from ..entry import batch_of, define, formula_of, holds_for_complex, reverse_of
from ..shared import conj, ops
from .adjoints import chained_product

define("mv", axes=ANYWHERE)
define(
    "baddbmm",
    defaults={"beta": 1.0, "alpha": 1.0},
    axes=ANYWHERE,
    tape=where_traced(linear_algebra_rules.addmm),
)
define("multi_dot", "x", axes=ANYWHERE, tape=differentiate_all("multi_dot"))
define("kron")
define(
    "cross",
    "x y axis",
    defaults={"axis": 9},
    axes=FIRST,
    tape=differentiate_all("cross"),
)
define("bilinear", "x y weight bias", axes=FIRST)
define("trace", defaults={"offset": 0, "axis1": 0, "axis2": 1})
holds_for_complex("kron", "cross", "trace")


@formula_of("mv")
def _mv_formula(x: Tensor, vec: Tensor) -> Tensor:
    return ops.matmul(x, vec, False, False)


formula_of("baddbmm")(addmm)


@formula_of("multi_dot")
def _multi_dot_formula(x: Sequence[Tensor]) -> Tensor:
    return chained_product(*x)


@formula_of("kron")
def _kron_formula(x: Tensor, y: Tensor) -> Tensor:
    ndim = max(x.ndim, y.ndim)
    left = [1] * (ndim - x.ndim) + x.shape
    right = [1] * (ndim - y.ndim) + y.shape
    x = ops.reshape(x, [n for size in left for n in (size, 1)])
    y = ops.reshape(y, [n for size in right for n in (1, size)])
    return ops.reshape(x * y, [a * b for a, b in zip(left, right, strict=True)])


@reverse_of("cross")
def _cross_reverse(call: Call) -> list[Any]:
    x, y, axis = call.args
    g = conj(call.cotangent)
    axis = x.shape.index(3) if axis == 9 else axis  # Paddle's word for the first
    x_grad = conj(ops.cross(y, g, axis)) if 0 in call.wanted else None
    y_grad = conj(ops.cross(g, x, axis)) if 1 in call.wanted else None
    return [x_grad, y_grad, None]


@formula_of("bilinear")
def _bilinear_formula(
    x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    outputs, n, m = weight.shape
    by_rows = ops.reshape(ops.transpose(weight, [1, 0, 2]), [n, outputs * m])
    partial = ops.reshape(ops.matmul(x, by_rows, False, False), [-1, outputs, m])
    result = ops.matmul(partial, ops.unsqueeze(y, [2]), False, False)
    result = ops.squeeze(result, [2])
    return result if bias is None else result + bias


@formula_of("trace")
def _trace_formula(x: Tensor, offset: int, axis1: int, axis2: int) -> Tensor:
    diagonal = ops.diagonal(x, offset, axis1, axis2)
    return ops.sum(diagonal, [-1], x.dtype, False)


@batch_of("cross")
def _cross_batch(call: BatchCall) -> list[Any]:
    axis, shape = call.args[2], call.shapes[0]
    axis = shape.index(3) if axis == 9 else axis % len(shape)
    components = [ops.unbind(batched_arg(call, i), axis + 1) for i in (0, 1)]
    (a, b, c), (x, y, z) = components
    product = [b * z - c * y, c * x - a * z, a * y - b * x]
    return [ops.stack(product, axis + 1)]
