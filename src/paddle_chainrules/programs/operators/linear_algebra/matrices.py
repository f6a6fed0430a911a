"""Products of matrices, and affine maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddle import Tensor

from ....paddle_side.dtypes import single
from ....paddle_side.interception import RAW
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
        self, args: Mapping[str, Any], given: Sequence[Any], outputs: Any, count: int
    ) -> bool:
        x, y = [*args.values()][:2]
        turned = args.get("transpose_x", False) or args.get("transpose_weight", False)
        is_left = [*given] == [x] and len(x.shape) > count
        return is_left and not turned and len(y.shape) == 2


PRODUCT = ProductAxes()

define(
    "matmul",
    "x y transpose_x transpose_y",
    defaults={"transpose_x": False, "transpose_y": False},
    axes=PRODUCT,
    linear=(0, 1),
    promotes=(0, 1),
)
define("Tensor.__matmul__", "x y", infix="@", axes=PRODUCT, promotes=(0, 1))
define("bmm", axes=ANYWHERE)
define("matmul_grad", "x y out_grad transpose_x transpose_y", axes=ANYWHERE)
define("linear", "x weight bias", axes=PRODUCT)
define("linear_v2", axes=PRODUCT)
define("addmm", defaults={"beta": 1.0, "alpha": 1.0}, axes=ANYWHERE)
define("addmm_grad", "input x y out_grad alpha beta", axes=ANYWHERE)
define("dot", axes=ANYWHERE)
holds_for_complex("matmul", "Tensor.__matmul__", "linear", "dot")


def rows(x: Tensor) -> Tensor:
    """Return x as a matrix whose rows have the last dimension."""
    return x if x.ndim == 2 else ops.reshape(x, [-1, x.shape[-1]])


@reverse_of("matmul")
def _matmul_reverse(call: Call) -> list[Any]:
    x, y, turn_x, turn_y = call.args
    return [*_matmul(call, x, y, turn_x, turn_y), None, None]


@reverse_of("Tensor.__matmul__", "bmm")
def _bmm_reverse(call: Call) -> list[Any]:
    x, y = call.args
    return _matmul(call, x, y, False, False)


def _matmul(call: Call, x: Tensor, y: Tensor, turn_x: bool, turn_y: bool) -> list[Any]:
    g = call.cotangent
    vector_x, vector_y = x.ndim == 1, y.ndim == 1
    if vector_x:
        x, turn_x = ops.unsqueeze(x, [0]), False
        g = ops.unsqueeze(g, [-1 if vector_y else -2])
    if vector_y:
        y, turn_y = ops.unsqueeze(y, [1]), False
        g = ops.unsqueeze(g, [-1])
    by_x = by_y = None
    if 0 in call.wanted:
        if turn_x:
            by_x = ops.matmul(conj(y), g, turn_y, True)
        else:
            by_x = ops.matmul(g, conj(y), False, not turn_y)
        by_x = summed_to(by_x, x)
        by_x = ops.reshape(by_x, call.args[0].shape) if vector_x else by_x
    if 1 in call.wanted:
        if y.ndim == 2 and x.ndim > 2 and not turn_x:
            x, g = rows(x), rows(g)
        if turn_y:
            by_y = ops.matmul(g, conj(x), True, turn_x)
        else:
            by_y = ops.matmul(conj(x), g, not turn_x, False)
        by_y = summed_to(by_y, y)
        by_y = ops.reshape(by_y, call.args[1].shape) if vector_y else by_y
    return [by_x, by_y]


_LONG = 1024
"""The number of terms above which a sum does not begin with the bias.

