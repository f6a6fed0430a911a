"""Special functions: of Bessel, gamma, error, and their kin."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.dtypes import single
from ....paddle_side.rules.derivatives.formulas import by_rules, refuse_derivative
from ..axes import ELEMENTS
from ..calls import Call
from ..entry import define, reverse_of, tape_of
from ..shared import broadcast_gradients, ops
from .elementary import define_with_slope

ROOT_PI = math.sqrt(math.pi)

SLOPES: dict[str, Callable[[Any, Any], Any]] = {
    "lgamma": lambda x, out: ops.digamma(x),
    "gammaln": lambda x, out: ops.digamma(x),
    "digamma": lambda x, out: ops.polygamma(x, 1),
    "erfinv": lambda x, out: ops.exp(out * out) * (ROOT_PI / 2),
    "i0": lambda x, out: x * _ratio(x),
    "i1": lambda x, out: ops.i0(x) - _ratio(x),
    "i0e": lambda x, out: _smooth_i1e(x) - ops.sign(x) * out,
    "i1e": lambda x, out: ops.i0e(x) - _scaled_ratio(x) - ops.sign(x) * _smooth_i1e(x),
}
"""Derivatives, from the argument and the result."""


for name, slope in SLOPES.items():
    define_with_slope(name, slope)
# Paddle's kernel is wrong for negative numbers in float32.
tape_of("digamma")(by_rules("digamma", 0))
define("polygamma", differentiable=(0,), axes=ELEMENTS)
define(
    "gammaincc",
    differentiable=(1,),
    axes=ELEMENTS,
    tape=refuse_derivative("gammaincc", 0),
)
define("logit", differentiable=(0,), axes=ELEMENTS)


_TERMS = [
    0.5 ** (2 * k + 1) / math.factorial(k) / math.factorial(k + 1) for k in range(13)
]


def _series(x: Tensor) -> Tensor:
    """Return ``i1(x) / x`` for values below one."""
    square = x * x
    result: Any = square * _TERMS[-1] + _TERMS[-2]
    for term in _TERMS[-3::-1]:
        result = result * square + term
    return result


def _split_at_one(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mask of ``abs(x) < 1``, and x with ones outside and inside of it."""
    small, one = ops.abs(x) < 1.0, paddle.ones_like(x)
    return small, ops.where(small, x, one), ops.where(small, one, x)


def _ratio(x: Tensor) -> Tensor:
    """Return ``i1(x) / x``. Paddle has no value of it at zero."""
    small, near, far = _split_at_one(x)
    return ops.where(small, _series(near), ops.i1(far) / far)


def _scaled_ratio(x: Tensor) -> Tensor:
    """Return ``i1e(x) / x``."""
    small, near, far = _split_at_one(x)
    scaled = _series(near) * ops.exp(-ops.abs(near))
    return ops.where(small, scaled, ops.i1e(far) / far)


def _smooth_i1e(x: Tensor) -> Tensor:
    """Return ``i1e(x)``. Paddle's has no value at zero."""
    small, near, far = _split_at_one(x)
    scaled = near * _series(near) * ops.exp(-ops.abs(near))
    return ops.where(small, scaled, ops.i1e(far))


@reverse_of("polygamma")
def _polygamma_reverse(call: Call) -> list[Any]:
    x, n = call.args
    return [call.cotangent * ops.polygamma(x, n + 1), None]


@reverse_of("gammaincc")
def _gammaincc_reverse(call: Call) -> list[Any]:
    x, y = call.args
    density = ops.exp((x - 1.0) * ops.log(y) - y - ops.lgamma(x))
    return broadcast_gradients(call, None, lambda: -(call.cotangent * density))


@reverse_of("logit")
def _logit_reverse(call: Call) -> list[Any]:
    x, eps = call.args
    lower_bound = single(eps or 0.0)
    outside = ops.logical_or(x < lower_bound, x > 1.0 - lower_bound)
    safe = ops.where(outside, paddle.full_like(x, 0.5), x)
    beyond = paddle.full_like(x, 0.0 if eps else math.nan)
    slope = ops.where(outside, beyond, ops.reciprocal(safe * (1.0 - safe)))
    return [call.cotangent * slope, None]


tape_of("i0e")(by_rules("i0e", 0))
