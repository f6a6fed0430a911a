"""Arithmetic of Taylor series, of which the jets of operators are made.

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
    """The sum of those that are not zero, None where all are."""
    found = None
    for term in terms:
        if term is not None:
            found = term if found is None else found + term
    return found


def linear(f: Callable[[Tensor], Tensor], x: Series) -> list[Any]:
    """The series of ``f(x)`` for a linear f."""
    return [None if part is None else f(part) for part in x]


def product_term(
    x: Series, y: Series, k: int, times: Callable[[Any, Any], Any] = operator.mul
) -> Any:
    """Coefficient k of a product, or of any other bilinear function."""
    return total(
        times(x[j], y[k - j])
        for j in range(k + 1)
        if x[j] is not None and y[k - j] is not None
    )


def product(
    x: Series, y: Series, times: Callable[[Any, Any], Any] = operator.mul
) -> list[Any]:
    """The series of ``x * y``, or of another bilinear function."""
    return [product_term(x, y, k, times) for k in range(len(x))]


def by_slope(y0: Tensor, x: Series, slope: Callable[[list[Any]], Any]) -> list[Any]:
    """The series of a function of x with the value y0, where dy = s dx.

    Args:
        slope: coefficient k of s, from those of y up to k.
    """
    y: list[Any] = [y0]
    slopes: list[Any] = []
    for k in range(1, len(x)):
        slopes.append(slope(y))
        y.append(
            total(
                x[j] * slopes[k - j] if j == k else x[j] * slopes[k - j] * (j / k)
                for j in range(1, k + 1)
                if x[j] is not None and slopes[k - j] is not None
            )
        )
    return y


def power(x: Series, exponent: float) -> list[Any]:
    """The series of ``x ** exponent``, for an x that is nowhere 0."""
    y: list[Any] = [ops.pow(x[0], exponent)]
    for k in range(1, len(x)):
        above = total(
            x[j] * y[k - j] * ((exponent * j - (k - j)) / k)
            for j in range(1, k + 1)
            if x[j] is not None and y[k - j] is not None
        )
        y.append(None if above is None else above / x[0])
    return y
