"""Taylor series of activations, by the differential equations that they solve."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.dtypes import single
from ..calls import JetCall, Series
from ..entry import jet_of
from ..series import (
    by_slope,
    half_square_term,
    linear_series,
    minus,
    product_series,
    product_term,
    rise,
    second_order,
    total,
)
from ..shared import ops
from . import activations  # noqa: F401  # which defines them


def _rising(y0: Tensor, x: Series) -> list[Any]:
    """Return the series of ``y = tanh x``, where ``dy = (1 - y y) dx``."""
    y: list[Any] = [y0]
    halves: list[Any] = [None]  # of y y, beyond its value
    slope = 1.0 - ops.square(y0)
    for k in range(1, len(x)):
        direct = None if x[k] is None else x[k] * slope
        y.append(minus(direct, rise(x, halves, k, 2.0)))
        if k + 1 < len(x):
            halves.append(half_square_term(y, k))
    return y


def _logistic(y0: Tensor, x: Series) -> list[Any]:
    """Return the series of ``y = sigmoid x``, where ``dy = (y - y y) dx``."""
    rest = 1.0 - y0 * 2.0

    def slope(y: list[Any]) -> Any:
        k = len(y) - 1
        if k == 0:
            return y0 - y0 * y0
        direct = None if y[k] is None else y[k] * rest
        inner = half_square_term([None, *y[1:k], None], k)
        return minus(direct, inner if inner is None else inner * 2.0)

    return by_slope(y0, x, slope)


def _growing(y0: Tensor, x: Series) -> list[Any]:
    """Return the series of ``y = c exp x``, where ``dy = y dx``."""
    return by_slope(y0, x, lambda y: y[-1])


def _above(x: Tensor, bound: float, slope: float, below: Series) -> list[Any]:
    """Return the series with a constant slope above a bound, and ``below`` under it."""
    results = []
    for k, part in enumerate(below):
        constant = paddle.full_like(x, slope if k == 0 else 0.0)
        results.append(None if part is None else ops.where(x > bound, constant, part))
    return results


def _of_slope(y0: Tensor, x: Series, slope: Series) -> list[Any]:
    """Return the series of y, where ``dy = s dx``, from the series of s."""
    return by_slope(y0, x, lambda y: slope[len(y) - 1])


@jet_of("tanh")
def _tanh_jet(call: JetCall) -> list[Any]:
    return [_rising(call.out, call.args[0])]


@jet_of("sigmoid")
def _sigmoid_jet(call: JetCall) -> list[Any]:
    return [_logistic(call.out, call.args[0])]


@jet_of("exp")
def _exp_jet(call: JetCall) -> list[Any]:
    return [_growing(call.out, call.args[0])]


def _turning(other: Callable[[Tensor], Tensor], sign: int) -> Callable[..., Any]:
    """Return a rule for the series of sine or cosine.

    ``dy = sign z dx`` and ``dz = -sign y dx``, where z is the other of the two.
    """

    def jet(call: JetCall) -> list[Any]:
        x = call.args[0]
        z: list[Any] = [other(x[0])]

        def slope(y: list[Any]) -> Any:
            k = len(y) - 1
            if k > 0:
                up = rise(x, y, k)
                z.append(up if sign < 0 else minus(None, up))
            return z[k] if sign > 0 else minus(None, z[k])

        return [by_slope(call.out, x, slope)]

    return jet


jet_of("sin")(_turning(lambda x: ops.cos(x), 1))
jet_of("cos")(_turning(lambda x: ops.sin(x), -1))


@jet_of("silu", "swish")
def _silu_jet(call: JetCall) -> list[Any]:
    x, out = call.args[0], call.out
    share = ops.sigmoid(x[0])
    if call.order <= 2:
        rest = 1.0 - share
        slope = share + out * rest
        return [second_order(out, x, slope, share * rest * (x[0] * 0.5 + 1.0 - out))]
    _, *parts = product_series(x, _logistic(share, x))
    return [[out, *parts]]


@jet_of("gelu")
def _gelu_jet(call: JetCall) -> list[Any]:
    x, approximate = call.args
    if approximate:  # x / 2 (1 + tanh(a x + b x³))
        a = math.sqrt(2 / math.pi)
        cube = product_series(product_series(x, x), x)
        inner = [
            total(
                part * factor
                for part, factor in zip(pair, (a, 0.044715 * a), strict=True)
                if part is not None
            )
            for pair in zip(x, cube, strict=True)
        ]
        share = _rising(ops.tanh(inner[0]), inner)
        share = [share[0] * 0.5 + 0.5, *linear_series(lambda t: t * 0.5, share[1:])]
    else:  # x times the normal distribution, whose density p has dp = -x p dx
        value = x[0]
        square = ops.square(value)
        top = ops.exp(square * -0.5) * (1 / math.sqrt(2 * math.pi))
        below = ops.erf(value * math.sqrt(0.5)) * 0.5 + 0.5
        if call.order <= 2:
            half_bend = top - top * value * value * 0.5  # 0 where the square is not
            return [second_order(call.out, x, below + value * top, half_bend)]
        density = by_slope(
            top, x, lambda p: minus(None, product_term(x, p, len(p) - 1))
        )
        share = _of_slope(below, x, density)
    _, *parts = product_series(x, share)
    return [[call.out, *parts]]


@jet_of("softplus")
def _softplus_jet(call: JetCall) -> list[Any]:
    x, beta, threshold = call.args
    scaled = linear_series(lambda part: part * beta, x)
    slope = _logistic(ops.sigmoid(scaled[0]), scaled)
    return [_of_slope(call.out, x, _above(scaled[0], threshold, 1.0, slope))]


@jet_of("elu")
def _elu_jet(call: JetCall) -> list[Any]:
    x, alpha = call.args
    return [_of_exponential(call.out, x, 1.0, single(alpha))]


@jet_of("selu")
def _selu_jet(call: JetCall) -> list[Any]:
    x, scale, alpha = call.args
    height = single(scale) * single(alpha)
    return [_of_exponential(call.out, x, single(scale), height)]


def _of_exponential(y0: Tensor, x: Series, above: float, below: float) -> list[Any]:
    """Return the series of ``above x`` for positive x, else ``below (exp x - 1)``."""
    low = ops.exp(ops.where(x[0] > 0, paddle.zeros_like(x[0]), x[0])) * below
    return _of_slope(y0, x, _above(x[0], 0.0, above, _growing(low, x)))
