"""Arguments for tracing the operators of a branch that was not chosen."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor


def harmless_values(arg: Any) -> Any:
    """Return values of the same shape and dtype at which no operator fails.

    Those are zeros of integers, identity matrices where an argument is square, and ones
    otherwise.
    """
    if isinstance(arg, list | tuple):
        return type(arg)(map(harmless_values, arg))
    if not isinstance(arg, Tensor) or not arg._is_initialized():
        return arg
    if not (arg.is_floating_point() or arg.is_complex()):
        return paddle.zeros_like(arg)
    result = paddle.ones_like(arg)
    if arg.ndim > 1 and arg.shape[-1] == arg.shape[-2]:
        result = result * paddle.eye(arg.shape[-1]).astype(arg.dtype)
    return result
