"""Keys that tell the programs of a function apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from paddle import Tensor, get_default_dtype
from paddle.base import core as _core
from paddle.device import get_device

from ...errors import CaptureError
from ...paddle_side.devices import ON_CPU_ALONE
from ...paddle_side.dtypes import casts_automatically

core: Any = _core


def key_of(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Return the key of a program: how new tensors are made, and the leaves' kinds.

    Raises:
        TypeError: something has no hash.
    """
    return (*modes()[1:], *kinds_of_leaves(leaves))


MODES: Sequence[Callable[[], Any]] = (
    *(core._has_grad, casts_automatically, get_default_dtype),
    *(() if ON_CPU_ALONE else (get_device,)),
)
"""What beside a call's arguments decides which program serves.

That is whether gradients are on, and how new tensors are made.
"""


def modes() -> tuple[Any, ...]:
    """Return the values of :data:`MODES`."""
    return tuple([mode() for mode in MODES])


def kinds_of_leaves(leaves: Sequence[Any]) -> tuple[Any, ...]:
    """Return dtypes, shapes and devices of tensors, and other leaves by value.

    Raises:
        TypeError: something has no hash.
    """
    key: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            key.append(id(leaf.dtype))  # of which there is one each, with a slow hash
            key += leaf.shape
            if not ON_CPU_ALONE:
                key.append(str(leaf.place))
        else:
            key.append(exactly(leaf))
    return tuple(key)


def exactly(value: Any) -> Any:
    """Return a key that is equal for the same values of the same types.

    It differs for 1, 1.0 and True.

    Raises:
        CaptureError: the value is equal to itself alone, whatever it comes to hold.
    """
    kind = type(value)
    if may_change(value):
        raise CaptureError(
            f"an argument can't be part of the cache key: a {kind.__name__} is equal "
            "to itself alone, also after a change; give its values, or an object that "
            "compares by them, such as a frozen dataclass"
        )
    if isinstance(value, float):  # also of NumPy; minus zero is another
        return kind, value.hex()
    if isinstance(value, np.generic):
        return kind, value.dtype.str, value.tobytes()
    if kind is complex:
        return kind, repr(value)
    if kind in (tuple, frozenset):
        return kind, tuple(map(exactly, value))
    return kind, value


HEAP = 1 << 9
"""The flag of types that are made by Python's ``class``."""


def may_change(value: Any) -> bool:
    """Tell whether it is compared by identity alone, and has attributes to set."""
    kind: Any = type(value)
    return (
        kind.__eq__ is object.__eq__
        and kind.__hash__ is object.__hash__
        and bool(kind.__flags__ & HEAP)
        and bool(getattr(value, "__dict__", None) or getattr(kind, "__slots__", None))
        and not module_of(kind).startswith("paddle_chainrules.")
    )


def module_of(kind: type) -> str:
    """Return the module of a class; nothing where it has none, as a class of SymPy."""
    return getattr(kind, "__module__", "") or ""
