"""Losses with operators of their own."""

from __future__ import annotations

import math
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.dtypes import single
from ....paddle_side.interception import RAW, by_older_interface
from ....paddle_side.rules.derivatives import losses as loss_rules
from ....paddle_side.rules.derivatives.formulas import by_rules, where_traced
from ....paddle_side.rules.derivatives.losses import (
    bounded_log,
    cross_entropy_with_logits,
)
from ..axes import ANYWHERE, ELEMENTS, FIRST
from ..calls import Call
from ..entry import define, formula_of, reverse_of
from ..kernels import by_kernel
from ..manipulation.scattering import masked
from ..reductions.reductions import share
from ..shared import broadcast_gradients, ops
from .labels import checked_classes


def _nll_loss(
    x: Tensor, label: Tensor, weight: Any, ignore_index: int, reduction: str
) -> Any:
    """Compute sums by the formula: Paddle's write elsewhere if labels are ignored."""
    if reduction == "none":
        return RAW.nll_loss(x, label, weight, ignore_index, reduction)
    return _nll_loss_formula(x, label, weight, ignore_index, reduction)


def _define_alignment_loss(name: str, *attr_names: str) -> None:
    """Define a loss over all alignments, with the gradient that its kernel computes.

    Args:
        attr_names: of its attributes.
    """

    def run(*args: Any) -> Any:
        tensors, attrs = args[:4], args[4:]
        attributes = [
            item for pair in zip(attr_names, attrs, strict=True) for item in pair
        ]
        return by_older_interface(name, *tensors, *attributes)

    define(name, run=run, shown=1, differentiable=(0,), fixed=(1,))
    by_kernel(name, outputs=f"loss {name}grad")


define("bce_loss", axes=ELEMENTS, tape=by_rules("bce_loss", 1))
define("bce_loss_grad", axes=ELEMENTS)
define(
    "sigmoid_cross_entropy_with_logits",
    axes=ANYWHERE,
    tape=where_traced(loss_rules.cross_entropy_with_logits, 0, 1, 2),
)
define(
    "nll_loss",
    run=_nll_loss,
    differentiable=(0, 2),
    axes=FIRST,
    tape=where_traced(loss_rules.nll_loss, 0, 2),
)
define("kldiv_loss", axes=ANYWHERE, tape=by_rules("kldiv_loss", 1))
define("huber_loss", axes=ELEMENTS)
define("label_smooth", axes=ANYWHERE, tape=by_rules("label_smooth", 1))
define("log_loss", differentiable=(0,), axes=ELEMENTS)
define("identity_loss", axes=ANYWHERE)
_define_alignment_loss("warpctc", "blank", "norm_by_times")
_define_alignment_loss("warprnnt", "blank", "fastemit_lambda")


@reverse_of("bce_loss")
def _bce_loss_reverse(call: Call) -> list[Any]:
    x, label = call.args
    g = call.cotangent
    x_grad = label_grad = None
    if 0 in call.wanted:
        x_grad = ops.bce_loss_grad(x, label, g)
    if 1 in call.wanted:
        label_grad = g * (_log_of_probability(1.0 - x) - _log_of_probability(x))
    return [x_grad, label_grad]


@formula_of("bce_loss")
def _bce_loss_formula(x: Tensor, label: Tensor) -> Tensor:
    logs = label * _log_of_probability(x)
    return -(logs + (1.0 - label) * _log_of_probability(1.0 - x))


@formula_of("bce_loss_grad")
def _bce_loss_grad_formula(x: Tensor, label: Tensor, out_grad: Tensor) -> Tensor:
    variance = (1.0 - x) * x
    min_variance = paddle.full_like(x, single(1e-12))
    return out_grad * (x - label) / ops.maximum(variance, min_variance)


formula_of("sigmoid_cross_entropy_with_logits")(cross_entropy_with_logits)


@formula_of("label_smooth")
def _label_smooth_formula(label: Tensor, prior: Any, epsilon: float) -> Tensor:
    epsilon = single(epsilon)  # as Paddle's kernel has them
    smoothed = label * single(1.0 - epsilon)
    if prior is None:
        return smoothed + single(epsilon / max(label.shape[-1], 1))
    return smoothed + ops.reshape(prior, [*[1] * (label.ndim - 1), -1]) * epsilon


@formula_of("nll_loss")
def _nll_loss_formula(
    x: Tensor, label: Tensor, weight: Any, ignore_index: int, reduction: str
) -> Any:
    if weight is None:
        weight = paddle.ones([x.shape[1]], x.dtype)
    is_valid = label != ignore_index
    label = checked_classes(label, is_valid, x.shape[1])
    chosen = ops.squeeze(ops.take_along_axis(x, ops.unsqueeze(label, [1]), 1), [1])
    weights = ops.gather(weight, ops.reshape(label, [-1]), 0)
    weights = masked(ops.reshape(weights, label.shape), is_valid)
    loss = masked(-(chosen * weights), is_valid)
    total = ops.sum(weights, [], None, False)
    if reduction == "none":
        return loss, paddle.zeros([], x.dtype)
    loss = ops.sum(loss, [], None, False)
    if reduction == "mean":  # where nothing has a weight, Paddle gives 0
        loss = loss / ops.where(ops.abs(total) > 0, total, paddle.ones_like(total))
    return loss, total


@formula_of("kldiv_loss")
def _kldiv_loss_formula(
    x: Tensor, label: Tensor, reduction: str, log_target: bool
) -> Tensor:
    loss = _divergences(x, label, log_target)
    if reduction == "none":
        return loss
    total = ops.sum(loss, [], None, False)
    divisors = {"sum": [], "mean": x.shape, "batchmean": x.shape[:1]}
    return share(total, divisors[reduction])


@formula_of("huber_loss")
def _huber_loss_formula(x: Tensor, label: Tensor, delta: float) -> Tensor:
    delta = single(delta)
    distance = label - x
    size = ops.abs(distance)
    is_near = size <= delta
    return ops.where(
        is_near, distance * distance * 0.5, size * delta - (0.5 * delta * delta)
    )


@reverse_of("huber_loss")
def _huber_loss_reverse(call: Call) -> list[Any]:
    x, label, delta = call.args
    slope = call.cotangent * ops.clip(x - label, -single(delta), single(delta))
    return broadcast_gradients(call, lambda: slope, lambda: -slope, None)


@formula_of("log_loss")
def _log_loss_formula(x: Tensor, label: Tensor, epsilon: float) -> Tensor:
    epsilon = single(epsilon)
    complement = (1.0 - label) * ops.log((1.0 - x) + epsilon)
    return -(label * ops.log(x + epsilon)) - complement


@formula_of("identity_loss")
def _identity_loss_formula(x: Tensor, reduction: int) -> Tensor:
    if reduction == 2:
        return x * 1.0
    total = ops.sum(x, [], None, False)
    return total if reduction == 0 else share(total, x.shape)


def _log_of_probability(x: Tensor) -> Tensor:
    """Return the logarithm, at least -100, as in binary cross entropy."""
    return bounded_log(x, math.exp(-100.0), -100.0)


def _divergences(x: Tensor, target: Tensor, log_target: bool) -> Tensor:
    """Return each element's share of the Kullback-Leibler divergence."""
    if log_target:
        logs: Tensor = ops.exp(target) * (target - x)
        return logs
    term = target * (bounded_log(target, 0.0, 0.0) - x)
    result: Tensor = ops.where(target <= 0, paddle.zeros_like(term), term)
    return result
