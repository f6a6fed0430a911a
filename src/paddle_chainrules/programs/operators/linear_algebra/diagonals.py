"""Diagonals of matrices, extracted and set."""

from __future__ import annotations

from typing import Any

import paddle

from ....paddle_side.rules import in_place
from ....paddle_side.rules.derivatives.formulas import by_rules
from ..axes import OtherAxes
from ..calls import Call
from ..entry import define, holds_for_complex, reverse_of
from ..kernels import linear_in_first
from ..shared import ops

define(
    "diagonal",
    view=True,
    defaults={"offset": 0, "axis1": 0, "axis2": 1},
    axes=OtherAxes("axis1", "axis2"),
    tape=in_place.part_view,
)
define("diag")
define("diag_embed", tape=by_rules("diag_embed", 0))
define("fill_diagonal_tensor", tape=by_rules("fill_diagonal_tensor", 1))

linear_in_first("diagonal")
holds_for_complex("diagonal", "diagonal_grad", "diag")


@reverse_of("diag")
def _diag_reverse(call: Call) -> list[Any]:
    x, offset, _ = call.args
    g = call.cotangent
    if x.ndim == 1:
        return [ops.assign(ops.diagonal(g, offset, 0, 1)), None, None]
    zeros = paddle.zeros(x.shape, g.dtype)
    return [ops.diagonal_grad(zeros, g, offset, 0, 1), None, None]


@reverse_of("diag_embed")
def _diag_embed_reverse(call: Call) -> list[Any]:
    _, offset, axis1, axis2 = call.args
    ndim = call.out.ndim
    result = ops.diagonal(call.cotangent, offset, axis1 % ndim, axis2 % ndim)
    return [result, None, None, None]


@reverse_of("fill_diagonal_tensor")
def _fill_diagonal_tensor_reverse(call: Call) -> list[Any]:
    x, y, *attrs = call.args
    g = call.cotangent
    x_grad = y_grad = None
    if 0 in call.wanted:
        x_grad = ops.fill_diagonal_tensor(g, paddle.zeros_like(y), *attrs)
    if 1 in call.wanted:
        offset, *axes = attrs
        y_grad = ops.diagonal(g, offset, *(axis % x.ndim for axis in axes))
        y_grad = y_grad if y_grad.shape == y.shape else ops.reshape(y_grad, y.shape)
    return [x_grad, y_grad, *(None for _ in attrs)]
