"""Other values to test a function and its program at."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from ..paddle_side.autograd.grad_mode import grad_mode
from ..paddle_side.compared_results import RTOL, ULPS
from .compiling.program import Program

ROUGH = dict.fromkeys(RTOL, 2e-3)
"""The allowed distance of a program that computes float32, by dtype."""

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
