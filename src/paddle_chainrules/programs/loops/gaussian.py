"""The error function and the normal distribution, as instructions of LLVM.

Computed in float64, as :mod:`.exponentials` are; the polynomials are of near-minimax
error, by Chebyshev's nodes, with errors below 2^-31 and 2^-54.
"""

from __future__ import annotations

import math

from .exponentials import exp, gated, sigmoid
from .number import Number, Polynomial

ERF = Polynomial(
    (
        *(1.1283791670615435, -0.3761263846802871, 0.11283782495236845),
        *(-0.026865430727670243, 0.005221031807858023, -0.0008484080405535107),
        *(0.00011265959025606609, -9.667044571486996e-06),
    ),
    (
        *(1.1283791670955126, -0.37612638903183543, 0.11283791670945006),
        *(-0.02686617064323777, 0.0052239776071164225, -0.0008548325975389692),
        *(0.00012055294904839707, -1.492473690741966e-05, 1.6447424703317362e-06),
        *(-1.6208483801871705e-07, 1.3720064546777686e-08, -7.795898827002142e-10),
    ),
)
"""``erf(x) / x`` of ``x**2``, where x is at most 1."""

SCALED = Polynomial(
    (
        *(1.253008058251719, -0.13562110588976525, -0.0475622925783465),
        *(0.12964513564845567, -0.11927369264668239, 0.06830839969281499),
        *(-0.02377032914854471, 0.0025271155205983213, 0.0018881023957935195),
        *(-0.000773109938915649, -0.00010412154102442731, 0.00011462995701111817),
        *(3.858826870501334e-06, -1.1481641468961008e-05),
    ),
    (
        *(1.2530080582697296, -0.13562110612458117, -0.04756229435345087),
        *(0.1296451587027606, -0.11927366341530699, 0.06830802734397848),
        *(-0.023770514918645888, 0.002529391816066239, 0.0018886903591561553),
        *(-0.0007798322721083991, -0.00010515979981501177, 0.00012509935235563107),
        *(4.949484992570595e-06, -2.0100567931289227e-05, -7.315105164159062e-07),
        *(3.472414602875686e-06, 3.5683839153992204e-07, -6.166496077604353e-07),
        *(-1.4160064940265987e-07, 1.0187000600072885e-07, 4.180784698845582e-08),
        *(-1.3326364813003834e-08, -8.500397929772615e-09, 9.885798831139365e-10),
        8.864219016427092e-10,
    ),
)
"""``(1 + 2 x) exp(x**2) erfc(x)`` of ``(x - 3) / (x + 3)``, where x is positive.

Source: Shepherd and Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x
in 0 <= x < infinity", 1981, which has the form, with another constant than 3.
"""


def erf(x: Number) -> Number:
    """The error function."""
    near = x * (x * x).polynomial(ERF)
    y = abs(x)
    y = (y > 7).where(7, y)
    far = 1 - exp(-(y * y)) * _scaled(y)
    return (abs(x) < 1).where(near, far.copysign(x))


def _scaled(x: Number) -> Number:
    """``exp(x**2) erfc(x)`` of what is positive."""
    return ((x - 3) / (x + 3)).polynomial(SCALED) / x.fma(2, 1.0)


def normal_tail(x: Number) -> tuple[Number, Number]:
    """Of the normal distribution the share beyond, and its density at, what is positive.

    Both times ``2**64``.
    """
    x = (x > 40).where(40, x)
    square, lost = x.square()
    e = exp(square * -0.5, lost * -0.5, less=-64)
    return e * _scaled(x * math.sqrt(0.5)) * 0.5, e * (1 / math.sqrt(2 * math.pi))


SCALE = 2.0**-64


def gelu(x: Number) -> Number:
    """x times the normal distribution's share below x."""
    tail, _ = normal_tail(abs(x))
    y = (abs(x) > 40).where(40, abs(x))
    found = (x > 0).where(x, 0.0) - tail * y * SCALE
    return (x > float("-inf")).where(found, float("nan"))  # as Paddle has it


def gelu_slope(x: Number) -> Number:
    """The derivative of :func:`gelu`."""
    tail, density = (part * SCALE for part in normal_tail(abs(x)))
    return (x < 0).where(tail, 1 - tail) + x * density


A, A_LOW = 1.5957691216057308, -9.96930880911092e-17
B, B_LOW = 0.07135481627260025, -6.175149918155315e-19
"""``2 sqrt(2 / pi)``, and that times 0.044715, and what their rounding left out."""


def gelu_tanh(x: Number) -> Number:
    """``x / (1 + exp(-x (A + B x**2)))``, which has tanh instead of erf."""
    y = abs(x)
    y = (y > 800).where(800, y)
    square, lost = y.square()
    product, rest = square.times(B)
    total = product + A
    part = total - product
    rest = rest + lost * B + square * B_LOW + A_LOW
    rest = rest + ((product - (total - part)) + (A - part))
    exponent, low = total.times(y)
    return gated(x, exponent, low + y * rest)


def gelu_tanh_slope(x: Number) -> Number:
    """The derivative of :func:`gelu_tanh`."""
    z = x * x
    share = sigmoid(x * z.fma(B, A))
    return share + x * share * (1 - share) * z.fma(3 * B, A)
