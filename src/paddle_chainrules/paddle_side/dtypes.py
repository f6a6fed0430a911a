"""Floating dtypes, and whether Paddle casts by itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import Tensor
from paddle.base.framework import global_var

DTYPES = {
    "float16": paddle.float16,
    "bfloat16": paddle.bfloat16,
    "float32": paddle.float32,
    "float64": paddle.float64,
}

FLOATS = frozenset({"float32", "float64"})
"""The dtypes that machine code computes in."""


def single(number: float) -> float:
    """Round a number to float32, as Paddle's kernels do for any dtype."""
    return float(np.float32(float(number)))


# The common ones first, which are found by identity.
_DIFFERENTIABLE = (
    *(paddle.float32, paddle.float64, paddle.float16, paddle.bfloat16),
    *(paddle.complex64, paddle.complex128),
)


def is_differentiable(leaf: Any) -> bool:
    """Tell whether the leaf can have a gradient: if it is floating or complex."""
    return isinstance(leaf, Tensor) and leaf.dtype in _DIFFERENTIABLE


_INTEGER_DTYPES = (
    *(paddle.int64, paddle.int32, paddle.bool, paddle.uint8, paddle.int8),
    paddle.int16,
)


def is_integral(leaf: Any) -> bool:
    """Tell whether it is a tensor of integers or Booleans, which have no derivative."""
    if not isinstance(leaf, Tensor):
        return False
    dtype = leaf.dtype  # of floats, which is known sooner, in the most cases
    return dtype not in _DIFFERENTIABLE and dtype in _INTEGER_DTYPES


_REAL_AND_COMPLEX = {
    (paddle.float32, paddle.complex64),
    (paddle.float64, paddle.complex128),
}


def same_real_dtype(a: paddle.dtype, b: paddle.dtype) -> bool:
    """Tell whether two dtypes are equal, or one is that of the other's real parts."""
    return (
        same_dtype(a, b) or (a, b) in _REAL_AND_COMPLEX or (b, a) in _REAL_AND_COMPLEX
    )


class DtypeFacts(NamedTuple):
    """A dtype's name, its bytes an element, and whether it has derivatives."""

    name: str
    bytes: int
    is_differentiable: bool


def facts_of(tensor: Tensor) -> DtypeFacts:
    """Return the name, bytes and kind of a tensor's dtype.

    Paddle ends the process if the tensor is a result that an operator has left out.
    """
    dtype = tensor.dtype
    result = _FACTS.get(id(dtype))
    if result is None:
        facts = dtype_name(dtype), tensor.element_size(), is_differentiable(tensor)
        result = DtypeFacts(*facts)
        if any(dtype is common for common in _DIFFERENTIABLE + _INTEGER_DTYPES):
            _FACTS[id(dtype)] = result
    return result


_FACTS: dict[int, DtypeFacts] = {}
"""Facts by the identity of dtypes, which live as long as Paddle."""


def dtype_name(dtype: paddle.dtype) -> str:
    """Return a dtype's name: ``"float32"`` for ``paddle.float32``."""
    result = _NAMES.get(id(dtype))
    return str(dtype).removeprefix("paddle.") if result is None else result


_NAMES = {id(dtype): name for name, dtype in DTYPES.items()}
"""Names by identity, since the hash of a dtype is slow."""


def is_complex(tensor: Tensor) -> bool:
    """Return whether a tensor is complex, faster than Paddle's own method does."""
    return dtype_name(tensor.dtype).startswith("complex")


def same_dtype(a: paddle.dtype, b: paddle.dtype) -> bool:
    """Tell whether two dtypes are one; identity, which mostly decides, is faster."""
    return a is b or bool(a == b)


def casts_automatically() -> bool:
    """Tell whether ``paddle.amp.auto_cast`` is on, faster than Paddle does.

    It casts to float16 or bfloat16. Where its dtype is float32, it is off.
    """
    try:
        tracer: Any = global_var._dygraph_tracer_
        return tracer._amp_dtype != "float32" and tracer._amp_level.value != 0
    except AttributeError:
        return bool(paddle.is_autocast_enabled())


def is_dtype_name(name: Any) -> bool:
    """Tell whether it is the name of a dtype of Paddle, such as ``"float32"``."""
    result = getattr(paddle, name, None) if isinstance(name, str) else None
    return isinstance(result, paddle.dtype)


def dtype_named(name: Any) -> Any:
    """Return the dtype of parameters that has this name.

    Raises:
        ValueError: there is none.
    """
    if not isinstance(name, str) or name not in DTYPES:
        raise ValueError(f"unsupported dtype {name!r}; use one of {list(DTYPES)}")
    return DTYPES[name]


def tensor_kind(tensor: Tensor) -> str:
    """Return the dtype and shape of a tensor in words, for messages."""
    return f"a {dtype_name(tensor.dtype)} tensor of shape {list(tensor.shape)}"
