"""Checks of cotangents and tangents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.dtypes import is_differentiable, same_dtype


def check_seed(i: int, leaf: Any, output: Any) -> None:
    """Refuse a cotangent of output i that is not what its place asks for."""
    if not is_differentiable(output):
        kind = getattr(output, "dtype", type(output).__name__)
        raise TypeError(
            f"output {i} is {kind} and has no derivative; give None for its cotangent"
        )
    check_cotangent(leaf, output.shape, output.dtype)


def check_cotangent(
    leaf: Any,
    shape: Sequence[int],
    dtype: paddle.dtype,
    what: str = "cotangent",
    of: str = "output",
) -> None:
    """Refuse a cotangent that is no tensor of the output's shape and dtype."""
    if not isinstance(leaf, Tensor):
        raise TypeError(
            f"the {what} must be a paddle.Tensor, got {type(leaf).__name__}; "
            f"convert it with paddle.to_tensor, or nest it as the {of}"
        )
    if leaf.shape != shape:
        raise ValueError(
            f"the {what} has shape {list(leaf.shape)}, the {of} {list(shape)}; "
            "they must be equal (no broadcasting)"
        )
    if not same_dtype(leaf.dtype, dtype):
        raise TypeError(
            f"the {what} is {leaf.dtype}, the {of} {dtype}; convert it with "
            f"{what}.astype({of}.dtype)"
        )
