"""Moves to another device, whose copies Paddle leaves out of its graph."""

from __future__ import annotations

from typing import Any

from paddle import Tensor
from paddle.autograd import PyLayer

from ..watch import RuleContext, is_traced


class _Move(PyLayer):
    """Copies a tensor to a place; its gradient goes back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, place: Any) -> Tensor:
        ctx.place = x.place
        return x._copy_to(place, True)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        return moved(cotangent, ctx.place)


def moved(x: Tensor, place: Any) -> Tensor:
    """Return a tensor at a place, on the graph of the original."""
    if x.place._equals(place):
        return x
    if not is_traced(x):
        copy: Tensor = x._copy_to(place, True)
        return copy
    result: Tensor = _Move.apply(x, place)
    return result


def copy_to(
    operator: Any, context: RuleContext, x: Tensor, place: Any, *rest: Any
) -> Tensor:
    """Run what ``x.cpu()`` and ``x.to(device)`` do, on the graph."""
    if is_traced(x) and not x.place._equals(place):
        return moved(x, place)
    result: Tensor = operator(x, place, *rest)
    return result
