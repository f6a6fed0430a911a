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
    half_square_term,
    integrated_term,
    linear_series,
    minus,
    product_series,
    product_term,
    second_order_series,
    series_from_slope,
    total,
)
from ..shared import ops
from . import activations  # noqa: F401  # which defines them


def _tanh_series(y0: Tensor, x: Series) -> list[Any]:
    """Return the series of ``y = tanh x``, where ``dy = (1 - y y) dx``."""
    y: list[Any] = [y0]
    half_squares: list[Any] = [None]  # of y y, beyond its value
    slope = 1.0 - ops.square(y0)
    for k in range(1, len(x)):
        direct = None if x[k] is None else x[k] * slope
        y.append(minus(direct, integrated_term(x, half_squares, k, 2.0)))
        if k + 1 < len(x):
            half_squares.append(half_square_term(y, k))
    return y


def _sigmoid_series(y0: Tensor, x: Series) -> list[Any]:
    """Return the series of ``y = sigmoid x``, where ``dy = (y - y y) dx``."""
    slope_of_slope = 1.0 - y0 * 2.0

    def slope(y: list[Any]) -> Any:
        k = len(y) - 1
        if k == 0:
            return y0 - y0 * y0
        direct = None if y[k] is None else y[k] * slope_of_slope
        half_square = half_square_term([None, *y[1:k], None], k)
        return minus(direct, half_square if half_square is None else half_square * 2.0)

    return series_from_slope(y0, x, slope)


def _exp_series(y0: Tensor, x: Series) -> list[Any]:
    """Return the series of ``y = c exp x``, where ``dy = y dx``."""
    return series_from_slope(y0, x, lambda y: y[-1])


def _with_linear_tail(
    x: Tensor, bound: float, slope: float, below: Series
) -> list[Any]:
    """Return the series with a constant slope above a bound, and ``below`` under it."""
    series = []
    for k, term in enumerate(below):
        constant = paddle.full_like(x, slope if k == 0 else 0.0)
        series.append(None if term is None else ops.where(x > bound, constant, term))
    return series


def _integrated_series(y0: Tensor, x: Series, slope: Series) -> list[Any]:
    """Return the series of y, where ``dy = s dx``, from the series of s."""
    return series_from_slope(y0, x, lambda y: slope[len(y) - 1])


@jet_of("tanh")
def _tanh_jet(call: JetCall) -> list[Any]:
    return [_tanh_series(call.out, call.args[0])]


@jet_of("sigmoid")
def _sigmoid_jet(call: JetCall) -> list[Any]:
    return [_sigmoid_series(call.out, call.args[0])]


@jet_of("exp")
def _exp_jet(call: JetCall) -> list[Any]:
    return [_exp_series(call.out, call.args[0])]


def _sine_jet_rule(
    derivative: Callable[[Tensor], Tensor], sign: int
) -> Callable[..., Any]:
    """Return a rule for the series of sine or cosine.

    ``dy = sign z dx`` and ``dz = -sign y dx``, where z is the other of the two.
    """

    def jet(call: JetCall) -> list[Any]:
        x = call.args[0]
        z: list[Any] = [derivative(x[0])]

        def slope(y: list[Any]) -> Any:
            k = len(y) - 1
            if k > 0:
                integral = integrated_term(x, y, k)
                z.append(integral if sign < 0 else minus(None, integral))
            return z[k] if sign > 0 else minus(None, z[k])

        return [series_from_slope(call.out, x, slope)]

    return jet


jet_of("sin")(_sine_jet_rule(lambda x: ops.cos(x), 1))
jet_of("cos")(_sine_jet_rule(lambda x: ops.sin(x), -1))


@jet_of("silu", "swish")
def _silu_jet(call: JetCall) -> list[Any]:
    x, out = call.args[0], call.out
    gate = ops.sigmoid(x[0])
    if call.order <= 2:
        complement = 1.0 - gate
        slope = gate + out * complement
        return [
            second_order_series(
                out, x, slope, gate * complement * (x[0] * 0.5 + 1.0 - out)
            )
        ]
    _, *higher = product_series(x, _sigmoid_series(gate, x))
    return [[out, *higher]]


@jet_of("gelu")
def _gelu_jet(call: JetCall) -> list[Any]:
    x, approximate = call.args
    if approximate:  # x / 2 (1 + tanh(a x + b x³))
        a = math.sqrt(2 / math.pi)
        cube = product_series(product_series(x, x), x)
        inner = [
            total(
                term * factor
                for term, factor in zip(pair, (a, 0.044715 * a), strict=True)
                if term is not None
            )
            for pair in zip(x, cube, strict=True)
        ]
        gate = _tanh_series(ops.tanh(inner[0]), inner)
        gate = [gate[0] * 0.5 + 0.5, *linear_series(lambda t: t * 0.5, gate[1:])]
    else:  # x times the normal distribution, whose density p has dp = -x p dx
        value = x[0]
        square = ops.square(value)
        pdf = ops.exp(square * -0.5) * (1 / math.sqrt(2 * math.pi))
        cdf = ops.erf(value * math.sqrt(0.5)) * 0.5 + 0.5
        if call.order <= 2:
            half_bend = pdf - pdf * value * value * 0.5  # 0 where the square is not
            return [second_order_series(call.out, x, cdf + value * pdf, half_bend)]
        density = series_from_slope(
            pdf, x, lambda p: minus(None, product_term(x, p, len(p) - 1))
        )
        gate = _integrated_series(cdf, x, density)
    _, *higher = product_series(x, gate)
    return [[call.out, *higher]]


@jet_of("softplus")
def _softplus_jet(call: JetCall) -> list[Any]:
    x, beta, threshold = call.args
    scaled = linear_series(lambda term: term * beta, x)
    slope = _sigmoid_series(ops.sigmoid(scaled[0]), scaled)
    return [
        _integrated_series(
            call.out, x, _with_linear_tail(scaled[0], threshold, 1.0, slope)
        )
    ]


@jet_of("elu")
def _elu_jet(call: JetCall) -> list[Any]:
    x, alpha = call.args
    return [_elu_series(call.out, x, 1.0, single(alpha))]


@jet_of("selu")
def _selu_jet(call: JetCall) -> list[Any]:
    x, scale, alpha = call.args
    height = single(scale) * single(alpha)
    return [_elu_series(call.out, x, single(scale), height)]


def _elu_series(
    y0: Tensor, x: Series, positive_slope: float, negative_scale: float
) -> list[Any]:
    """Return the series of a multiple of x for positive x, else of ``exp x - 1``."""
    growth = (
        ops.exp(ops.where(x[0] > 0, paddle.zeros_like(x[0]), x[0])) * negative_scale
    )
    return _integrated_series(
        y0, x, _with_linear_tail(x[0], 0.0, positive_slope, _exp_series(growth, x))
    )
