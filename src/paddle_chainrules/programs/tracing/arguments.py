"""Arguments of operators, as operations note them."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from paddle import Tensor

from ...paddle_side.traced_numbers import TracedNumber
from .operations import Value, tensors_in


class OperatorListener(Protocol):
    """A tracer, as far as arguments are concerned."""

    def value_of(self, tensor: Tensor) -> Value:
        """Return the value that a tensor stands for."""

    def is_fixed(self, tensor: Tensor) -> bool:
        """Tell whether a tensor has the same elements at each call."""

    def fail(self, reason: str) -> Any:
        """Give up tracing, and raise."""


def values_for_tensors(tracer: OperatorListener, arg: Any) -> Any:
    """Return an argument with the tracer's values in place of tensors.

    Raises:
        CaptureError: its shape, or the argument itself, may differ at the next call.
    """
    if isinstance(arg, Tensor):
        return tracer.value_of(arg)
    if type(arg) in (list, tuple):
        return type(arg)(values_for_tensors(tracer, item) for item in arg)
    if isinstance(arg, slice) and (bounds := tensors_in([arg])):
        if not all(map(tracer.is_fixed, bounds)):
            tracer.fail(
                "a slice goes from or to a tensor, so that shapes depend on values; "
                "give Python's ints"
            )
        ends = arg.start, arg.stop, arg.step
        return slice(*(int(x) if isinstance(x, Tensor) else x for x in ends))
    if type(arg) is TracedNumber:
        arg.refuse()
    if isinstance(arg, np.generic):
        return arg.item()
    if isinstance(arg, np.ndarray):
        tracer.fail(
            "an operator is given an array of numpy, which may change; give it as "
            "a tensor, by an argument of the function, or a list in brackets"
        )
    return arg
