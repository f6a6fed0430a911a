"""Activations written in other operators, which give their gradients."""

from __future__ import annotations

import math
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.dtypes import single

ops: Any = paddle._C_ops


def softsign(x: Tensor) -> Tensor:
    return x / (ops.abs(x) + 1.0)


def mish(x: Tensor, threshold: float = 20.0) -> Tensor:
    result: Tensor = x * ops.tanh(ops.softplus(x, 1.0, threshold))
    return result


def selu(x: Tensor, scale: float, alpha: float) -> Tensor:
    low = ops.exp(_negative_part(x)) - 1.0
    result: Tensor = ops.where(x > 0, x, low * single(alpha)) * single(scale)
    return result


def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """Return celu. Paddle's gradient is NaN where ``exp(x / alpha)`` is infinite."""
    a = single(alpha)
    result: Tensor = ops.where(x > 0, x, (ops.exp(_negative_part(x) / a) - 1.0) * a)
    return result


def or_nan(x: Tensor, value: Tensor) -> Tensor:
    """Return a value; NaN, as a constant, where x is NaN: Paddle's slope is zero."""
    nan = paddle.full_like(value, math.nan)
    result: Tensor = ops.where(ops.isnan(x), nan, value)
    return result


def _negative_part(x: Tensor) -> Tensor:
    """Return min(x, 0), so that no branch that is not taken is infinite."""
    result: Tensor = ops.where(x > 0, paddle.zeros_like(x), x)
    return result
