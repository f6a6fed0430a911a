"""Arithmetic of Taylor series, for the jets of operators.

Source: Griewank and Walther, "Evaluating Derivatives", 2nd edition, SIAM 2008, chapter
13.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from paddle import Tensor

from .calls import Series
from .shared import ops


def total(terms: Any) -> Any:
    """Return the sum of the terms that are not zero; None where all are."""
    result = None
    for term in terms:
        if term is not None:
            result = term if result is None else result + term
    return result


def linear_series(f: Callable[[Any], Any], x: Series) -> list[Any]:
    """Return the series of ``f(x)`` for a linear f."""
    return [None if term is None else f(term) for term in x]


def product_term(
    x: Series, y: Series, k: int, times: Callable[[Any, Any], Any] = operator.mul
) -> Any:
    """Return coefficient k of a product, or of any other bilinear function."""
    if times is operator.mul and all(map(operator.is_, x[: k + 1], y[: k + 1])):
        half = half_square_term(x, k)
        return half if half is None else half * 2.0
    return total(
        times(x[j], y[k - j])
        for j in range(k + 1)
        if x[j] is not None and y[k - j] is not None
    )


def half_square_term(x: Series, k: int) -> Any:
    """Return half of coefficient k of ``x * x``, with each product taken once."""
    pairs = [x[j] * x[k - j] for j in range((k + 1) // 2) if _both(x[j], x[k - j])]
    if k % 2 == 0 and x[k // 2] is not None:
        pairs.append(x[k // 2] * x[k // 2] * 0.5)
    return total(pairs)


def minus(x: Any, y: Any) -> Any:
    """Return ``x - y``, where None stands for zero."""
    if y is None:
        return x
    return -y if x is None else x - y


def _both(x: Any, y: Any) -> bool:
    return x is not None and y is not None


def product_series(
    x: Series, y: Series, times: Callable[[Any, Any], Any] = operator.mul
) -> list[Any]:
    """Return the series of ``x * y``, or of another bilinear function."""
    return [product_term(x, y, k, times) for k in range(len(x))]


def series_from_slope(
    y0: Tensor, x: Series, slope: Callable[[list[Any]], Any]
) -> list[Any]:
    """Return the series of a function of x with the value y0, where dy = s dx.

    Args:
        slope: gives coefficient k of s, from those of y up to k.
    """
    y: list[Any] = [y0]
    slopes: list[Any] = []
    for k in range(1, len(x)):
        slopes.append(slope(y))
        y.append(integrated_term(x, slopes, k))
    return y


def second_order_series(y0: Tensor, x: Series, slope: Any, half_bend: Any) -> list[Any]:
    """Return the series of a function of x with the value y0, up to second order.

    Args:
        slope: its derivative at the value of x.
        half_bend: half of its second derivative there.
    """
    y = [y0, *linear_series(lambda term: term * slope, x[1:])]
    if len(x) > 2 and x[1] is not None:
        y[2] = total((y[2], x[1] * x[1] * half_bend))
    return y


def integrated_term(x: Series, slopes: Series, k: int, scale: float = 1.0) -> Any:
    """Return coefficient k of y, where dy = s dx, from coefficients of s below k.

    Args:
        scale: a factor of the slopes.
    """
    return total(
        _times(x[j] * slopes[k - j], scale * j / k)
        for j in range(1, k + 1)
        if _both(x[j], slopes[k - j])
    )


def _times(x: Any, factor: float) -> Any:
    return x if factor == 1 else x * factor


def power(x: Series, exponent: float) -> list[Any]:
    """Return the series of ``x ** exponent``, for an x that is nowhere 0."""
    y: list[Any] = [ops.pow(x[0], exponent)]
    for k in range(1, len(x)):
        weighted = total(
            x[j] * y[k - j] * ((exponent * j - (k - j)) / k)
            for j in range(1, k + 1)
            if x[j] is not None and y[k - j] is not None
        )
        y.append(None if weighted is None else weighted / x[0])
    return y
