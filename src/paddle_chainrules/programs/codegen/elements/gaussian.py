"""The error function and the normal distribution, as instructions of LLVM.

We compute in float64, as in :mod:`.exponentials`. The polynomials are near-minimax at
Chebyshev's nodes, with errors below 2^-32 and 2^-56. Gelu of float32 is computed in
float32, with as many numbers in a vector again.
"""

from __future__ import annotations

import math

from .exponentials import (
    clamp,
    exp,
    exp_of_reduced_narrow,
    exp_with_error,
    reduce_argument_narrow,
    sigmoid,
    times_sigmoid,
)
from .number import ElementValue, Polynomial

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

TAIL = Polynomial(
    (
        *(0.7552851304017493, -0.6078966419000181, 0.38713740212511266),
        *(-0.18652186501589324, 0.0603965518846812, -0.007540075032642577),
        *(-0.0034795434670901763, 0.001630122348072417, 0.00013286057373301482),
        *(-0.00022904168117036586, -1.026469766314323e-06, 3.195568486786702e-05),
        *(-2.3484112283477108e-07, -3.3142634591742053e-06),
    ),
    (
        *(0.7552851304157515, -0.6078966419718923, 0.38713740074221453),
        *(-0.18652185795963533, 0.06039657489093607, -0.007540188967419565),
        *(-0.0034796923673884156, 0.0016308184678064444, 0.00013334431270030784),
        *(-0.00023109501999200649, -1.908265085342679e-06, 3.5145122560125815e-05),
        *(7.167263978705018e-07, -5.921638801978817e-06, -6.29997426516423e-07),
        *(1.0248325060946334e-06, 2.727176083262398e-07, -1.5982676610438793e-07),
        *(-8.713294621467642e-08, 1.788187240950426e-08, 2.16044268427215e-08),
        *(-6.021003727954924e-10, -3.798041859957897e-09, -1.1742107539240973e-10),
        3.515692426681721e-10,
    ),
)
"""``(x + 4) exp(x**2 / 2) q(x)`` of ``(x - 4) / (x + 4)``, where x is positive and q is
the normal distribution's share beyond.

After Shepherd and Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x in
0 <= x < infinity", 1981, with another factor.
"""

TAIL_NARROW = (
    *(0.7066566599048514, -0.4336920122916765, 0.13198697878709495),
    *(0.009235875741763822, -0.01638618549682781, -0.001600830057020355),
    *(0.0025239327701736293, 0.0006844127548144687, -0.0003116228953994672),
    -0.0001577023908678052,
)
"""The same with 2.5 for 4, where x is at most 15; its error is below 2^-25.9.

Near 0 the rounding error of its argument matters less than with 4.
"""

FIRST_COEFFICIENT_ERROR = -2.2175033409973908e-17
"""The rounding error of the first coefficient of ``TAIL``."""

SCALE = 2.0**-64
"""A scale for small values until the end, so that they are not rounded twice."""


def erf(x: ElementValue) -> ElementValue:
    """Return the error function."""
    near = x * (x * x).polynomial(ERF)
    y = abs(x)
    y = (y > 7).where(7, y)
    numerator, denominator, *_ = _tail_fraction(y * math.sqrt(2))
    far = 1 - exp(-(y * y)) * numerator / denominator * 2
    return (abs(x) < 1).where(near, far).copysign(x)


def _tail_fraction(
    x: ElementValue,
) -> tuple[ElementValue, ElementValue, ElementValue, ElementValue]:
    """Return two numbers whose ratio is ``exp(x**2 / 2) q(x)``.

    Also return the rounding error of the first, and the polynomials' argument.
    """
    denominator = x + 4
    t = (x - 4) / denominator
    constant_term, *rest = TAIL[not x.is_single]
    polynomial_part, error = t.two_product(t.polynomial(rest))
    numerator = polynomial_part + constant_term
    return (
        numerator,
        denominator,
        error
        + FIRST_COEFFICIENT_ERROR
        + (polynomial_part - (numerator - constant_term)),
        t,
    )


def _scaled_bell(x: ElementValue) -> tuple[ElementValue, ElementValue]:
    """Return ``exp(-x**2 / 2)`` over the scale, and its rounding error."""
    square, error = x.two_square()
    return exp_with_error(square * -0.5, error * -0.5, exponent_shift=-64)


