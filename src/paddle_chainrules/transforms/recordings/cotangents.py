"""Checks of cotangents and tangents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.dtypes import is_differentiable, same_dtype


def check_seed(i: int, cotangent: Any, output: Any) -> None:
    """Refuse a cotangent that does not fit output i."""
    if not is_differentiable(output):
        kind = getattr(output, "dtype", type(output).__name__)
        raise TypeError(
            f"output {i} is {kind} and has no derivative; give None for its cotangent"
        )
    check_cotangent(cotangent, output.shape, output.dtype)


def check_cotangent(
    cotangent: Any,
    shape: Sequence[int],
    dtype: paddle.dtype,
    what: str = "cotangent",
    of: str = "output",
) -> None:
    """Refuse a cotangent that is no tensor of the output's shape and dtype."""
    if not isinstance(cotangent, Tensor):
        raise TypeError(
            f"the {what} must be a paddle.Tensor, got {type(cotangent).__name__}; "
            f"convert it with paddle.to_tensor, or nest it as the {of}"
        )
    if cotangent.shape != shape:
        raise ValueError(
            f"the {what} has shape {list(cotangent.shape)}, the {of} {list(shape)}; "
            "they must be equal (no broadcasting)"
        )
    if not same_dtype(cotangent.dtype, dtype):
        raise TypeError(
            f"the {what} is {cotangent.dtype}, the {of} {dtype}; convert it with "
            f"{what}.astype({of}.dtype)"
        )
