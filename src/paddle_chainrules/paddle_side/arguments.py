"""What is given for a flag, a function or a number of steps, if it is none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from numbers import Real
from operator import index
from typing import Any

import numpy as np
from paddle import Tensor


def flag(name: str, value: Any) -> bool:
    """True or False.

    Raises:
        TypeError: it is neither.
    """
    if value is True or value is False:
        return bool(value)
    if isinstance(value, np.bool_):
        return bool(value)
    raise TypeError(
        f"{name} must be True or False, got {type(value).__name__}; give one of these"
    )


def function(name: str, value: Any) -> Callable[..., Any]:
    """What can be called.

    Raises:
        TypeError: it can't be.
    """
    if callable(value):
        return value
    raise TypeError(
        f"{name} must be a function, got {type(value).__name__}; arguments go to what "
        "a transform gives, as in grad(fn)(x)"
    )


def number(name: str, value: Any) -> float:
    """A real number of Python's or numpy's, or in a tensor of one.

    Raises:
        TypeError: it is none.
        ValueError: it is too large.
    """
    is_one = isinstance(value, Real) or (isinstance(value, Tensor) and value.size == 1)
    if not is_one:
        raise TypeError(
            f"{name} must be a number, got {type(value).__name__}; give float(...) of "
            "it"
        )
    try:
        return float(value)
    except OverflowError:
        raise ValueError(
            f"{name} is too large for a float, {value}; scale it"
        ) from None


def integer(name: str, value: Any) -> int:
    """An integer of Python's or numpy's, or in a tensor of one.

    Raises:
        TypeError: it is none, or a Boolean.
    """
    is_tensor = isinstance(value, Tensor)
    if is_tensor and value.size == 1 and "int" in str(value.dtype):
        return int(value)
    if not is_tensor and not isinstance(value, (bool, np.bool_)):
        with suppress(TypeError):
            return index(value)
    got = repr(value) if isinstance(value, (bool, float, str)) else type(value).__name__
    raise TypeError(f"{name} must be an integer, got {got}; give int(...) of it")
