"""Arguments of operators, as operations note them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from paddle import Tensor

from ...paddle_side.traced_numbers import TracedNumber
from .operations import Value, tensors_in


class OperatorListener(Protocol):
    """An object that notes operators: a record."""

    def value_of(self, tensor: Tensor) -> Value:
        """Return the value that a tensor stands for."""

    def is_fixed(self, tensor: Tensor) -> bool:
        """Tell whether a tensor has the same elements at each call."""

    def fail(self, reason: str) -> Any:
        """Give up."""


def in_values(record: OperatorListener, arg: Any) -> Any:
    """Return an argument with values of the record in place of tensors.

    Raises:
        CaptureError: its shape, or the argument itself, may differ at the next call.
    """
    if isinstance(arg, Tensor):
        return record.value_of(arg)
    if type(arg) in (list, tuple):
        return type(arg)(in_values(record, each) for each in arg)
    if isinstance(arg, slice) and (bounds := tensors_in([arg])):
        if not all(map(record.is_fixed, bounds)):
            record.fail(
                "a slice goes from or to a tensor, so that shapes depend on values; "
                "give Python's ints"
            )
        given = arg.start, arg.stop, arg.step
        return slice(*(int(x) if isinstance(x, Tensor) else x for x in given))
    if type(arg) is TracedNumber:
        arg.refuse()
    if isinstance(arg, np.generic):
        return arg.item()
    if isinstance(arg, np.ndarray):
        record.fail(
            "an operator is given an array of numpy, which may change; give it as "
            "a tensor, by an argument of the function, or a list in brackets"
        )
    return arg
