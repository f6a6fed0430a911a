"""Products of matrices, and affine maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddle import Tensor

from ....paddle_side.dtypes import single
from ....paddle_side.interception import RAW
from ....paddle_side.rules.derivatives import linear_algebra as linear_algebra_rules
from ....paddle_side.rules.derivatives.formulas import where_traced
from ....paddle_side.rules.derivatives.linear_algebra import addmm
from ..axes import ANYWHERE, ShapePolymorphic
from ..calls import BatchCall, Call, JetCall
from ..entry import (
    batch_of,
    define,
    formula_of,
    holds_for_complex,
    instead_of,
    jet_of,
    reverse_of,
)
from ..series import linear_series, product_series, total
from ..shared import aligned, conj, ops, summed_to


class ProductAxes(ShapePolymorphic):
    """The kind for products of matrices, or of rows by a matrix shared by samples."""

    def keeps_rows(
        self,
        args: Mapping[str, Any],
        row_inputs: Sequence[Any],
        outputs: Any,
        num_row_axes: int,
    ) -> bool:
        x, y = [*args.values()][:2]
        is_transposed = args.get("transpose_x", False) or args.get(
            "transpose_weight", False
        )
        is_left = [*row_inputs] == [x] and len(x.shape) > num_row_axes
        return is_left and not is_transposed and len(y.shape) == 2


PRODUCT = ProductAxes()

define(
    "matmul",
    defaults={"transpose_x": False, "transpose_y": False},
    axes=PRODUCT,
    linear=(0, 1),
    promotes=(0, 1),
    tape=where_traced(linear_algebra_rules.matmul),
)
define(
    "Tensor.__matmul__",
    "x y",
    infix="@",
    axes=PRODUCT,
    promotes=(0, 1),
    tape=where_traced(linear_algebra_rules.matmul),
)
define("bmm", axes=ANYWHERE)
define("matmul_grad", "x y out_grad transpose_x transpose_y", axes=ANYWHERE)
define("linear", "x weight bias", axes=PRODUCT)
define("linear_v2", axes=PRODUCT)
define(
    "addmm",
    defaults={"beta": 1.0, "alpha": 1.0},
    axes=ANYWHERE,
    tape=where_traced(linear_algebra_rules.addmm),
)
define("addmm_grad", "input x y out_grad alpha beta", axes=ANYWHERE)
define("dot", axes=ANYWHERE)
holds_for_complex("matmul", "Tensor.__matmul__", "linear", "dot")


def rows(x: Tensor) -> Tensor:
    """Return x as a matrix whose rows have the last dimension."""
    return x if x.ndim == 2 else ops.reshape(x, [-1, x.shape[-1]])


@reverse_of("matmul")
def _matmul_reverse(call: Call) -> list[Any]:
    x, y, transpose_x, transpose_y = call.args
    return [*_matmul_gradients(call, x, y, transpose_x, transpose_y), None, None]


@reverse_of("Tensor.__matmul__", "bmm")
def _bmm_reverse(call: Call) -> list[Any]:
    x, y = call.args
    return _matmul_gradients(call, x, y, False, False)


def _matmul_gradients(
    call: Call, x: Tensor, y: Tensor, transpose_x: bool, transpose_y: bool
) -> list[Any]:
    g = call.cotangent
    is_vector_x, is_vector_y = x.ndim == 1, y.ndim == 1
    if is_vector_x:
        x, transpose_x = ops.unsqueeze(x, [0]), False
        g = ops.unsqueeze(g, [-1 if is_vector_y else -2])
    if is_vector_y:
        y, transpose_y = ops.unsqueeze(y, [1]), False
        g = ops.unsqueeze(g, [-1])
    x_grad = y_grad = None
    if 0 in call.wanted:
        if transpose_x:
            x_grad = ops.matmul(conj(y), g, transpose_y, True)
        else:
            x_grad = ops.matmul(g, conj(y), False, not transpose_y)
        x_grad = summed_to(x_grad, x)
        x_grad = ops.reshape(x_grad, call.args[0].shape) if is_vector_x else x_grad
    if 1 in call.wanted:
        if y.ndim == 2 and x.ndim > 2 and not transpose_x:
            x, g = rows(x), rows(g)
        if transpose_y:
            y_grad = ops.matmul(g, conj(x), True, transpose_x)
        else:
            y_grad = ops.matmul(conj(x), g, not transpose_x, False)
        y_grad = summed_to(y_grad, y)
        y_grad = ops.reshape(y_grad, call.args[1].shape) if is_vector_y else y_grad
    return [x_grad, y_grad]


_MAX_TERMS_AFTER_BIAS = 1024
"""The number of terms above which a sum does not begin with the bias.

