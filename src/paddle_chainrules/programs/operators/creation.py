"""Sequences of values between two computed ends."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.rules.derivatives.formulas import by_rules, refuse_derivative
from .calls import BatchCall, Call, JetCall, NoRule
from .entry import batch_of, formula_of, jet_of, reverse_of, tape_of
from .known_shapes import define_of_known_shape
from .series import total
from .shared import ops, shaped_as

define_of_known_shape("linspace", differentiable=(0, 1))
define_of_known_shape("logspace", differentiable=(0, 1, 3))


def fractions_like(row: Tensor) -> Tensor:
    """Return the fraction from 0 to 1 at which each value lies between both ends."""
    count = row.shape[-1]
    return paddle.arange(count, dtype="int64").astype(row.dtype) / max(count - 1, 1)


@reverse_of("linspace")
def _linspace_reverse(call: Call) -> list[Any]:
    fractions, g = fractions_like(call.out), call.cotangent
    weights = (1.0 - fractions, fractions)
    grads = [
        ops.cast(shaped_as(ops.sum(g * weight, [], None, False), end), end.dtype)
        if i in call.wanted
        else None
        for i, (end, weight) in enumerate(zip(call.args, weights, strict=False))
    ]
    return [*grads, *[None] * 4]


@jet_of("linspace")
def _linspace_jet(call: JetCall) -> list[Any]:
    fractions = fractions_like(call.out)
    higher = zip(call.args[0][1:], call.args[1][1:], strict=True)
    return [
        [call.out, *(_interpolated(start, stop, fractions) for start, stop in higher)]
    ]


@batch_of("linspace")
def _linspace_batch(call: BatchCall) -> list[Any]:
    row = paddle.zeros(call.shapes[0], call.args[3])
    if not row.is_floating_point():
        raise NoRule("whole numbers in a row, which are rounded; cast the row instead")
    fractions = fractions_like(row)
    start, stop = (ops.reshape(end, [-1, 1]) for end in call.args[:2])
    return [_interpolated(start, stop, fractions)]


def _interpolated(start: Tensor | None, stop: Tensor | None, fractions: Tensor) -> Any:
    terms = (start, 1.0 - fractions), (stop, fractions)
    return total(
        ops.cast(x, fractions.dtype) * weight for x, weight in terms if x is not None
    )


@formula_of("logspace", keeps_kernel=True)
def _logspace(
    start: Tensor, stop: Tensor, count: Tensor, base: Tensor, dtype: Any, *rest: Any
) -> Tensor:
    powers = paddle.linspace(start, stop, count, dtype)
    return ops.exp(powers * ops.log(ops.cast(base, dtype)))


tape_of("full")(refuse_derivative("full", 1))

tape_of("full_like")(refuse_derivative("full_like", 1))

tape_of("linspace")(by_rules("linspace", 0, 1))

tape_of("logspace")(by_rules("logspace", 0, 1, 3))
