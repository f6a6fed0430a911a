"""Operators that draw, with derivatives of every order on the draw of their call."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ..autograd.hooked_layers import HookedLayer
from ..dtypes import single
from ..watch import RuleContext, is_traced


class _Scaled(HookedLayer):
    """``x`` times slopes that are drawn with the value, and are no part of a graph."""

    @staticmethod
    def forward(
        ctx: Any, draw: Callable[[Tensor], tuple[Tensor, Tensor]], x: Tensor
    ) -> Tensor:
        value, ctx.slopes = draw(x)
        return value

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        return cotangent * ctx.slopes


class _Softmax(HookedLayer):
    """A softmax of ``x / temperature`` and noise, known by its value."""

    @staticmethod
    def forward(
        ctx: Any,
        value: Callable[[Tensor], Tensor],
        temperature: float,
        axis: int,
        x: Tensor,
    ) -> Tensor:
        result = value(x)
        ctx.output = result.detach()
        ctx.temperature_and_axis = temperature, axis
        ctx.save_for_backward(x)
        return result

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        (x,), output = ctx.saved_tensor(), ctx.output
        temperature, axis = ctx.temperature_and_axis
        y = output
        if paddle.is_grad_enabled():
            y = _Softmax.apply(lambda _: output.clone(), *ctx.temperature_and_axis, x)
        inner = (cotangent * y).sum(axis, keepdim=True)
        grad: Tensor = y * (cotangent - inner) * (1 / temperature)
        return grad


def dropout(
    operator: Any,
    context: RuleContext,
    x: Tensor,
    seed_tensor: Any,
    p: Any,
    is_test: bool,
    mode: str,
    seed: int,
    fixed: bool,
) -> Any:
    """Run dropout; in evaluation it is the identity, or a multiple of it."""
    if seed_tensor is not None or not _is_differentiated_again(context, x):
        return operator(x, seed_tensor, p, is_test, mode, seed, fixed)
    if is_test and mode == "upscale_in_train":
        return paddle.assign(x)
    attrs = float(p), is_test, mode

    def draw(x: Tensor) -> tuple[Tensor, Tensor]:
        ones = paddle.ones_like(x)
        if is_test:
            rest = None, *attrs, seed, fixed
            return operator(x, *rest), operator(ones, *rest)
        attributes = zip(_DROPOUT_ATTRIBUTES, (*attrs, seed, fixed), strict=True)
        value, mask = _LEGACY_OPS.dropout(x, *chain.from_iterable(attributes))
        return value, paddle._C_ops.dropout_grad(mask, ones, *attrs)

    return _Scaled.apply(draw, x)


_LEGACY_OPS: Any = paddle._legacy_C_ops
"""Operators with what they have drawn, which Paddle shows in its older calls alone."""

_DROPOUT_ATTRIBUTES = (
    "dropout_prob",
    "is_test",
    "dropout_implementation",
    "seed",
    "fix_seed",
)


def rrelu(
    operator: Any,
    context: RuleContext,
    x: Tensor,
    lower: float,
    upper: float,
    is_test: bool,
) -> Any:
    """Run rrelu; the slopes follow the values' signs, and are drawn below zero."""
    if not _is_differentiated_again(context, x):
        return operator(x, lower, upper, is_test)
    attrs = "lower", lower, "upper", upper, "is_test", is_test

    def draw(x: Tensor) -> tuple[Tensor, Tensor]:
        value, slopes = _LEGACY_OPS.rrelu(x, *attrs)
        return value, slopes

    return _Scaled.apply(draw, x)


def gumbel_softmax(
    operator: Any,
    context: RuleContext,
    x: Tensor,
    temperature: float,
    hard: bool,
    axis: int,
) -> Tensor:
    """Run gumbel_softmax with the temperature, and soft gradients of hard choices.

    Paddle's gradient forgets both.
    """
    if not is_traced(x):
        result: Tensor = operator(x, temperature, hard, axis)
        return result

    def value(x: Tensor) -> Tensor:
        sample: Tensor = operator(x, temperature, False, axis)
        return sample

    soft: Tensor = _Softmax.apply(value, single(temperature), axis, x)
    if not hard:
        return soft
    winner = soft.detach().argmax(axis)
    chosen = F.one_hot(winner, soft.shape[axis]).astype(soft.dtype)
    choice: Tensor = chosen.moveaxis(-1, axis) + (soft - soft.detach())
    return choice


def _is_differentiated_again(context: RuleContext, x: Tensor) -> bool:
    """Tell whether its derivative may be differentiated once more."""
    return is_traced(x) and context.create_graph([x])