def _scaled_bell_narrow(y: ElementValue) -> ElementValue:
    """Return ``exp(-y**2 / 2)`` over the scale, in float32, of y from 0 to 15.

    The upper half of y has an exact square. What it leaves out of the square of y is
    added to the reduced exponent.
    """
    high = (y.bits() & ~0xFFF).bits()
    _, k, r = reduce_argument_narrow(high * high * -0.5)
    r = ((y - high) * -0.5).fma(y + high, r)
    return exp_of_reduced_narrow(k + 64, r)


def _tail_polynomial_narrow(t: ElementValue) -> ElementValue:
    """Evaluate a polynomial as two of the square, to shorten dependence chains."""
    square = t * t
    odd = square.polynomial(TAIL_NARROW[1::2])
    return odd.fma(t, square.polynomial(TAIL_NARROW[0::2]))


def gelu_narrow(x: ElementValue) -> ElementValue:
    """Return :func:`gelu` in float32, at most 4 ulp off."""
    y = abs(x)
    y = (y > 15).where(15, y)
    ratio = y / (y + 2.5)
    result = _scaled_bell_narrow(y) * _tail_polynomial_narrow(ratio.fma(2, -1)) * ratio
    result = result.fma(-SCALE, (x > 0).where(x, 0.0))
    return (x > float("-inf")).where(result, float("nan"))  # as Paddle has it


def gelu_slope_narrow(x: ElementValue) -> ElementValue:
    """Return :func:`gelu_slope` in float32."""
    x = clamp(x, -15, 15)
    y = abs(x)
    bell, reciprocal = _scaled_bell_narrow(y) * SCALE, 1 / (y + 2.5)
    beyond = bell * _tail_polynomial_narrow(reciprocal.fma(-5, 1)) * reciprocal
    beyond = (x < 0).where(beyond, 1 - beyond)
    return x.fma(bell * (1 / math.sqrt(2 * math.pi)), beyond)


def gelu(x: ElementValue) -> ElementValue:
    """Return x times the normal distribution's share below x.

    That is the positive part of x less ``|x| q(|x|)``. The rounding errors of this
    product's numerator and denominator are divided by nearly the denominator.
    """
    y = abs(x)
    y = (y > 40).where(40, y)
    numerator, denominator, numerator_error, t = _tail_fraction(y)
    bell, bell_error = _scaled_bell(y)
    weighted_bell, weighted_error = y.two_product(bell)
    product, error = weighted_bell.two_product(numerator)
    result = product / denominator
    if not x.is_single:
        error = y.fma(bell_error, weighted_error).fma(numerator, error)
        error = weighted_bell.fma(numerator_error, error) - result * (
            y - (denominator - 4)
        )
        result = result + error * ((1 - t) * 0.125)
    result = (x > 0).where(x, 0.0) - result * SCALE
    if not x.is_single:  # near 0 the fraction is the difference of larger numbers
        share = (x * (x * x * 0.5).polynomial(ERF)).fma(math.sqrt(0.125), 0.5)
        result = (y < 0.5).where(x * share, result)
    return (x > float("-inf")).where(result, float("nan"))  # as Paddle has it


def gelu_slope(x: ElementValue) -> ElementValue:
    """Return the derivative of :func:`gelu`."""
    x = clamp(x, -40, 40)
    numerator, denominator, *_ = _tail_fraction(abs(x))
    bell = _scaled_bell(abs(x))[0] * SCALE
    beyond = bell * numerator / denominator
    return (x < 0).where(beyond, 1 - beyond) + x * (bell * (1 / math.sqrt(2 * math.pi)))


A, A_LOW = 1.5957691216057308, -9.96930880911092e-17
B, B_LOW = 0.07135481627260025, -6.175149918155315e-19
"""Two constants, ``2 sqrt(2 / pi)`` and 0.044715 times that, and their errors."""


def gelu_tanh(x: ElementValue) -> ElementValue:
    """Return ``x / (1 + exp(-x (A + B x**2)))``, which has tanh instead of erf."""
    y = abs(x)
    y = (y > 800).where(800, y)
    square, square_error = y.two_square()
    product, correction = square.two_product(B)
    total = product + A
    rounded_product = total - product
    correction = correction + square_error * B + square * B_LOW + A_LOW
    correction = correction + (
        (product - (total - rounded_product)) + (A - rounded_product)
    )
    exponent, low = total.two_product(y)
    return times_sigmoid(x, exponent, low + y * correction)


def gelu_tanh_slope(x: ElementValue) -> ElementValue:
    """Return the derivative of :func:`gelu_tanh`."""
    x = clamp(x, -40, 40)
    z = x * x
    y = x * z.fma(B, A)
    share = sigmoid(y)
    return share + x * share * sigmoid(-y) * z.fma(3 * B, A)
