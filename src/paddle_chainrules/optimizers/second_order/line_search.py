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

STEP_GROWTH = 4.0
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
    evaluate: Evaluate, start: LinePoint, length: float, max_evaluations: int
) -> LinePoint | None:
    """Return a step that meets the conditions, or the lowest; None if none is lower.

    Args:
        evaluate: gives the points.
        start: the point of length zero.
        length: the length to try first.
        max_evaluations: points that may be evaluated.
    """
    before, evaluations_left = start, max_evaluations
    while evaluations_left > 0:
        point, evaluations_left = evaluate(length), evaluations_left - 1
        too_far = not _is_lower(point, start) or (
            before.length > 0.0 and point.value >= before.value
        )
        if too_far:
            return _zoom(evaluate, start, before, point, evaluations_left)
        if abs(point.slope) <= -CURVATURE * start.slope:
            return point
        if point.slope >= 0.0:
            return _zoom(evaluate, start, point, before, evaluations_left)
        before, length = point, length * STEP_GROWTH
    return before if before.length else None


def _zoom(
    evaluate: Evaluate,
    start: LinePoint,
    low: LinePoint,
    high: LinePoint,
    evaluations_left: int,
) -> LinePoint | None:
    """Search between two ends; ``low`` is the lower one."""
    for _ in range(evaluations_left):
        length = _cubic_minimum(low, high)
        if length in (low.length, high.length):
            break
        point = evaluate(length)
        if not _is_lower(point, start) or point.value >= low.value:
            high = point
            continue
        if abs(point.slope) <= -CURVATURE * start.slope:
            return point
        if point.slope * (high.length - low.length) >= 0.0:
            high = low
        low = point
    return low if low.length else None


def _is_lower(point: LinePoint, start: LinePoint) -> bool:
    """Tell whether a step gains enough; it does not if value or slope is not finite."""
    if not (math.isfinite(point.value) and math.isfinite(point.slope)):
        return False
    return point.value <= start.value + DECREASE * point.length * start.slope


def _cubic_minimum(first: LinePoint, second: LinePoint) -> float:
    """Return where the cubic of both values and slopes is lowest, well between both."""
    low, high = sorted((first.length, second.length))
    middle, margin = (low + high) / 2.0, 0.1 * (high - low)
    if not all(map(math.isfinite, (second.value, second.slope))):
        return middle
    distance = second.length - first.length
    a = first.slope + second.slope - 3.0 * (second.value - first.value) / distance
    square = a * a - first.slope * second.slope
    if square < 0.0:
        return middle
    root = math.copysign(math.sqrt(square), distance)
    denominator = second.slope - first.slope + 2.0 * root
    if denominator == 0.0:
        return middle
    result = second.length - distance * (second.slope + root - a) / denominator
    return min(max(result, low + margin), high - margin)
