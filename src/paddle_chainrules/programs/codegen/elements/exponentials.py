"""Exponentials, logarithms and functions made of them, as instructions of LLVM.

We compute them in float64, for float32 with shorter polynomials, and round at the end.
The polynomials are near-minimax at Chebyshev's nodes, computed with 60 digits and
rounded. Their errors, relative to the function, are below 2^-31 and 2^-55. Functions
named narrow compute in float32, with twice as many numbers in a vector.
"""

from __future__ import annotations

from .number import ElementValue, Polynomial

LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
"""The first 33 bits of ln 2, so that products with exponents are exact; the rest."""

LN2_SHORT, LN2_REST = 0.693359375, -2.12194440054690582e-4
"""The first 9 bits of ln 2, for the same in float32; the rest."""

EXP = Polynomial(
    (
        *(0.500000001353873, 0.16666666681704215, 0.04166646419740569),
        *(0.008333310844647862, 0.0013933730715792083, 0.00019891080463998843),
    ),
    (
        *(0.5000000000000001, 0.16666666666666669, 0.041666666666623824),
        *(0.008333333333330039, 0.0013888888917367081, 0.00019841269863171557),
        *(2.4801521057868204e-05, 2.7557268276905696e-06, 2.7620201591031547e-07),
        2.5100472505694996e-08,
    ),
)
"""``(exp(r) - 1 - r) / r**2`` where r is at most ln(2) / 2."""

EXP_NARROW = (
    *(0.49999999551680346, 0.16666577189730772, 0.041666853752769094),
    *(0.00836316212232027, 0.0013901282887832983),
)
"""The same for float32, to which these make the exponential 2^-26 off."""

LOG = Polynomial(
    (
        *(0.6666666655404201, 0.4000012221181065, 0.28550778633191964),
        0.23331614471843498,
    ),
    (
        *(0.666666666666667, 0.3999999999989889, 0.28571428626253836),
        *(0.22222211089379496, 0.1818289243253687, 0.15331611722055008),
        0.14617807153417325,
    ),
)
"""``(2 atanh(s) - 2 s) / s**3`` of ``s**2``, where ``(1 + s) / (1 - s)`` is from
1/sqrt(2) to sqrt(2)."""

TANH = (
    *(-0.3333333333333333, 0.13333333333332392, -0.0539682539670594),
    *(0.021869488476962563, -0.008863234021529514, 0.003592105532132769),
    *(-0.0014556239774192678, 0.0005887537111834804, -0.00023410556936672797),
    *(8.426522203958066e-05, -2.0026740085317684e-05),
)
"""``(tanh(x) - x) / x**3`` of ``x**2``, where x is at most 9/16."""

SINH = Polynomial(
    (
        *(0.16666666646842135, 0.00833333967591706, 0.00019838101968683888),
        2.8062802582276946e-06,
    ),
    (
        *(0.16666666666666666, 0.008333333333333299, 0.00019841269841324198),
        *(2.7557319191381816e-06, 2.5052117695907823e-08, 1.6057679623801638e-10),
        7.746178593018827e-13,
    ),
)
"""``(sinh(x) - x) / x**3`` of ``x**2``, where x is at most 1."""

EIGEN_TANH = (
    (
        *(4.89352455891786e-03, 6.37261928875436e-04, 1.48572235717979e-05),
        *(5.12229709037114e-08, -8.60467152213735e-11, 2.00018790482477e-13),
        -2.76076847742355e-16,
    ),
    (
        *(4.89352518554385e-03, 2.26843463243900e-03, 1.18534705686654e-04),
        1.19825839466702e-06,
    ),
    7.90531110763549805,
)
"""Eigen's tanh in float32, odd over even, and where it is constant.

Source: Eigen 3.3, ``MathFunctionsImpl.h``.
"""


def clamp(x: ElementValue, low: float, high: float) -> ElementValue:
    """Return the nearest number between two bounds; NaN stays."""
    x = (x < low).where(low, x)
    return (x > high).where(high, x)


