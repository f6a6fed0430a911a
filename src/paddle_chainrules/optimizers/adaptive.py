"""Adam and optimizers like it, which compute the values of Paddle's classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ..transforms.containers.tree import Tree
from . import formulas
from .arguments import checked
from .formulas import Move, averages
from .parts import Mask, params_and_marks
from .schedules import Rate, rate_at
from .stepping import (
    apply_formula,
    formula_with_rate,
    optimizer_by_formula,
    with_weight_decay,
)
from .transformation import (
    Optimizer,
    full_like_params,
    in_dtype_of,
    none_like_params,
    scalar,
    step_number,
    with_state,
)


class Adam(NamedTuple):
    """The state of :func:`adam`, :func:`adamw`, :func:`adamax` and :func:`lamb`.

    Attributes:
        step: the steps so far, int64.
        beta1_pow: ``beta1 ** (step + 1)``, and so on, as Paddle has them.
        first: averages of the gradients.
        second: averages of their squares, or their largest entries.
        largest: the largest of ``second`` so far, None where it is not used.
    """

    step: Tensor
    beta1_pow: Tensor
    beta2_pow: Tensor
    first: Tree
    second: Tree
    largest: Tree


def _check_betas(name: str, beta1: float, beta2: float) -> None:
    for value in (beta1, beta2):
        if not 0.0 <= value < 1.0:
            raise ValueError(
                f"a beta of {name} is {value}, and must be from 0 to below 1; it says "
                "how much of an average stays from step to step"
            )


@checked
def adam(
    learning_rate: Rate = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    *,
    amsgrad: bool = False,
    weight_decay: float = 0.0,
    mask: Mask = None,
) -> Optimizer:
    """Return Adam, as ``paddle.optimizer.Adam``.

    Source: Kingma, Ba, "Adam: a method for stochastic optimization", 2015.

    Args:
        learning_rate: as for :func:`.first_order.sgd`.
        beta1: how much of the average of gradients stays from step to step.
        beta2: how much of the average of their squares stays.
        epsilon: added to the divisor.
        amsgrad: whether to divide by the largest average so far.
        weight_decay: as for :func:`.first_order.sgd`.
        mask: as for :func:`.first_order.sgd`.
    """
    _check_betas("adam", beta1, beta2)
    formula_and_numbers = formula_with_rate(
        formulas.adam, learning_rate, beta1, beta2, epsilon, powers=2
    )
    starts = [
        full_like_params,
        full_like_params,
        full_like_params if amsgrad else none_like_params,
    ]
    optimizer = optimizer_by_formula(Adam, formula_and_numbers, starts, (beta1, beta2))
    return with_weight_decay(optimizer, weight_decay, mask)


@checked
def adamw(
    learning_rate: Rate = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.01,
    *,
    amsgrad: bool = False,
    mask: Mask = None,
) -> Optimizer:
    """Return Adam with decoupled weight decay, as ``paddle.optimizer.AdamW``.

    Source: Loshchilov, Hutter, "Decoupled weight decay regularization", 2019.

    Args:
        learning_rate: as for :func:`.first_order.sgd`.
        beta1: as for :func:`adam`.
        beta2: as for :func:`adam`.
        epsilon: as for :func:`adam`.
        weight_decay: how much of the parameters goes at each step, times the rate.
        amsgrad: as for :func:`adam`.
        mask: the parameters that decay; all if None.
    """
    _check_betas("adamw", beta1, beta2)
    settings = beta1, beta2, epsilon
    _, numbers_of_adam = formula_with_rate(
        formulas.adam, learning_rate, *settings, powers=2
    )

    def numbers(state: Adam) -> Sequence[Any]:
        rate = rate_at(learning_rate, state.step)
        return rate * weight_decay, *numbers_of_adam(state)

    def formula(decay: Any, *inputs: Any) -> Move:
        *of_adam, p, is_on = inputs
        step, *moments = formulas.adam(*of_adam)
        return step + p * decay if is_on else step, *moments

    return optimizer_by_formula(
        Adam,
        (formula, numbers),
        [
            full_like_params,
            full_like_params,
            full_like_params if amsgrad else none_like_params,
        ],
        (beta1, beta2),
        partial(params_and_marks, mask=mask, name="adamw"),
    )


@checked
def adamax(
    learning_rate: Rate = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    *,
    weight_decay: float = 0.0,
    mask: Mask = None,
) -> Optimizer:
    """Return Adam by largest entries in place of squares: ``paddle.optimizer.Adamax``.

    Args:
        learning_rate: as for :func:`.first_order.sgd`.
        beta1: as of :func:`adam`.
        beta2: how much of the largest entry stays from step to step.
        epsilon: added to that.
        weight_decay: as for :func:`.first_order.sgd`.
        mask: as for :func:`.first_order.sgd`.
    """
    _check_betas("adamax", beta1, beta2)
    formula_and_numbers = formula_with_rate(
        formulas.adamax, learning_rate, beta1, beta2, epsilon, powers=2
    )
    optimizer = optimizer_by_formula(
        Adam,
        formula_and_numbers,
        [full_like_params, full_like_params, none_like_params],
        (beta1, beta2),
    )
    return with_weight_decay(optimizer, weight_decay, mask)


@checked
def lamb(
    learning_rate: Rate = 0.001,
    weight_decay: float = 0.01,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    *,
    always_adapt: bool = False,
    mask: Mask = None,
) -> Optimizer:
    """Return Lamb, as ``paddle.optimizer.Lamb``.

    Source: You et al., "Large batch optimization for deep learning", 2020.

    Args:
        learning_rate: as for :func:`.first_order.sgd`.
        weight_decay: how much of the parameters a step has besides.
        beta1: as for :func:`adam`.
        beta2: as for :func:`adam`.
        epsilon: added to the divisor.
        always_adapt: whether parameters without decay take steps of their size, too.
        mask: the parameters that decay; all if None.
    """
    _check_betas("lamb", beta1, beta2)

    def numbers(state: Adam) -> Sequence[Any]:
        corrections = 1.0 - state.beta1_pow, 1.0 - state.beta2_pow
        return rate_at(learning_rate, state.step), *corrections, beta1, beta2, epsilon

    def formula(rate: Any, correction1: Any, correction2: Any, *inputs: Any) -> Move:
        beta1, beta2, epsilon, g, m, v, p, is_on = inputs
        m, v = averages(beta1, beta2, g, m, v)
        step = m / correction1 / ((v / correction2).sqrt() + epsilon)
        decay = weight_decay if is_on else 0.0
        if decay:
            step = step + p * decay
        if decay or always_adapt:
            squares = [(x * x).sum() for x in (p, step)]
            ones = paddle.ones_like(squares[0])
            both_nonzero = paddle.logical_and(squares[0] > 0.0, squares[1] > 0.0)
            # A root of zero has no derivative, also where it is not chosen.
            roots = [paddle.sqrt(paddle.where(both_nonzero, s, ones)) for s in squares]
            step = step * (roots[0] / roots[1])
        return rate * step, m, v

    starts = [full_like_params, full_like_params, none_like_params]
    extra_inputs = partial(params_and_marks, mask=mask, name="lamb")
    return optimizer_by_formula(
        Adam, (formula, numbers), starts, (beta1, beta2), extra_inputs
    )


@checked
def radam(
    learning_rate: Rate = 0.001,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    *,
    weight_decay: float = 0.0,
    mask: Mask = None,
) -> Optimizer:
    """Return rectified Adam, as ``paddle.optimizer.RAdam``.

    Source: Liu et al., "On the variance of the adaptive learning rate and beyond",
    2020.

    Args:
        learning_rate: as for :func:`.first_order.sgd`.
        beta1: as for :func:`adam`.
        beta2: as for :func:`adam`.
        epsilon: added to the divisor.
        weight_decay: as for :func:`.first_order.sgd`.
        mask: as for :func:`.first_order.sgd`.
    """
    _check_betas("radam", beta1, beta2)
    rho_max = 2.0 / (1.0 - beta2) - 1.0

    def numbers(state: Adam) -> Sequence[Any]:
        rate = rate_at(learning_rate, state.step)
        t = (state.step + 1).astype("float64")
        power = paddle.exp(t * math.log(beta2)) if beta2 else t * 0.0
        correction = 1.0 - power
        rho = rho_max - 2.0 * t * power / correction
        valid_rho = paddle.where(rho > 5.0, rho, paddle.full_like(rho, rho_max))
        square = (
            (valid_rho - 4.0)
            * (valid_rho - 2.0)
            * rho_max
            / ((rho_max - 4.0) * (rho_max - 2.0) * valid_rho)
        )
        bias = in_dtype_of(rate, t) / (1.0 - state.beta1_pow.astype("float64"))
        rectified = paddle.sqrt(square * correction)
        return bias, rectified, rho - 5.0

    # With the betas themselves, in float32 too, as the numbers have them.
    def formula(
        bias: Any, rectified: Any, rho_excess: Any, g: Any, m: Any, v: Any
    ) -> Move:
        m, v = averages(beta1, beta2, g, m, v)
        by_size = rectified / (v.sqrt() + epsilon)
        size = paddle.where(rho_excess > 0.0, by_size, paddle.ones_like(v))
        return m * bias * size, m, v

    optimizer = optimizer_by_formula(
        Adam,
        (formula, numbers),
        [full_like_params, full_like_params, none_like_params],
        (beta1, beta2),
    )
    return with_weight_decay(optimizer, weight_decay, mask)


class NAdam(NamedTuple):
    """The state of :func:`nadam`.

    Attributes:
        decay_pow: ``0.96 ** step``.
        beta2_pow: ``beta2 ** step``.
        product: the product of all factors of the averages so far.
    """

    step: Tensor
    decay_pow: Tensor
    beta2_pow: Tensor
    product: Tensor
    first: Tree
    second: Tree


def _nadam(rate: Any, by_m: Any, by_g: Any, correction: Any, *inputs: Any) -> Move:
    beta1, beta2, epsilon, g, m, v = inputs
    m, v = averages(beta1, beta2, g, m, v)
    return rate * ((by_m * m + by_g * g) / ((v / correction).sqrt() + epsilon)), m, v


@checked
def nadam(
    learning_rate: Rate = 0.002,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    decay: float = 0.004,
    *,
    weight_decay: float = 0.0,
    mask: Mask = None,
) -> Optimizer:
    """Return Adam with Nesterov momentum, as ``paddle.optimizer.NAdam``.

    Source: Dozat, "Incorporating Nesterov momentum into Adam", 2016.

    Args:
        learning_rate: as for :func:`.first_order.sgd`.
        beta1: as for :func:`adam`.
        beta2: as for :func:`adam`.
        epsilon: added to the divisor.
        decay: the decay of the part of the average that is taken, Paddle's
            ``momentum_decay``.
        weight_decay: as for :func:`.first_order.sgd`.
        mask: as for :func:`.first_order.sgd`.
    """
    _check_betas("nadam", beta1, beta2)

    def init(params: Tree) -> NAdam:
        initial_one = scalar(1.0, params)
        return NAdam(
            step_number(),
            initial_one,
            initial_one,
            initial_one,
            full_like_params(params),
            full_like_params(params),
        )

    def update(grads: Tree, state: NAdam, params: Tree = None) -> tuple[Tree, NAdam]:
        rate = rate_at(learning_rate, state.step)
        power = state.decay_pow * 0.96
        beta2_pow = state.beta2_pow * beta2
        decay_power = paddle.exp(paddle.log(power) * decay)
        mu = beta1 * (1.0 - 0.5 * decay_power)
        mu_after = beta1 * (1.0 - 0.5 * decay_power * 0.96**decay)
        product = state.product * mu
        by_m = mu_after / (1.0 - product * mu_after)
        by_g = (1.0 - mu) / (1.0 - product)
        numbers = rate, by_m, by_g, 1.0 - beta2_pow, beta1, beta2, epsilon
        result, *trees = apply_formula(
            _nadam, numbers, grads, state.first, state.second
        )
        count = state.step + 1
        return result, NAdam(count, power, beta2_pow, product, *trees)

    return with_weight_decay(with_state(NAdam, init, update), weight_decay, mask)
