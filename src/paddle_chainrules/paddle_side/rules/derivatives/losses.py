"""Losses, differentiated by their labels and weights too."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ...dtypes import single
from ...listener import listener, not_listening
from ...watch import Context, is_traced


def binary_cross_entropy(x: Tensor, label: Tensor) -> Tensor:
    def logs(x: Tensor) -> Tensor:
        least = paddle.full_like(x, -100.0)
        inside = x > float(np.exp(-100.0))
        safe = paddle.where(inside, x, paddle.ones_like(x))
        return paddle.where(inside, paddle.log(safe), least)

    return -(label * logs(x) + (1 - label) * logs(1 - x))


def cross_entropy_with_logits(
    x: Tensor, label: Tensor, pos_weight: Any, normalize: bool, ignored: int
) -> Tensor | None:
    if normalize:
        return None
    tail = F.softplus(-x, threshold=80)
    weight = 1 if pos_weight is None else pos_weight
    loss = (1 - label) * x + weight * tail
    there = (label != ignored).astype(x.dtype)
    return loss * there


def soft_cross_entropy(operator: Any, context: Context, *args: Any) -> Any:
    """Of labels that are probabilities: Paddle's kernel has them sum to one."""
    x, label, soft, use_softmax, *_, axis = args
    if not (soft and (is_traced(x) or is_traced(label))):
        return operator(*args)
    if use_softmax:
        logs = F.log_softmax(x, axis)
    else:
        safe = paddle.where(x > 0, x, paddle.ones_like(x))
        logs = paddle.where(x > 0, paddle.log(safe), paddle.full_like(x, -1e20))
    return paddle.exp(logs), -(label * logs).sum(axis, keepdim=True)


def softmax_with_cross_entropy(
    operator: Any, context: Context, *args: Any, **kwargs: Any
) -> Any:
    """The softmax beside the loss by itself: its gradient crashes Paddle's kernel."""
    found = operator(*args, **kwargs)
    if not isinstance(found, tuple | list):
        return found
    logits = kwargs["logits"] if "logits" in kwargs else args[0]
    axis = kwargs.get("axis", args[6] if len(args) > 6 else -1)
    return (found[0], F.softmax(logits, axis))


def kl_divergence(
    x: Tensor, target: Tensor, reduction: str, log_target: bool
) -> Tensor | None:
    if reduction != "none":
        return None
    if log_target:
        return paddle.exp(target) * (target - x)
    safe = paddle.where(target > 0, target, paddle.ones_like(target))
    return paddle.where(target > 0, safe * (paddle.log(safe) - x), paddle.zeros_like(x))


def nll_loss(
    x: Tensor, label: Tensor, weight: Any, ignored: int, reduction: str
) -> Any:
    # With more axes Paddle's kernel writes past its memory where labels are ignored.
    if not is_traced(weight) and (x.ndim == 2 or reduction == "none"):
        return None
    classes = x.shape[1]
    if weight is None:
        weight = paddle.ones([classes], x.dtype)
    there = label != ignored
    index = paddle.where(there, label, paddle.zeros_like(label))
    chosen = F.one_hot(index, classes).astype(x.dtype)
    if x.ndim > 2:
        chosen = chosen.moveaxis(-1, 1)
    shape = [1, classes, *[1] * (x.ndim - 2)]
    weights = (chosen * weight.reshape(shape)).sum(1) * there.astype(x.dtype)
    loss, total = -(chosen * x).sum(1) * weights, weights.sum()
    if reduction == "mean":
        return loss.sum() / total, total
    return (loss.sum() if reduction == "sum" else loss), total


def gaussian_nll_loss(
    operator: Any, context: Context, *args: Any, **kwargs: Any
) -> Any:
    given = inspect.signature(operator).bind(*args, **kwargs)
    given.apply_defaults()
    x, label, variance, full, epsilon, reduction, *_ = given.arguments.values()
    if not is_traced(variance) and listener() is None:
        return operator(*args, **kwargs)
    with paddle.no_grad(), not_listening():
        operator(*args, **kwargs)  # which checks its arguments
    if variance.shape == x.shape[:-1]:
        variance = variance.unsqueeze(-1)
    variance = paddle.clip(variance, min=epsilon)
    loss = 0.5 * (paddle.log(variance) + (x - label) ** 2 / variance)
    if full:
        loss = loss + 0.5 * float(np.log(2 * np.pi))
    return {"none": loss, "sum": loss.sum(), "mean": loss.mean()}[reduction]


def label_smooth(label: Tensor, prior: Any, epsilon: float) -> Tensor | None:
    if prior is None:
        return None
    epsilon = single(epsilon)  # as Paddle's kernel has them
    return single(1 - epsilon) * label + epsilon * prior


def masked_softmax(x: Tensor, mask: Tensor) -> Tensor:
    return F.softmax(x + mask, -1)