def exp(x: ElementValue, exponent_shift: int = 0) -> ElementValue:
    """Return the exponential, divided by 2 to the power of ``exponent_shift``."""
    result, _ = exp_with_error(x, exponent_shift=exponent_shift)
    return result


def exp_with_error(
    x: ElementValue, low: ElementValue | None = None, exponent_shift: int = 0
) -> tuple[ElementValue, ElementValue]:
    """Return the exponential and its rounding error.

    Args:
        low: a small correction that is added to x.
        exponent_shift: both are divided by 2 to this power, to avoid overflow.
    """
    x = clamp(x, *((-700, 160) if x.is_single else (-760, 720)))
    _, k, r, error = _reduce_argument(x)
    square, q = r * r, r.polynomial(EXP)
    if x.is_single:
        scale = (k - exponent_shift).power_of_two()
        return (square.fma(q, r) + 1) * scale, x.constant(0)
    if low is not None:  # by which the exponential itself is multiplied
        error = error + low * (square.fma(q, r) + 1)
    minus_one = square.fma(q, error) + r
    result = minus_one + 1
    half = k >> 1
    low_scale, high_scale = (
        half.power_of_two(),
        (k - half - exponent_shift).power_of_two(),
    )
    return result * low_scale * high_scale, (
        minus_one - (result - 1)
    ) * low_scale * high_scale


def _reduce_argument(
    x: ElementValue,
) -> tuple[ElementValue, ElementValue, ElementValue, ElementValue]:
    """Return ``n``, also as an integer, ``r`` and its error: ``x = n ln(2) + r``."""
    n, k = (x * LOG2_E).round_to_integer()
    first = (-n).fma(LN2_HIGH, x)
    r = (-n).fma(LN2_LOW, first)
    return n, k, r, (-n).fma(LN2_LOW, first - r)


def reduce_argument_narrow(
    x: ElementValue,
) -> tuple[ElementValue, ElementValue, ElementValue]:
    """Return ``n``, also as an integer, and ``r`` in float32: ``x = n ln(2) + r``."""
    n, k = (x * LOG2_E).round_to_integer()
    return n, k, (-n).fma(LN2_REST, (-n).fma(LN2_SHORT, x))


def exp_of_reduced_narrow(k: ElementValue, r: ElementValue) -> ElementValue:
    """Return ``exp(r)`` times 2 to the power of k in float32."""
    return ((r * r).fma(r.polynomial(EXP_NARROW), r) + 1) * k.power_of_two()


def expm1(x: ElementValue) -> ElementValue:
    """Return ``exp(x) - 1``."""
    _, k, r, _ = _reduce_argument(clamp(x, -40, 160 if x.is_single else 709.8))
    half = (k - 1).power_of_two()
    square = r * r * r.polynomial(EXP)
    result = (half.fma(r, half - 0.5) + square * half) * 2
    return (abs(x) < 2.0**-54).where(x, result)


def log(x: ElementValue) -> ElementValue:
    """Return the natural logarithm."""
    tiny = x < 2.0**-1022
    n, f = _exponent_and_fraction(tiny.where(x * 2.0**54, x))
    result = _log(tiny.where(n - 54, n), f)
    return _with_edges(x, x, result)


def log1p(x: ElementValue) -> ElementValue:
    """Return ``log(1 + x)``."""
    result = _with_edges(x, x + 1, _log1p(x))
    return (abs(x) < 2.0**-54).where(x, result)


def _log1p(x: ElementValue) -> ElementValue:
    """Return the same between -1 and infinity, and any number elsewhere."""
    u = x + 1
    n, f = _exponent_and_fraction(u)
    is_near = n.is_zero()
    f = is_near.where(x, f)
    if x.is_single:
        return _log(n, f)
    error = (x > 1).where(1 - (u - x), x - (u - 1)) / u
    return _log(n, f, is_near.where(0.0, error))


def _with_edges(x: ElementValue, u: ElementValue, result: ElementValue) -> ElementValue:
    """Return the logarithm of u: ``result``, where u is positive and finite."""
    is_regular = (u > 0) & (u < float("inf"))
    invalid = (u < 0).where(float("nan"), x)
    return is_regular.where(result, u.is_zero().where(float("-inf"), invalid))


