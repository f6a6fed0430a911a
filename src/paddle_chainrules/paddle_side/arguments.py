"""Checks of what is given for a flag, a function or a number, and its plain value."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from numbers import Integral, Real
from operator import index
from typing import Any, NoReturn

import numpy as np
from paddle import Tensor


def is_flag(value: Any) -> bool:
    """Tell whether it is a Boolean of Python's or numpy's."""
    return isinstance(value, (bool, np.bool_))


def is_number(value: Any) -> bool:
    """Tell whether it is a real number of Python's or numpy's, and no Boolean."""
    return isinstance(value, Real) and not is_flag(value)


def is_integer(value: Any) -> bool:
    """Tell whether it is an integer of Python's or numpy's, and no Boolean."""
    return isinstance(value, Integral) and not is_flag(value)


def checked_flag(name: str, value: Any) -> bool:
    """Return True or False.

    Raises:
        TypeError: it is neither.
    """
    if is_flag(value):
        return bool(value)
    raise TypeError(
        f"{name} must be True or False, got {type(value).__name__}; give one of these"
    )


def checked_function(name: str, value: Any) -> Callable[..., Any]:
    """Return what can be called.

    Raises:
        TypeError: it can't be.
    """
    if callable(value):
        return value
    raise TypeError(
        f"{name} must be a function, got {type(value).__name__}; arguments go to what "
        "a transform gives, as in grad(fn)(x)"
    )


def is_row_of(kind: type, value: Any) -> bool:
    """Tell whether it is a tuple, a list or the keys of a dict, all of that type."""
    return isinstance(value, tuple | list | dict) and {*map(type, value)} <= {kind}


def refuse_hand_made(kind: type, function: str) -> NoReturn:
    """Refuse to make an object that only a function of this package makes.

    Raises:
        TypeError: always.
    """
    raise TypeError(
        f"a {kind.__name__} comes from {function} alone, and can't be made of other "
        "arguments; call that, which gives one"
    )


def checked_number(name: str, value: Any) -> float:
    """Return a real number of Python's or numpy's, or that in a tensor of one.

    Integers of 64 bits stay exact.

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
    if is_integer(value) and -(2**63) <= value < 2**63:
        return int(value)
    try:
        return float(value)
    except OverflowError:
        raise ValueError(
            f"{name} is larger than any float, {value}; scale it"
        ) from None


def checked_integer(name: str, value: Any) -> int:
    """Return an integer of Python's or numpy's, or that in a tensor of one.

    Raises:
        TypeError: it is none, or a Boolean.
    """
    is_tensor = isinstance(value, Tensor)
    if is_tensor and value.size == 1 and "int" in str(value.dtype):
        return int(value)
    if not is_tensor and not is_flag(value):
        with suppress(TypeError):
            return index(value)
    got = repr(value) if isinstance(value, (bool, float, str)) else type(value).__name__
    raise TypeError(f"{name} must be an integer, got {got}; give int(...) of it")


def checked_chunk(value: Any) -> None:
    """Refuse what is no number of samples, or rows, to take at a time.

    Raises:
        ValueError: it is neither None nor an integer from 1 on.
    """
    if value is not None and (not is_integer(value) or value < 1):
        raise ValueError(
            f"chunk_size must be an integer from 1 on, or None, got {value!r}; leave "
            "it out for all at once"
        )
