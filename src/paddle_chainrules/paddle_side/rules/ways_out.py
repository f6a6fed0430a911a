"""Numbers that leave Paddle while a graph is recorded, which no derivative sees."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from ..watch import Context, is_traced


class ConstantWarning(UserWarning):
    """Numbers were taken out of what is differentiated: constants from there on."""


WAYS_OUT = (
    "numpy",
    "item",
    "tolist",
    "__array__",
    "__float__",
    "__int__",
    "__complex__",
)
"""Attributes of tensors that give their numbers."""


def taking_out(
    operator: Any, context: Context, tensor: Any, *args: Any, **kwargs: Any
) -> Any:
    """Say so where the caller's own code does it, and not Paddle's, as to print."""
    if is_traced(tensor) and not context.by_caller and _is_callers(sys._getframe(2)):
        name = operator.__name__.strip("_")
        warnings.warn(
            f"{name}() takes numbers out of what is differentiated, and what is "
            "computed of them is a constant to the derivative, as to Paddle's own "
            "backward; compute with tensors, or call detach() before where a constant "
            "is meant",
            ConstantWarning,
            stacklevel=3,
        )
    return operator(tensor, *args, **kwargs)


def _is_callers(frame: Any) -> bool:
    module = frame.f_globals.get("__name__", "")
    return module.partition(".")[0] not in ("paddle", "paddle_chainrules")