def _exponent_and_fraction(x: ElementValue) -> tuple[ElementValue, ElementValue]:
    """Return ``n`` and ``f`` of ``2**n (1 + f)``.

    ``1 + f`` is from 1/sqrt(2) to sqrt(2).
    """
    bits, root = x.bits(), x.constant(2.0**-0.5).bits()
    n = (bits - root) >> 52
    shift = x.constant(1.5 * 2.0**52)  # beside which an integer is a number
    return (n + shift.bits()).bits() - shift, (bits - (n << 52)).bits() - 1


def _log(
    n: ElementValue, f: ElementValue, low: ElementValue | None = None
) -> ElementValue:
    """Return ``n ln(2) + log(1 + f) + low``.

    After Sun's fdlibm, ``log(1 + f) = f - f**2 / 2 + s (f**2 / 2 + R)`` where
    ``s = f / (2 + f)``, so that errors are those of small terms.
    """
    s = f / (f + 2)
    half = f * f * 0.5
    z = s * s
    correction = n * LN2_LOW
    correction = s.fma(
        z.fma(z.polynomial(LOG), half), correction if low is None else correction + low
    )
    return n.fma(LN2_HIGH, f - (half - correction))


def sigmoid(x: ElementValue) -> ElementValue:
    """Return ``1 / (1 + exp(-x))``."""
    e = exp(-abs(x))
    return _divide_by_one_plus((x < 0).where(e, 1.0), e)


def _divide_by_one_plus(
    x: ElementValue, e: ElementValue, low: ElementValue | None = None
) -> ElementValue:
    """Return ``(x + low) / (1 + e)``, with e at most 1 and low a rounding error.

    The rounding error of the sum is divided by nearly the sum.
    """
    total = e + 1
    result = x / total
    if x.is_single:
        return result
    error = result * (e - (total - 1))
    return result - (error if low is None else error - low) * (1.45 - total * 0.48)


def times_sigmoid(
    x: ElementValue, y: ElementValue, low: ElementValue | None = None
) -> ElementValue:
    """Return ``x / (1 + exp(-y))``, with y of the sign of x and no smaller than it.

    Small values are scaled until the end, so that they are not rounded twice.

    Args:
        low: the rounding error of the magnitude of y.
    """
    scale = 2.0**64
    e, _ = exp_with_error(-abs(y), None if low is None else -low, exponent_shift=-64)
    is_negative = x < 0
    numerator, error = (x < -800).where(-800, x).two_product(e)
    share = _divide_by_one_plus(
        is_negative.where(numerator, x), e * (1 / scale), is_negative.where(error, 0.0)
    )
    result = share * is_negative.where(x.constant(1 / scale), 1.0)
    is_finite = abs(x) < float("inf")
    return is_finite.where(result, (x > 0).where(x, float("nan")))  # as Paddle has it


SCALE_NARROW = 2.0**-64
"""A scale for small values until the end, so that they are not rounded twice."""

LEAST_NARROW = -120.0
"""Where the exponential times a number of that size is 0 in float32."""


def _sigmoids_narrow(x: ElementValue) -> tuple[ElementValue, ElementValue]:
    """Return the sigmoid of x and that of -x in float32.

    The one for negative numbers is divided by the scale.
    """
    y = -abs(x)
    _, k, r = reduce_argument_narrow((y < LEAST_NARROW).where(LEAST_NARROW, y))
    e = exp_of_reduced_narrow(k + 64, r)
    large = 1 / e.fma(SCALE_NARROW, 1.0)
    return large, e * large


def sigmoid_narrow(x: ElementValue) -> ElementValue:
    """Return :func:`sigmoid` in float32, at most 4 ulp off."""
    large, small = _sigmoids_narrow(x)
    return (x < 0).where(small * SCALE_NARROW, large)


def silu_narrow(x: ElementValue) -> ElementValue:
    """Return ``x`` times :func:`sigmoid_narrow`, at most 4 ulp off."""
    large, small = _sigmoids_narrow(x)
    below = (x < LEAST_NARROW).where(LEAST_NARROW, x)
    result = (x < 0).where(below * small * SCALE_NARROW, x * large)
    return (x > float("-inf")).where(result, float("nan"))  # as Paddle has it


