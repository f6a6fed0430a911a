"""The length of a step along a direction, with the strong Wolfe conditions.

Nocedal, Wright, "Numerical optimization", 2nd edition, 2006: algorithms 3.5 and 3.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from paddle import Tensor

DECREASE, CURVATURE = 1e-4, 0.9
"""The strong Wolfe conditions: the least part of the slope that a step must gain, and
the largest part of it that may be left."""

LONGER = 4.0
"""Factor by which a step is longer if the function still goes down at its end."""


class LinePoint(NamedTuple):
    """A step's end: its length, the value, the gradient, and the slope along it."""

    length: float
    value: float
    grad: Tensor
    slope: float


Evaluate = Callable[[float], LinePoint]
"""Function from a length along the direction to the point there."""


def strong_wolfe(
    evaluate: Evaluate, start: LinePoint, length: float, most: int
) -> LinePoint | None:
    """Return a step that meets the conditions, or the lowest; None if none is lower.

    Args:
        evaluate: gives the points.
        start: the point of length zero.
        length: the length to try first.
        most: points that may be evaluated.
    """
    before, last = start, most
    while last > 0:
        here, last = evaluate(length), last - 1
        too_far = not _is_lower(here, start) or (
            before.length > 0.0 and here.value >= before.value
        )
        if too_far:
            return _zoom(evaluate, start, before, here, last)
        if abs(here.slope) <= -CURVATURE * start.slope:
            return here
        if here.slope >= 0.0:
            return _zoom(evaluate, start, here, before, last)
        before, length = here, length * LONGER
    return before if before.length else None


def _zoom(
    evaluate: Evaluate, start: LinePoint, low: LinePoint, high: LinePoint, last: int
) -> LinePoint | None:
    """Search between two ends; ``low`` is the lower one."""
    for _ in range(last):
        length = _cubic_minimum(low, high)
        if length in (low.length, high.length):
            break
        here = evaluate(length)
        if not _is_lower(here, start) or here.value >= low.value:
            high = here
            continue
        if abs(here.slope) <= -CURVATURE * start.slope:
            return here
        if here.slope * (high.length - low.length) >= 0.0:
            high = low
        low = here
    return low if low.length else None


def _is_lower(here: LinePoint, start: LinePoint) -> bool:
    """Tell whether a step gains enough; it does not if value or slope is not finite."""
    if not (math.isfinite(here.value) and math.isfinite(here.slope)):
        return False
    return here.value <= start.value + DECREASE * here.length * start.slope


def _cubic_minimum(one: LinePoint, other: LinePoint) -> float:
    """Return where the cubic of both values and slopes is lowest, well between both."""
    low, high = sorted((one.length, other.length))
    middle, margin = (low + high) / 2.0, 0.1 * (high - low)
    if not all(map(math.isfinite, (other.value, other.slope))):
        return middle
    apart = other.length - one.length
    a = one.slope + other.slope - 3.0 * (other.value - one.value) / apart
    square = a * a - one.slope * other.slope
    if square < 0.0:
        return middle
    root = math.copysign(math.sqrt(square), apart)
    below = other.slope - one.slope + 2.0 * root
    if below == 0.0:
        return middle
    result = other.length - apart * (other.slope + root - a) / below
    return min(max(result, low + margin), high - margin)
