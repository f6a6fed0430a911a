"""Recording a function apart, while another record may listen outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paddle import Tensor

from ...paddle_side.interception import listening
from ...paddle_side.listener import listener, not_listening
from .operations import Value
from .record import Tracer


def recorded_inside(
    fn: Callable[[list[Tensor]], Sequence[Tensor]],
    tensors: Sequence[Tensor],
    is_unlikely: bool = False,
) -> tuple[Tracer, list[Value]]:
    """Return the record of a function, run on these tensors' memory, and its results.

    Args:
        is_unlikely: whether the function is not meant to run at these values, so that
            an operator may fail at them.
    """
    outer: Any = listener()
    with not_listening():
        leaves = [x.detach() for x in tensors]
        for leaf, x in zip(leaves, tensors, strict=True):
            leaf.stop_gradient = x.stop_gradient
        record = Tracer(leaves, outer, is_unlikely)
    with listening(record):
        try:
            outputs = fn(leaves)
        except Exception:  # of which Paddle may have made another
            if record.failure is not None:
                raise record.failure from None
            raise
        if record.failure is not None:
            raise record.failure
    with not_listening():
        return record, [record.value_of(y) for y in outputs]