def silu_slope_narrow(x: ElementValue) -> ElementValue:
    """Return the derivative of :func:`silu_narrow`."""
    large, small = _sigmoids_narrow(x)
    below = (x < LEAST_NARROW).where(LEAST_NARROW, x)
    negative = small * below.fma(large, 1.0) * SCALE_NARROW
    positive = large * x.fma(small * SCALE_NARROW, 1.0)
    result = (x < 0).where(negative, positive)
    return (x > float("-inf")).where(result, float("nan"))  # as Paddle has it


def tanh(x: ElementValue) -> ElementValue:
    """Return the hyperbolic tangent."""
    z = x * x
    near = (x * z).fma(z.polynomial(TANH), x)
    far = 1 - 2 / (exp(abs(x) * 2) + 1)
    return (abs(x) < 0.5625).where(near, far).copysign(x)


def eigen_tanh(x: ElementValue) -> ElementValue:
    """Return Eigen's tanh in float32, with its bits: nothing is contracted."""
    odd, even, limit = EIGEN_TANH
    y = clamp(x, -limit, limit)
    z = y * y
    p, q = (_horner_uncontracted(coefficients, z) for coefficients in (odd, even))
    return (abs(x) < 0.0004).where(x, p * y / q)


def _horner_uncontracted(
    coefficients: tuple[float, ...], x: ElementValue
) -> ElementValue:
    *rest, last = coefficients
    result = x.constant(last)
    for c in reversed(rest):
        result = result * x + c
    return result


def softplus(x: ElementValue) -> ElementValue:
    """Return ``log(1 + exp(x))``."""
    return (x < 0).where(0.0, x) + _log1p(exp(-abs(x)))


def logsigmoid(x: ElementValue) -> ElementValue:
    """Return ``-log(1 + exp(-x))``."""
    return (x > 0).where(0.0, x) - _log1p(exp(-abs(x)))


def cosh(x: ElementValue) -> ElementValue:
    """Return the hyperbolic cosine."""
    half = exp(abs(x), exponent_shift=1)
    return half + 0.25 / half


def sinh(x: ElementValue) -> ElementValue:
    """Return the hyperbolic sine."""
    z = x * x
    near = (x * z).fma(z.polynomial(SINH), x)
    half = exp(abs(x), exponent_shift=1)
    return (abs(x) < 1).where(near, (half - 0.25 / half).copysign(x))


def power(x: ElementValue, exponent: float) -> ElementValue:
    """Return x to a constant power; in float64 too rough for all but float32."""
    if exponent == int(exponent) and abs(exponent) <= 8:
        result = _integer_power(x, int(abs(exponent)))
        return result if exponent >= 0 else 1 / result
    result = exp(log(abs(x)) * exponent)
    if exponent % 2 == 1:
        return result.copysign(x)
    is_negative = (x < 0) & (x > float("-inf"))
    return result if exponent % 2 == 0 else is_negative.where(float("nan"), result)


def _integer_power(x: ElementValue, count: int) -> ElementValue:
    if count == 0:
        return x.constant(1)
    half = _integer_power(x, count // 2) if count > 1 else x
    return (half * half * x if count % 2 else half * half) if count > 1 else x


def elementwise_power(x: ElementValue, y: ElementValue) -> ElementValue:
    """Return a power of any exponent; in float64 too rough for all but float32."""
    is_integer, is_even = (
        value.intrinsic("rint").equals(value) for value in (y, y * 0.5)
    )
    infinite = float("inf")
    magnitude = abs(x)
    result = exp(y * log(magnitude))
    is_one = y.equals(0) | x.equals(1) | (magnitude.equals(1) & abs(y).equals(infinite))
    result = is_one.where(1.0, result)
    is_negative = x.constant(1).copysign(x) < 0
    result = (is_negative & is_integer & (is_even ^ 1)).where(-result, result)
    is_undefined = (x < 0) & (x > -infinite) & (is_integer ^ 1)
    return is_undefined.where(float("nan"), result)
