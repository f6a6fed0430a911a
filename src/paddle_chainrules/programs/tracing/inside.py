"""Tracing a function separately, while an outer tracer may listen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paddle import Tensor

from ...paddle_side.interception import listening
from ...paddle_side.listener import listener, not_listening
from .operations import Value
from .record import Tracer


def trace_inside(
    fn: Callable[[list[Tensor]], Sequence[Tensor]],
    tensors: Sequence[Tensor],
    is_unlikely: bool = False,
) -> tuple[Tracer, list[Value]]:
    """Trace a function on these tensors' memory; return the tracer and the outputs.

    Args:
        is_unlikely: whether the function is not meant to run at these values, so that
            an operator may fail at them.
    """
    outer: Any = listener()
    with not_listening():
        leaves = [x.detach() for x in tensors]
        for leaf, x in zip(leaves, tensors, strict=True):
            leaf.stop_gradient = x.stop_gradient
        tracer = Tracer(leaves, outer, is_unlikely)
    with listening(tracer):
        try:
            outputs = fn(leaves)
        except Exception:  # of which Paddle may have made another
            if tracer.failure is not None:
                raise tracer.failure from None
            raise
        if tracer.failure is not None:
            raise tracer.failure
    with not_listening():
        return tracer, [tracer.value_of(y) for y in outputs]
