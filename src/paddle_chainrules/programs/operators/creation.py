"""Sequences of values between two computed ends."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from .calls import BatchCall, Call, JetCall, NoRule
from .entry import batch_of, formula_of, jet_of, reverse_of
from .known_shapes import define_of_known_shape
from .series import total
from .shared import ops, shaped_as

define_of_known_shape("linspace", differentiable=(0, 1))
define_of_known_shape("logspace", differentiable=(0, 1, 3))


def steps_like(row: Tensor) -> Tensor:
    """Return how far each value of a row is from the first to the last, from 0 to 1."""
    count = row.shape[-1]
    return paddle.arange(count, dtype="int64").astype(row.dtype) / max(count - 1, 1)


@reverse_of("linspace")
def _linspace_reverse(call: Call) -> list[Any]:
    steps, g = steps_like(call.out), call.cotangent
    shares = (1.0 - steps, steps)
    results = [
        ops.cast(shaped_as(ops.sum(g * share, [], None, False), end), end.dtype)
        if i in call.wanted
        else None
        for i, (end, share) in enumerate(zip(call.args, shares, strict=False))
    ]
    return [*results, *[None] * 4]


@jet_of("linspace")
def _linspace_jet(call: JetCall) -> list[Any]:
    steps = steps_like(call.out)
    above = zip(call.args[0][1:], call.args[1][1:], strict=True)
    return [[call.out, *(_between(start, stop, steps) for start, stop in above)]]


@batch_of("linspace")
def _linspace_batch(call: BatchCall) -> list[Any]:
    row = paddle.zeros(call.shapes[0], call.args[3])
    if not row.is_floating_point():
        raise NoRule("whole numbers in a row, which are rounded; cast the row instead")
    steps = steps_like(row)
    start, stop = (ops.reshape(end, [-1, 1]) for end in call.args[:2])
    return [_between(start, stop, steps)]


def _between(start: Tensor | None, stop: Tensor | None, steps: Tensor) -> Any:
    ends = (start, 1.0 - steps), (stop, steps)
    return total(ops.cast(x, steps.dtype) * s for x, s in ends if x is not None)


@formula_of("logspace", keeps_kernel=True)
def _logspace(
    start: Tensor, stop: Tensor, count: Tensor, base: Tensor, dtype: Any, *rest: Any
) -> Tensor:
    powers = paddle.linspace(start, stop, count, dtype)
    return ops.exp(powers * ops.log(ops.cast(base, dtype)))
