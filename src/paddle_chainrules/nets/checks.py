"""Refusals of tensors that do not fit a net, in the caller's terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle import Tensor

from ..paddle_side.dtypes import DTYPES, dtype_name, same_dtype
from ..transforms.containers.csr import CSR


def check_tensor(name: str, value: Any, dtype: str) -> None:
    """Refuse what is no tensor, or of another dtype."""
    if not isinstance(value, Tensor | CSR):
        remedy = f"convert it with paddle.to_tensor({name}, dtype={dtype!r})"
        by_name = isinstance(value, Mapping)
        kinds = isinstance(value, tuple | list) and [*map(type, value)]
        if by_name or (kinds and {*kinds} == {Tensor}):
            joined_text = "at.values()" if by_name else "at"
            remedy = (
                "its features are the columns of one tensor: give a function that "
                "joins them, such as lambda params, at: "
                f"net(params, paddle.concat([*{joined_text}], -1))"
            )
        raise TypeError(
            f"{name} must be a paddle.Tensor, got {type(value).__name__}; {remedy}"
        )
    if value.dtype is not None and not same_dtype(value.dtype, DTYPES[dtype]):
        result = dtype_name(value.dtype)
        other = f", or make the net with dtype={result!r}" if result in DTYPES else ""
        raise TypeError(
            f"{name} is {result}, the net computes in {dtype}; convert it with "
            f"{name}.astype({dtype!r}){other}"
        )


def check_width(x: Tensor | CSR, width: int) -> None:
    """Refuse an input of another number of features."""
    if x.shape[-1:] != (width,):
        raise ValueError(
            f"x has shape {list(x.shape)}, the net needs [n, {width}]: {width} "
            "features in the last dimension, the batch before it; give x.T where they "
            "lie the other way"
        )
