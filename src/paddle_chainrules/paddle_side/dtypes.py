"""Floating dtypes by name, and whether Paddle casts by itself."""

from __future__ import annotations

import paddle

DTYPES = {
    "float16": paddle.float16,
    "bfloat16": paddle.bfloat16,
    "float32": paddle.float32,
    "float64": paddle.float64,
}


def dtype_name(dtype: paddle.dtype) -> str:
    """``paddle.float32`` as ``"float32"``."""
    return str(dtype).removeprefix("paddle.")


def same_dtype(a: paddle.dtype, b: paddle.dtype) -> bool:
    """Whether two dtypes are one; the identity, which mostly decides, is faster."""
    return a is b or bool(a == b)


def casts_automatically() -> bool:
    """Whether ``paddle.amp.auto_cast`` is on: a faster paddle.is_autocast_enabled."""
    try:
        level = paddle.base.framework._dygraph_tracer()._amp_level.value
    except AttributeError:
        return bool(paddle.is_autocast_enabled())
    return bool(level != 0)
