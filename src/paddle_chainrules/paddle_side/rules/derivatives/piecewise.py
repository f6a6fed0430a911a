"""Functions that are put together of pieces: right where these meet, at every order.

Paddle's kernels forget at ties what they give in the first order, and what it composes
of ``where`` and ``abs`` has the derivatives of one piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import paddle
from paddle import Tensor

from ...listener import listener
from ...watch import RuleContext, is_traced, tensors_in_arguments
from .formulas import broadcast_to, by_formula


def smooth(formula: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule for a function that is no operator: also while one listens."""

    def rule(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
        tensors = tensors_in_arguments([*args, *kwargs.values()])
        floating = all(x.is_floating_point() for x in tensors)
        kinds = {x.dtype for x in tensors}
        if not floating or len(kinds) != 1:
            return operator(*args, **kwargs)
        if listener() is None and not any(map(is_traced, tensors)):
            return operator(*args, **kwargs)
        options = {k: v for k, v in kwargs.items() if k != "name"}
        return by_formula(formula, operator, args, options, False)

    return rule


def is_zero(x: Tensor) -> Tensor:
    """Tell where numbers are exactly zero; ``==`` takes small ones for zero, too."""
    return paddle.logical_and(x <= 0, x >= 0)


def is_equal(x: Tensor, y: Tensor) -> Tensor:
    """Tell where numbers are exactly equal; ``==`` takes close ones for equal, too."""
    return paddle.logical_and(x <= y, x >= y)


def logaddexp(x: Tensor, y: Tensor, name: Any = None) -> Tensor:
    """Return the same analytic function from either side of a tie."""
    x, y = _broadcast_pair(x, y)
    is_first_larger = x > y
    largest = paddle.where(is_first_larger, x, y)
    negative_gap = paddle.where(is_first_larger, y - x, x - y)
    return largest + paddle.log1p(paddle.exp(negative_gap))


_SERIES_RADIUS, _SERIES_TERMS = 0.5, 11
"""Distance from zero within which the series counts, and its number of terms; its error
is 1e-16 up to the fourth order."""


def sinc(x: Tensor, name: Any = None) -> Tensor:
    """Return ``sin(pi x) / (pi x)``, near zero by its series."""
    near = paddle.abs(x.detach()) < _SERIES_RADIUS
    far = paddle.where(near, paddle.ones_like(x), x) * math.pi
    small = paddle.where(near, x, paddle.zeros_like(x)) * math.pi
    square = small * small
    # 1 - s / 2 / 3 (1 - s / 4 / 5 (...))
    series = reduce(
        lambda rest, k: 1.0 - square * rest * (1 / (2 * k * (2 * k + 1))),
        range(_SERIES_TERMS, 0, -1),
        paddle.ones_like(x),
    )
    result: Tensor = paddle.where(near, series, paddle.sin(far) / far)
    return result


def _broadcast_pair(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    shape = paddle.broadcast_shape(x.shape, y.shape)
    return broadcast_to(shape, x), broadcast_to(shape, y)


def as_booleans(numbers: Tensor) -> Tensor:
    """Tell where numbers are not zero."""
    if numbers.dtype == paddle.bool or numbers.is_complex():
        return numbers.astype("bool")
    result: Tensor = paddle._C_ops.logical_not(is_zero(numbers))  # maybe machine code
    return result


def is_nonzero(number: Tensor) -> bool:
    """Tell whether a number is not zero.

    Paddle's ``bool`` tests whether it is above zero.
    """
    return bool(as_booleans(number))
