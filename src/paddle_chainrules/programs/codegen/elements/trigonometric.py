"""Sine, cosine and arc tangent, as instructions of LLVM.

We compute in float64, as in :mod:`.exponentials`. Sine and cosine of large numbers need
more digits of pi than those of others. So they are functions that vectorised loops call
for all lanes of a vector at once. They call the C library where a lane is large.
"""

from __future__ import annotations

import math

from .number import ElementValue, Polynomial
from .vectorised import vectorised

SIN = Polynomial(
    (
        *(-0.16666666663832777, 0.008333331865963797, -0.00019840082015127998),
        2.72493143604168e-06,
    ),
    (
        *(-0.16666666666666666, 0.008333333333330925, -0.00019841269836722437),
        *(2.755731608382574e-06, -2.505112794596564e-08, 1.591784866512194e-10),
    ),
)
"""``(sin(r) - r) / r**3`` of ``r**2``, where r is at most pi / 4."""

COS = Polynomial(
    (
        *(0.04166666666430242, -0.0013888887664717277, 2.4800596437593728e-05),
        -2.73004488746506e-07,
    ),
    (
        *(0.041666666666666664, -0.0013888888888887382, 2.480158729874308e-05),
        *(-2.755731726001471e-07, 2.0876143829213935e-09, -1.1382456865840483e-11),
    ),
)
"""``(cos(r) - 1 + r**2 / 2) / r**4`` of ``r**2``."""

ATAN = Polynomial(
    (
        *(-0.33333333278951577, 0.19999977153974205, -0.14284145548273774),
        *(0.11071260444313767, -0.08623896669600505, 0.05046128167603517),
    ),
    (
        *(-0.3333333333333333, 0.1999999999999548, -0.14285714284657894),
        *(0.11111111014561013, -0.09090904549884611, 0.07692182535116648),
        *(-0.06664502215671447, 0.058580687568615106, -0.05085030492810941),
        *(0.03921955253253129, -0.019162068915902573),
    ),
)
"""``(atan(x) - x) / x**3`` of ``x**2``, where x is at most tan(pi / 8)."""

HALF_PI = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
"""Pi / 2 as a sum of 33, 33 and 53 bits, so that products with 20 bits are exact."""

MOST = 1e6
"""The largest number for which the C library is not called."""


@vectorised("sin", lambda x: abs(x) > MOST)
def sin(x: ElementValue) -> ElementValue:
    """Return the sine."""
    return _sine(x)


@vectorised("cos", lambda x: abs(x) > MOST)
def cos(x: ElementValue) -> ElementValue:
    """Return the cosine."""
    return _sine(x, quarter_turns=1)


def _sine(x: ElementValue, quarter_turns: int = 0) -> ElementValue:
    """Return the sine of a number up to :data:`MOST`.

    Args:
        transposed: the quarters of a circle that are added to x first.
    """
    n, quarter = (x * (2 / math.pi)).round_to_integer()
    high, middle, low = HALF_PI
    first = (-n).fma(high, x)
    if x.is_single:
        r, error = (-n).fma(middle, first), x.constant(0)
    else:
        middle_product = n * middle
        difference = first - middle_product
        error = (-n).fma(low, (first - difference) - middle_product)
        r = difference + error
        error = error - (r - difference)
    z = r * r
    s = (r * z).fma(z.polynomial(SIN), error) + r
    c = 1 - (z * 0.5 - (z * z).fma(z.polynomial(COS), -(r * error)))
    quarter = quarter + quarter_turns
    result = (quarter & 1).is_zero().where(s, c)
    sign = (quarter & 2) << 62
    result = (result.bits() ^ sign).bits()
    return result if quarter_turns else (abs(x) < 2.0**-30).where(x, result)


def atan(x: ElementValue) -> ElementValue:
    """Return the arc tangent."""
    y = abs(x)
    is_small, is_large = y < math.tan(math.pi / 8), y > math.tan(3 * math.pi / 8)
    numerator = is_small.where(y, is_large.where(-1, y - 1))
    r = numerator / is_small.where(1.0, is_large.where(y, y + 1))
    base = is_small.where(
        y.constant(0), is_large.where(y.constant(math.pi / 2), math.pi / 4)
    )
    base_error = base * (6.123233995736766e-17 / (math.pi / 2))
    z = r * r
    result = base + (r + (r * z).fma(z.polynomial(ATAN), base_error))
    return result.copysign(x)