It would round by several last places there, and would not be faster any more.
"""


@instead_of("linear")
def _linear_instead(x: Any, weight: Any, bias: Any) -> tuple[Any, Any] | None:
    if bias is None or len(x.shape) != 2 or len(bias.shape) != 1:
        return None
    if weight.shape[0] > _LONG:
        return None
    if {x.dtype, weight.dtype, bias.dtype} not in ({"float32"}, {"float64"}):
        return None
    return RAW.addmm, (bias, x, weight, 1.0, 1.0)


@reverse_of("linear")
def _linear_reverse(call: Call) -> list[Any]:
    x, weight, bias = call.args
    return _linear(call, x, weight, bias, False)


@reverse_of("linear_v2")
def _linear_v2_reverse(call: Call) -> list[Any]:
    x, weight, bias, turned = call.args
    return [*_linear(call, x, weight, bias, turned), None]


def _linear(
    call: Call, x: Tensor, weight: Tensor, bias: Any, turned: bool
) -> list[Any]:
    g = call.cotangent
    by_x = by_weight = by_bias = None
    if weight.ndim != 2:  # of several matrices, or a vector
        by_x, by_weight = _matmul(call, x, weight, False, turned)
    elif 0 in call.wanted:
        by_x = ops.matmul(g, conj(weight), False, not turned)
    if 1 in call.wanted and weight.ndim == 2:
        if x.ndim == 1:
            x, g = ops.unsqueeze(x, [0]), ops.unsqueeze(g, [0])
        x, g = rows(conj(x)), rows(g)
        if turned:
            by_weight = ops.matmul(g, x, True, False)
        else:
            by_weight = ops.matmul(x, g, True, False)
    if 2 in call.wanted:
        by_bias = summed_to(g, bias)
    return [by_x, by_weight, by_bias]


@formula_of("matmul_grad")
def _matmul_grad_formula(
    x: Tensor, y: Tensor, out_grad: Tensor, transpose_x: bool, transpose_y: bool
) -> list[Any]:
    call = Call([x, y], [], [out_grad], frozenset({0, 1}))
    return _matmul(call, x, y, transpose_x, transpose_y)


@formula_of("addmm_grad")
def _addmm_grad_formula(
    input: Tensor, x: Tensor, y: Tensor, out_grad: Tensor, alpha: float, beta: float
) -> list[Any]:
    g = out_grad * single(alpha)
    by_x, by_y = ops.matmul(g, y, False, True), ops.matmul(x, g, True, False)
    return [summed_to(out_grad, input) * single(beta), by_x, by_y]


formula_of("addmm")(addmm)


@formula_of("bmm")
def _bmm_formula(x: Tensor, y: Tensor) -> Tensor:
    return ops.matmul(x, y, False, False)


@formula_of("dot")
def _dot_formula(x: Tensor, y: Tensor) -> Tensor:
    result: Tensor = ops.sum(x * y, [-1], None, False)
    return result


# In Taylor series.


@jet_of("matmul")
def _matmul_jet(call: JetCall) -> list[Any]:
    x, y, turn_x, turn_y = call.args

    def times(a: Tensor, b: Tensor) -> Tensor:
        return ops.matmul(a, b, turn_x, turn_y)

    return [[call.out, *product_series(x, y, times)[1:]]]


@jet_of("linear")
def _linear_jet(call: JetCall) -> list[Any]:
    x, weight, bias = call.args
    results = product_series(x, weight, lambda a, b: ops.matmul(a, b, False, False))[1:]
    if bias is not None:
        shape = call.out.shape
        spread = linear_series(lambda part: ops.expand(part, shape), bias[1:])
        results = [*map(total, zip(results, spread, strict=True))]
    return [[call.out, *results]]


# Of many samples.


def _product_by_matrices(
    call: BatchCall, x: Tensor, y: Tensor, turn_x: bool, turn_y: bool
) -> Tensor:
    """Multiply arguments 0 and 1, with vectors as matrices of one row or column."""
    ndim = max(call.ndim(0), call.ndim(1), 2)
    if call.ndim(0) == 1:
        x, turn_x = ops.unsqueeze(x, [-2]), False
    if call.ndim(1) == 1:
        y, turn_y = ops.unsqueeze(y, [-1]), False
    x = aligned(x, ndim) if 0 in call.batched else x
    y = aligned(y, ndim) if 1 in call.batched else y
    result = ops.matmul(x, y, turn_x, turn_y)
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
