"""Distances of results from the expected ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from .dtypes import dtype_name

RTOL = {"float64": 1e-8, "float32": 2e-3, "complex64": 2e-3, "complex128": 1e-8}
"""The allowed distance, by dtype, relative to the largest entry."""

ULPS = 4.0
"""Inputs are moved by this many units in the last place.

A program may differ by this many times the distance that results move.
"""


class ComparedResult:
    """A result as it is compared with another.

    Attributes:
        dtype: of the result.
        values: its entries, float32 where NumPy has no such type.
    """

    def __init__(self, tensor: Tensor) -> None:
        is_bfloat16 = tensor.dtype == paddle.bfloat16
        self.dtype = dtype_name(tensor.dtype)
        self.values: np.ndarray[Any, Any] = (
            tensor.astype("float32") if is_bfloat16 else tensor
        ).numpy()

    @cached_property
    def largest(self) -> float:
        """The largest finite entry, zero for integers and truths."""
        values = self.values
        if values.dtype.kind not in "fc" or not values.size:
            return 0.0
        if values.dtype.kind == "f":
            result = max(float(values.max()), -float(values.min()))
            if math.isfinite(result):
                return result
        finite = values[np.isfinite(values)]
        return float(np.abs(finite).max(initial=0.0))

    def is_close(
        self,
        expected: ComparedResult,
        largest: float,
        rtol: Mapping[str, float] = RTOL,
        terms: int = 1,
    ) -> bool:
        """Tell whether this is the expected result up to rounding, or nearly.

        Rounding is relative to ``largest``, the largest entry of all outputs. A result
        that is zero but for rounding has no digits of its own. The gradient of a bias
        before a normalization is one.

        Args:
            terms: how many terms may be added up in another order.
        """
        x, y = self.values, expected.values
        if not x.size or np.array_equal(x, y):
            return True
        if x.dtype.kind not in "fc":
            return False
        tolerance = rtol.get(self.dtype, 2e-2)
        rounding = 16 * np.finfo(x.dtype).eps * math.sqrt(terms)
        atol = max(tolerance * expected.largest, float(rounding) * largest)
        return bool(np.allclose(x, y, rtol=0, atol=atol, equal_nan=True))

    def distance(self, other: ComparedResult) -> np.ndarray[Any, Any]:
        """Return the distance of each entry; zero for integers and truths."""
        if self.values.dtype.kind not in "fc":
            return np.zeros(self.values.shape)
        with np.errstate(invalid="ignore"):
            result: np.ndarray[Any, Any] = np.abs(self.values - other.values)
        return result

    def is_within(self, expected: ComparedResult, spread: np.ndarray[Any, Any]) -> bool:
        """Tell whether no entry is farther than rounding of the inputs takes it."""
        if self.values.dtype.kind not in "fc":
            return False
        x, y = self.values, expected.values
        atol = RTOL.get(self.dtype, 2e-2) * expected.largest * 1e-3
        near = self.distance(expected) <= ULPS * spread + atol
        return bool(np.all(near | (np.isnan(x) & np.isnan(y)) | (x == y)))
