"""More functions of each element: inverse and hyperbolic ones, and kinks."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.dtypes import single
from ....paddle_side.rules.derivatives.formulas import by_rules, refuse_derivative
from ..axes import ELEMENTS
from ..calls import Call
from ..entry import define, formula_of, holds_for_complex, reverse_of, tape_of
from ..shared import broadcast_gradients, conj, in_dtype_of, is_zero, ops
from .activation_formulas import celu, or_nan


def define_with_slope(name: str, slope: Callable[[Any, Any], Any]) -> None:
    """Define a function of each element by its derivative.

    Args:
        slope: a function of the argument and the result.
    """
    define(name, axes=ELEMENTS)

    @reverse_of(name)
    def rule(call: Call) -> list[Any]:
        return [call.cotangent * conj(slope(call.args[0], call.out))]


Power = Callable[[Tensor, float], Tensor]

SLOPES: dict[str, Callable[[Tensor, Power], Tensor]] = {
    "asin": lambda x, power: power(1.0 - x * x, -0.5),
    "acos": lambda x, power: -power(1.0 - x * x, -0.5),
    "asinh": lambda x, power: power(x * x + 1.0, -0.5),
    "acosh": lambda x, power: power(x * x - 1.0, -0.5),
    "atanh": lambda x, power: power(1.0 - x * x, -1.0),
    "log2": lambda x, power: power(x, -1.0) * (1.0 / math.log(2.0)),
    "log10": lambda x, power: power(x, -1.0) * (1.0 / math.log(10.0)),
}
"""Derivatives, by a function that takes powers."""


def _power(x: Tensor, exponent: float) -> Tensor:
    """Return x to the power of minus one, or of minus one half."""
    if exponent == -1.0:
        return 1.0 / x
    return 1.0 / ops.sqrt(x) if x.is_complex() else ops.rsqrt(x)


def _slope(name: str, x: Tensor, _: Tensor) -> Tensor:
    if name == "acosh" and x.is_complex():  # its cut is not that of a product's root
        return 1.0 / (ops.sqrt(x + 1.0) * ops.sqrt(x - 1.0))
    return SLOPES[name](x, _power)


for name in SLOPES:
    define_with_slope(name, partial(_slope, name))
define_with_slope("tan", lambda x, out: out * out + 1.0)
define_with_slope("tanh_shrink", lambda x, out: ops.square(ops.tanh(x)))
holds_for_complex("tan", "asin", "acos", "asinh", "acosh", "atanh", "log2", "log10")
define("softshrink", defaults={"threshold": 0.5}, axes=ELEMENTS)
define("hardshrink", defaults={"threshold": 0.5}, axes=ELEMENTS)
define("thresholded_relu", defaults={"threshold": 1.0, "value": 0.0}, axes=ELEMENTS)
define("hardsigmoid", defaults={"slope": 1 / 6, "offset": 0.5}, axes=ELEMENTS)
define("celu", defaults={"alpha": 1.0}, axes=ELEMENTS, tape=by_rules("celu", 0))
define("stanh", defaults={"scale_a": 0.67, "scale_b": 1.7159}, axes=ELEMENTS)
define("hardtanh", defaults={"t_min": -1.0, "t_max": 1.0}, axes=ELEMENTS)
define("increment", defaults={"value": 1.0})
define("heaviside", axes=ELEMENTS)
define("copysign", axes=ELEMENTS, promotes=(0, 1), tape=by_rules("copysign"))
define("nextafter", axes=ELEMENTS, tape=refuse_derivative("nextafter"))
define("atan2", axes=ELEMENTS, promotes=(0, 1))
define("fmax", axes=ELEMENTS, promotes=(0, 1))
define("fmin", axes=ELEMENTS, promotes=(0, 1))
define("remainder", axes=ELEMENTS, promotes=(0, 1))
define("Tensor.__mod__", "x y", axes=ELEMENTS, promotes=(0, 1))
define("floor_divide", differentiable=(), axes=ELEMENTS, promotes=(0, 1))
for name in ("Tensor.__floordiv__", "Tensor.__rfloordiv__"):
    define(name, "x y", axes=ELEMENTS, promotes=(0, 1), differentiable=())
define("lerp", axes=ELEMENTS, tape=by_rules("lerp", 2))


@formula_of("softshrink")
def _softshrink_formula(x: Tensor, threshold: float) -> Tensor:
    t = single(threshold)
    inside = or_nan(x, paddle.zeros_like(x))
    result = ops.where(x > t, x - t, ops.where(x < -t, x + t, inside))
    # Paddle multiplies what it does not choose by zero.
    return ops.where(ops.isinf(x), paddle.full_like(x, math.nan), result)


@reverse_of("softshrink")
def _softshrink_reverse(call: Call) -> list[Any]:
    x, threshold = call.args
    g = call.cotangent
    outside = ops.abs(x) > single(threshold)
    return [ops.where(outside, g, paddle.zeros_like(g)), None]


@reverse_of("hardshrink")
def _hardshrink_reverse(call: Call) -> list[Any]:
    x, threshold = call.args
    g = call.cotangent
    outside = ops.abs(x) >= single(threshold)
    return [ops.where(outside, g, paddle.zeros_like(g)), None]


@formula_of("thresholded_relu")
def _thresholded_relu_formula(x: Tensor, threshold: float, value: float) -> Tensor:
    low = or_nan(x, paddle.full_like(x, single(value)))
    # Paddle multiplies what it does not choose by zero.
    low = ops.where(ops.isinf(x), paddle.full_like(x, math.nan), low)
    return ops.where(x > single(threshold), x, low)


@formula_of("hardsigmoid")
def _hardsigmoid_formula(x: Tensor, slope: float, offset: float) -> Tensor:
    y = x * single(slope) + single(offset)
    one, zero = paddle.ones_like(x), paddle.zeros_like(x)
    return ops.where(y < 1.0, ops.where(y > 0.0, y, zero), or_nan(x, one))


formula_of("celu")(celu)


@formula_of("hardtanh")
def _hardtanh_formula(x: Tensor, t_min: float, t_max: float) -> Tensor:
    low, high = single(t_min), single(t_max)
    above = ops.where(x < high, x, or_nan(x, paddle.full_like(x, high)))
    return ops.where(x <= low, paddle.full_like(x, low), above)


@formula_of("increment")
def _increment_formula(x: Tensor, value: float) -> Tensor:
    return x + single(value)


@reverse_of("heaviside")
def _heaviside_reverse(call: Call) -> list[Any]:
    x = call.args[0]
    g = call.cotangent
    zero = paddle.zeros_like(g)
    at_zero = ops.expand(is_zero(x), g.shape)
    return broadcast_gradients(call, lambda: zero, lambda: ops.where(at_zero, g, zero))


@reverse_of("copysign")
def _copysign_reverse(call: Call) -> list[Any]:
    x, g = call.args[0], call.cotangent
    at_zero = ops.expand(is_zero(x), g.shape)
    zero = paddle.zeros_like(g)
    return broadcast_gradients(
        call,
        lambda: ops.where(at_zero, zero, g * ops.sign(x) * ops.sign(call.out)),
        lambda: zero,
    )


@formula_of("stanh")
def _stanh_formula(x: Tensor, scale_a: float, scale_b: float) -> Tensor:
    return ops.tanh(x * single(scale_a)) * single(scale_b)


@reverse_of("atan2")
def _atan2_reverse(call: Call) -> list[Any]:
    x, y = (in_dtype_of(arg, call.cotangent) for arg in call.args)
    scaled = call.cotangent / (x * x + y * y)
    return broadcast_gradients(call, lambda: scaled * y, lambda: -(scaled * x))


@formula_of("fmax")
def _fmax_formula(x: Tensor, y: Tensor) -> Tensor:
    return _select_number(x, y, x >= y)


@formula_of("fmin")
def _fmin_formula(x: Tensor, y: Tensor) -> Tensor:
    return _select_number(x, y, x <= y)


def _select_number(x: Tensor, y: Tensor, first: Tensor) -> Tensor:
    """Return x where ``first`` holds, else y; where one is NaN, the other."""
    first = ops.logical_or(first, ops.isnan(y))
    shape = first.shape
    return ops.where(first, ops.expand(x, shape), ops.expand(y, shape))


@reverse_of("remainder", "Tensor.__mod__")
def _remainder_reverse(call: Call) -> list[Any]:
    x, y = call.args
    g = call.cotangent
    return broadcast_gradients(call, lambda: g, lambda: -(g * ops.floor(x / y)))


@formula_of("lerp")
def _lerp_formula(x: Tensor, y: Tensor, weight: Any) -> Tensor:
    return x + weight * (y - x)


# Paddle's kernels give NaN where the square of a number is infinite.
tape_of("acosh")(by_rules("acosh", 0))
tape_of("asinh")(by_rules("asinh", 0))
