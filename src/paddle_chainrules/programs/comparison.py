"""Other values to test a function and its program at, and distances of results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from ..paddle_side.autograd.grad_mode import grad_mode
from ..paddle_side.dtypes import dtype_name
from .compiling.program import Program

RTOL = {"float64": 1e-8, "float32": 2e-3, "complex64": 2e-3, "complex128": 1e-8}
ROUGH = dict.fromkeys(RTOL, 2e-3)
"""The allowed distance of a program from its function, by dtype.

It is relative to the largest entry.
"""

_HALF_PRECISION = (paddle.float16, paddle.bfloat16)

PERIOD = 4093
"""A prime. After this many values the factors of :func:`other_numbers` repeat."""


def other_numbers(tensor: Tensor) -> Tensor:
    """Return values of the same signs, nearer to zero.

    Integers and masks come in another order. The ids of segments stay in order, since
    Paddle asks for that. Tuples of integers stay together, since each may index a place
    among others.
    """
    with grad_mode(False):
        if not tensor.size:
            result = tensor.detach()
        elif tensor.dtype in _HALF_PRECISION:  # for which a CPU has no arithmetic
            result = other_numbers(tensor.astype("float32")).astype(tensor.dtype)
        elif tensor.is_complex():
            result = paddle.as_complex(other_numbers(paddle.as_real(tensor)))
        elif tensor.is_floating_point():
            result = paddle.to_tensor(_perturb(tensor.numpy()), place=tensor.place)
        else:
            return _reorder(tensor)
    result.stop_gradient = tensor.stop_gradient
    return result


def _perturb(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Multiply each value by a factor from 0.79 to 0.99; replace zeros by small values.

    They stay where functions are defined: between 0 and 1, say.
    """
    flat, changes = values.reshape(-1), _relative_changes(values.dtype.name)
    result = np.empty_like(flat)
    full_size = flat.size // PERIOD * PERIOD
    rows = flat[:full_size].reshape(-1, PERIOD)
    np.multiply(rows, 1 + changes, out=result[:full_size].reshape(rows.shape))
    np.multiply(
        flat[full_size:], 1 + changes[: flat.size - full_size], out=result[full_size:]
    )
    (zeros,) = (flat == 0).nonzero()
    result[zeros] = -0.5 * changes[zeros % PERIOD]
    return result.reshape(values.shape)


@cache
def _relative_changes(dtype: str) -> np.ndarray[Any, Any]:
    return (0.1 * np.sin(2.4 * np.arange(PERIOD) + 1) - 0.11).astype(dtype)


def other_inputs(program: Program, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return other values for a program's inputs, except for structural inputs.

    The values are the same where at others it might not end.
    """
    if program.may_not_end:
        return [x.detach() for x in tensors]
    structural = {v for op in program.ops for v in op.structure}
    pairs = zip(program.inputs, tensors, strict=True)
    return [x.detach() if v in structural else other_numbers(x) for v, x in pairs]


ROUNDING_SAMPLES = 8
"""How often inputs are perturbed by rounding, to see how results move."""

ULPS = 4.0
"""Inputs are moved by this many units in the last place.

A program may differ by this many times the distance that results move.
"""


def perturb_by_rounding(tensor: Tensor, k: int) -> Tensor:
    """Perturb values by rounding errors, which differ for each k."""
    if tensor.dtype in (paddle.float32, paddle.float64):
        values = tensor.numpy()
        eps = ULPS * np.finfo(values.dtype).eps
        signs = np.random.default_rng(k).uniform(-1, 1, values.shape)
        moved = values * (1 + eps * signs)
        result = paddle.to_tensor(moved.astype(values.dtype), place=tensor.place)
        result.stop_gradient = tensor.stop_gradient
        return result
    return tensor


def _reorder(tensor: Tensor) -> Tensor:
    row = tensor.reshape([-1])
    if _is_grouped(row):
        return (row[0] + row[-1] - row.flip(0)).reshape(tensor.shape)
    if tensor.ndim < 2 or tensor.shape[0] == 1:
        return paddle.concat([row[1:], row[:1]]).reshape(tensor.shape)
    return paddle.concat([tensor[1:], tensor[:1]])


def _is_grouped(row: Tensor) -> bool:
    """Tell whether integers rise and some are equal, as the ids of segments."""
    if row.dtype not in (paddle.int32, paddle.int64):
        return False
    differences = np.diff(row.numpy())
    return bool(differences.size) and differences.min() == 0


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
