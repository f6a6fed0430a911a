"""A check that a function gives the same results when it is called once more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle import Tensor

from ...paddle_side.autograd.engine import or_zeros
from ...paddle_side.compared_results import ComparedResult

TOLERANCES = {"float64": 1e-9, "complex128": 1e-9, "float32": 5e-5, "complex64": 5e-5}
"""Allowed difference of two ways to compute a result, relative to its largest entry."""


def check_same(
    first_outputs: Sequence[Any], outputs: Sequence[Any], error: Exception
) -> None:
    """Refuse results that have changed since, or that are drawn anew at every call.

    Raises:
        Exception: the error that is given.
    """
    pairs = [
        (ComparedResult(a), ComparedResult(or_zeros(b, a)))
        for a, b in zip(first_outputs, outputs, strict=False)
        if isinstance(a, Tensor)
    ]
    largest = max((a.largest for a, _ in pairs), default=0.0)
    if not all(b.is_close(a, largest, TOLERANCES) for a, b in pairs):
        raise error
