"""Cross entropy of classes, or of probabilities of classes."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.rules.derivatives import losses as loss_rules
from ....paddle_side.rules.derivatives.losses import logarithms
from ..axes import AxesArgument
from ..calls import Call
from ..entry import define, formula_of, reverse_of
from ..manipulation.scattering import masked
from ..shared import one_hot, ops
from .labels import checked_classes

define(
    "cross_entropy_with_softmax",
    "input label soft_label use_softmax numeric_stable_mode ignore_index axis",
    differentiable=(0, 1),
    axes=AxesArgument("axis"),
    tape=loss_rules.soft_cross_entropy,
)
define(
    "cross_entropy_with_softmax_grad", differentiable=(1, 2), axes=AxesArgument("axis")
)


@reverse_of("cross_entropy_with_softmax")
def _cross_entropy_with_softmax_reverse(call: Call) -> list[Any]:
    x, label, soft, use_softmax, *attrs = call.args
    axis = attrs[-1]
    softmax, _ = call.outputs
    softmax_grad, g = call.cotangents
    x_grad = label_grad = None
    if g is not None and 0 in call.wanted:
        if soft:
            x_grad = g * _soft_label_slope(x, softmax, label, use_softmax, axis)
        else:
            x_grad = ops.cross_entropy_with_softmax_grad(
                label, softmax, g, soft, use_softmax, *attrs
            )
    if g is not None and 1 in call.wanted:
        label_grad = -(g * logarithms(x, use_softmax, axis))
    if softmax_grad is not None and 0 in call.wanted:
        through_softmax = softmax_grad
        if use_softmax:
            through_softmax = ops.softmax_grad(softmax, softmax_grad, axis)
        x_grad = through_softmax if x_grad is None else x_grad + through_softmax
    return [x_grad, label_grad, *(None for _ in call.args[2:])]


def _soft_label_slope(
    x: Tensor, softmax: Tensor, label: Tensor, use_softmax: bool, axis: int
) -> Tensor:
    """Return the slope for labels that are probabilities.

    Paddle's kernel assumes that they sum to one.
    """
    if use_softmax:
        return softmax * ops.sum(label, [axis], None, True) - label
    inside = x > 0
    return masked(-(label / ops.where(inside, x, paddle.ones_like(x))), inside)


@formula_of("cross_entropy_with_softmax")
def _cross_entropy_with_softmax_formula(
    x: Tensor,
    label: Tensor,
    soft_label: bool,
    use_softmax: bool,
    numeric_stable_mode: bool,
    ignore_index: int,
    axis: int,
) -> tuple[Tensor, Tensor]:
    axis %= x.ndim
    softmax = ops.softmax(x, axis) if use_softmax else x * 1.0
    logs = logarithms(x, use_softmax, axis)
    if soft_label:
        return softmax, -ops.sum(label * logs, [axis], None, True)
    if label.ndim < x.ndim:
        label = ops.unsqueeze(label, [axis])
    is_valid = label != ignore_index
    chosen = ops.take_along_axis(
        logs, checked_classes(label, is_valid, x.shape[axis]), axis
    )
    return softmax, masked(-chosen, is_valid)


@formula_of("cross_entropy_with_softmax_grad")
def _cross_entropy_with_softmax_grad_formula(
    label: Tensor,
    softmax: Tensor,
    loss_grad: Tensor,
    soft_label: bool,
    use_softmax: bool,
    numeric_stable_mode: bool,
    ignore_index: int,
    axis: int,
) -> Tensor:
    axis %= softmax.ndim
    if label.ndim < softmax.ndim:
        label = ops.unsqueeze(label, [axis])
    is_valid = label != ignore_index
    label = checked_classes(label, is_valid, softmax.shape[axis])
    chosen = ops.logical_and(one_hot(label, softmax, axis), is_valid)
    if use_softmax:
        slope = softmax - ops.cast(chosen, softmax.dtype)
        return masked(loss_grad * slope, ops.expand(is_valid, softmax.shape))
    slope = -1.0 / ops.where(chosen, softmax, paddle.ones_like(softmax))
    return loss_grad * masked(slope, chosen)