It would round by several last places there, and would not be faster any more.
"""


@instead_of("linear")
def _linear_instead(x: Any, weight: Any, bias: Any) -> tuple[Any, Any] | None:
    if bias is None or len(x.shape) != 2 or len(bias.shape) != 1:
        return None
    if weight.shape[0] > _MAX_TERMS_AFTER_BIAS:
        return None
    if {x.dtype, weight.dtype, bias.dtype} not in ({"float32"}, {"float64"}):
        return None
    return RAW.addmm, (bias, x, weight, 1.0, 1.0)


@reverse_of("linear")
def _linear_reverse(call: Call) -> list[Any]:
    x, weight, bias = call.args
    return _linear_gradients(call, x, weight, bias, False)


@reverse_of("linear_v2")
def _linear_v2_reverse(call: Call) -> list[Any]:
    x, weight, bias, transpose_weight = call.args
    return [*_linear_gradients(call, x, weight, bias, transpose_weight), None]


def _linear_gradients(
    call: Call, x: Tensor, weight: Tensor, bias: Any, transpose_weight: bool
) -> list[Any]:
    g = call.cotangent
    x_grad = weight_grad = bias_grad = None
    if weight.ndim != 2:  # of several matrices, or a vector
        x_grad, weight_grad = _matmul_gradients(
            call, x, weight, False, transpose_weight
        )
    elif 0 in call.wanted:
        x_grad = ops.matmul(g, conj(weight), False, not transpose_weight)
    if 1 in call.wanted and weight.ndim == 2:
        if x.ndim == 1:
            x, g = ops.unsqueeze(x, [0]), ops.unsqueeze(g, [0])
        x, g = rows(conj(x)), rows(g)
        if transpose_weight:
            weight_grad = ops.matmul(g, x, True, False)
        else:
            weight_grad = ops.matmul(x, g, True, False)
    if 2 in call.wanted:
        bias_grad = summed_to(g, bias)
    return [x_grad, weight_grad, bias_grad]


@formula_of("matmul_grad")
def _matmul_grad_formula(
    x: Tensor, y: Tensor, out_grad: Tensor, transpose_x: bool, transpose_y: bool
) -> list[Any]:
    call = Call([x, y], [], [out_grad], frozenset({0, 1}))
    return _matmul_gradients(call, x, y, transpose_x, transpose_y)


@formula_of("addmm_grad")
def _addmm_grad_formula(
    input: Tensor, x: Tensor, y: Tensor, out_grad: Tensor, alpha: float, beta: float
) -> list[Any]:
    g = out_grad * single(alpha)
    x_grad, y_grad = ops.matmul(g, y, False, True), ops.matmul(x, g, True, False)
    return [summed_to(out_grad, input) * single(beta), x_grad, y_grad]


formula_of("addmm")(addmm)


@formula_of("bmm")
def _bmm_formula(x: Tensor, y: Tensor) -> Tensor:
    return ops.matmul(x, y, False, False)


@formula_of("dot")
def _dot_formula(x: Tensor, y: Tensor) -> Tensor:
    result: Tensor = ops.sum(x * y, [-1], None, False)
    return result


# In Taylor series.


@jet_of("linear")
def _linear_jet(call: JetCall) -> list[Any]:
    x, weight, bias = call.args
    series = product_series(x, weight, lambda a, b: ops.matmul(a, b, False, False))[1:]
    if bias is not None:
        shape = call.out.shape
        bias_series = linear_series(lambda term: ops.expand(term, shape), bias[1:])
        series = [*map(total, zip(series, bias_series, strict=True))]
    return [[call.out, *series]]


# Of many samples.


def _product_by_matrices(
    call: BatchCall, x: Tensor, y: Tensor, transpose_x: bool, transpose_y: bool
) -> Tensor:
    """Multiply arguments 0 and 1, with vectors as matrices of one row or column."""
    ndim = max(call.ndim(0), call.ndim(1), 2)
    if call.ndim(0) == 1:
        x, transpose_x = ops.unsqueeze(x, [-2]), False
    if call.ndim(1) == 1:
        y, transpose_y = ops.unsqueeze(y, [-1]), False
    x = aligned(x, ndim) if 0 in call.batched else x
    y = aligned(y, ndim) if 1 in call.batched else y
    result = ops.matmul(x, y, transpose_x, transpose_y)
    if call.ndim(0) > 1 and call.ndim(1) > 1:
        return result
    return ops.reshape(result, [call.size, *call.shapes[0]])


@batch_of("matmul")
def _matmul_batch(call: BatchCall) -> list[Any]:
    return [_product_by_matrices(call, *call.args)]


@batch_of("Tensor.__matmul__", "bmm")
def _bmm_batch(call: BatchCall) -> list[Any]:
    x, y = call.args
    return [_product_by_matrices(call, x, y, False, False)]


@batch_of("linear")
def _linear_batch(call: BatchCall) -> list[Any]:
    x, weight, bias = call.args
    if call.batched.isdisjoint((0, 1)):
        return [ops.linear(x, weight, None) + aligned(bias, len(call.shapes[0]))]
    if 1 not in call.batched and 2 not in call.batched:
        return [ops.linear(x, weight, bias)]
    result = _product_by_matrices(call, x, weight, False, False)
    if bias is None:
        return [result]
    return [result + (aligned(bias, call.ndim(0)) if 2 in call.batched else bias)]
