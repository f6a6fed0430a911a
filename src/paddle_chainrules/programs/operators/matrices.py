"""Products of matrices, and affine maps."""

from __future__ import annotations

from typing import Any

from paddle import Tensor

from .entry import Call, define, formula_of, reverse_of
from .shared import ops, summed_to

define(
    "matmul",
    "x y transpose_x transpose_y",
    defaults={"transpose_x": False, "transpose_y": False},
)
define("Tensor.__matmul__", "x y", infix="@")
define("bmm")
define("linear", "x weight bias")
define("linear_v2")
define("addmm", defaults={"beta": 1.0, "alpha": 1.0})
define("dot")


def rows(x: Tensor) -> Tensor:
    """As a matrix, of the last dimension."""
    return x if x.ndim == 2 else ops.reshape(x, [-1, x.shape[-1]])


@reverse_of("matmul")
def _(call: Call) -> list[Any]:
    x, y, turn_x, turn_y = call.args
    return [*_matmul(call, x, y, turn_x, turn_y), None, None]


@reverse_of("Tensor.__matmul__", "bmm")
def _(call: Call) -> list[Any]:
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
            by_x = ops.matmul(y, g, turn_y, True)
        else:
            by_x = ops.matmul(g, y, False, not turn_y)
        by_x = summed_to(by_x, x)
        by_x = ops.reshape(by_x, call.args[0].shape) if vector_x else by_x
    if 1 in call.wanted:
        if y.ndim == 2 and x.ndim > 2 and not turn_x:
            x, g = rows(x), rows(g)
        if turn_y:
            by_y = ops.matmul(g, x, True, turn_x)
        else:
            by_y = ops.matmul(x, g, not turn_x, False)
        by_y = summed_to(by_y, y)
        by_y = ops.reshape(by_y, call.args[1].shape) if vector_y else by_y
    return [by_x, by_y]


@reverse_of("linear")
def _(call: Call) -> list[Any]:
    x, weight, bias = call.args
    return _linear(call, x, weight, bias, False)


@reverse_of("linear_v2")
def _(call: Call) -> list[Any]:
    x, weight, bias, turned = call.args
    return [*_linear(call, x, weight, bias, turned), None]


def _linear(
    call: Call, x: Tensor, weight: Tensor, bias: Any, turned: bool
) -> list[Any]:
    g = call.cotangent
    by_x = by_weight = by_bias = None
    if 0 in call.wanted:
        by_x = ops.matmul(g, weight, False, not turned)
    if 1 in call.wanted:
        if x.ndim == 1:
            x, g = ops.unsqueeze(x, [0]), ops.unsqueeze(g, [0])
        x, g = rows(x), rows(g)
        if turned:
            by_weight = ops.matmul(g, x, True, False)
        else:
            by_weight = ops.matmul(x, g, True, False)
    if 2 in call.wanted:
        by_bias = summed_to(g, bias)
    return [by_x, by_weight, by_bias]


@formula_of("addmm")
def _(input: Tensor, x: Tensor, y: Tensor, beta: float, alpha: float) -> Tensor:
    product = ops.matmul(x, y, False, False)
    product = product if alpha == 1 else product * alpha
    return product + (input if beta == 1 else input * beta)


@formula_of("dot")
def _(x: Tensor, y: Tensor) -> Tensor:
    return ops.sum(x * y, [-1], None, False)
