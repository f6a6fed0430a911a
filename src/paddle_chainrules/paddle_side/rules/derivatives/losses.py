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
from ...watch import RuleContext, is_traced

ops: Any = paddle._C_ops


def bounded_log(x: Tensor, threshold: float, floor: float) -> Tensor:
    """Return logarithms of values above ``threshold``, and ``floor`` elsewhere."""
    inside = x > threshold
    logs = ops.log(ops.where(inside, x, paddle.ones_like(x)))
    result: Tensor = ops.where(inside, logs, paddle.full_like(x, floor))
    return result


def cross_entropy_with_logits(
    x: Tensor, label: Tensor, pos_weight: Any, normalize: bool, ignored: int
) -> Tensor:
    # Paddle ignores labels by their integer parts, and counts them by themselves.
    kept_labels = ops.cast(ops.cast(label, paddle.int32) != ignored, x.dtype)
    tail = ops.softplus(-x, 1.0, 80.0)
    weighted = tail if pos_weight is None else pos_weight * tail
    loss = ((1.0 - label) * x + weighted) * kept_labels
    if not normalize:
        return loss
    counted = ops.abs(label - float(ignored)) >= 1e-6
    count = ops.sum(ops.cast(counted, x.dtype), [], None, False)
    return loss / ops.maximum(count, paddle.full_like(count, single(1e-5)))


def logarithms(x: Tensor, use_softmax: bool, axis: int) -> Tensor:
    """Return logarithms of class probabilities as in cross entropy; -1e20 for zero."""
    if not use_softmax:
        return bounded_log(x, 0.0, -1e20)
    result: Tensor = ops.log_softmax(x, axis)
    return result


def soft_cross_entropy(operator: Any, context: RuleContext, *args: Any) -> Any:
    """Return the loss of labels that are probabilities.

    Paddle's kernel assumes that they sum to one.
    """
    x, label, soft, use_softmax, *_, axis = args
    if not (soft and (is_traced(x) or is_traced(label))):
        return operator(*args)
    logs = logarithms(x, use_softmax, axis)
    return paddle.exp(logs), -(label * logs).sum(axis, keepdim=True)


def softmax_with_cross_entropy(
    operator: Any, context: RuleContext, *args: Any, **kwargs: Any
) -> Any:
    """Return the loss, and softmax anew: Paddle's gradient of its softmax crashes."""
    result = operator(*args, **kwargs)
    if not isinstance(result, tuple | list):
        return result
    logits = kwargs["logits"] if "logits" in kwargs else args[0]
    axis = kwargs.get("axis", args[6] if len(args) > 6 else -1)
    return (result[0], F.softmax(logits, axis))


def nll_loss(
    x: Tensor, label: Tensor, weight: Any, ignored: int, reduction: str
) -> Any:
    # Paddle's kernel of sums writes past its memory where labels are ignored.
    if not is_traced(weight) and reduction == "none":
        return None
    classes = x.shape[1]
    if weight is None:
        weight = paddle.ones([classes], x.dtype)
    is_counted = label != ignored
    index = paddle.where(is_counted, label, paddle.zeros_like(label))
    chosen = F.one_hot(index, classes).astype(x.dtype)
    if x.ndim > 2:
        chosen = chosen.moveaxis(-1, 1)
    shape = [1, classes, *[1] * (x.ndim - 2)]
    weights = (chosen * weight.reshape(shape)).sum(1) * is_counted.astype(x.dtype)
    loss, total = -(chosen * x).sum(1) * weights, weights.sum()
    if reduction == "mean":  # where nothing has a weight, Paddle gives 0
        divisor = paddle.where(total.abs() > 0, total, paddle.ones_like(total))
        return loss.sum() / divisor, total
    return (loss.sum() if reduction == "sum" else loss), total


def gaussian_nll_loss(
    operator: Any, context: RuleContext, *args: Any, **kwargs: Any
) -> Any:
    bound = inspect.signature(operator).bind(*args, **kwargs)
    bound.apply_defaults()
    x, label, variance, full, epsilon, reduction, *_ = bound.arguments.values()
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
