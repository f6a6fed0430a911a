"""Adam and those that are like it, with the numbers of Paddle's classes."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ..transforms.containers.tree import Tree
from .arguments import checked
from .first_order import decayed
from .parts import Mask, marks_of
from .schedules import Rate, rate_at
from .transformation import (
    Leaf,
    Optimizer,
    by_leaf,
    like,
    needed,
    nothing,
    of_dtype,
    scalar,
    step_number,
    tensors_in,
    with_state,
)


class Adam(NamedTuple):
    """The state of :func:`adam`, :func:`adamw`, :func:`adamax` and :func:`lamb`.

    Attributes:
        step: the steps so far, int64.
        beta1_pow: ``beta1 ** (step + 1)``, and so on, as Paddle has them.
        first: averages of the gradients.
        second: of their squares, or of their largest entries.
        largest: the largest of ``second`` so far, None where it is not used.
    """

    step: Tensor
    beta1_pow: Tensor
    beta2_pow: Tensor
    first: Tree
    second: Tree
    largest: Tree


def _start(params: Tree, beta1: float, beta2: float, amsgrad: bool = False) -> Adam:
    return Adam(
        step_number(),
        scalar(beta1, params),
        scalar(beta2, params),
        like(params),
        like(params),
        like(params) if amsgrad else nothing(params),
    )


def _next(state: Adam, beta1: float, beta2: float, *trees: Tree) -> Adam:
    powers = state.beta1_pow * beta1, state.beta2_pow * beta2
    return Adam(state.step + 1, *powers, *trees)


def _moments(
    g: Tensor, m: Tensor, v: Tensor, beta1: float, beta2: float
) -> tuple[Tensor, Tensor]:
    """The averages of gradients and of their squares, with one more gradient."""
    return m * beta1 + g * (1.0 - beta1), v * beta2 + g * g * (1.0 - beta2)


def _check(name: str, beta1: float, beta2: float) -> None:
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
    """Kingma, Ba, "Adam: a method for stochastic optimization", 2015:
    ``paddle.optimizer.Adam``.

    Args:
        learning_rate: as of :func:`.first_order.sgd`.
        beta1: how much of the average of gradients stays from step to step.
        beta2: and of that of their squares.
        epsilon: added to what divides.
        amsgrad: whether it is divided by the largest average so far.
        weight_decay: as of :func:`.first_order.sgd`.
        mask: as of :func:`.first_order.sgd`.
    """
    _check("adam", beta1, beta2)
    made = _adam(learning_rate, beta1, beta2, epsilon, amsgrad)
    return decayed(made, weight_decay, mask)


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
    """Loshchilov, Hutter, "Decoupled weight decay regularization", 2019:
    ``paddle.optimizer.AdamW``.

    Args:
        learning_rate: as of :func:`.first_order.sgd`.
        beta1: as of :func:`adam`.
        beta2: as of :func:`adam`.
        epsilon: as of :func:`adam`.
        weight_decay: how much of the parameters goes at each step, times the rate.
        amsgrad: as of :func:`adam`.
        mask: of which parameters; all where None.
    """
    _check("adamw", beta1, beta2)
    made = _adam(learning_rate, beta1, beta2, epsilon, amsgrad)

    def update(grads: Tree, state: Adam, params: Tree = None) -> tuple[Tree, Adam]:
        params = needed(params, "adamw")
        tensors_in(params)
        marks = marks_of(mask, params)
        rate = rate_at(learning_rate, state.step)
        updates, state = made.update(grads, state, params)

        def decay(u: Leaf, p: Leaf, on: Any) -> tuple[Leaf]:
            is_on = u is not None and on
            return (u - p * of_dtype(rate * weight_decay, p) if is_on else u,)

        return by_leaf(decay, updates, params, marks)[0], state

    return with_state(Adam, made.init, update)


def _adam(
    learning_rate: Rate, beta1: float, beta2: float, epsilon: float, amsgrad: bool
) -> Optimizer:
    def update(grads: Tree, state: Adam, params: Tree = None) -> tuple[Tree, Adam]:
        rate = rate_at(learning_rate, state.step)
        root = paddle.sqrt(1.0 - state.beta2_pow)
        factor = root / (1.0 - state.beta1_pow) * of_dtype(rate, root)

        def move(g: Leaf, m: Leaf, v: Leaf, largest: Leaf) -> tuple[Leaf, ...]:
            if g is None:
                return None, m, v, largest
            m, v = _moments(g, m, v, beta1, beta2)
            if amsgrad:
                largest = paddle.maximum(largest, v)
            divided = paddle.sqrt(largest if amsgrad else v)
            step = m / (divided + of_dtype(root, g) * epsilon)
            return -(step * of_dtype(factor, g)), m, v, largest

        found, *trees = by_leaf(move, grads, state.first, state.second, state.largest)
        return found, _next(state, beta1, beta2, *trees)

    def init(params: Tree) -> Adam:
        return _start(params, beta1, beta2, amsgrad)

    return with_state(Adam, init, update)


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
    """Adam by the largest entries instead of squares: ``paddle.optimizer.Adamax``.

    Args:
        learning_rate: as of :func:`.first_order.sgd`.
        beta1: as of :func:`adam`.
        beta2: how much of the largest entry stays from step to step.
        epsilon: added to that.
        weight_decay: as of :func:`.first_order.sgd`.
        mask: as of :func:`.first_order.sgd`.
    """
    _check("adamax", beta1, beta2)

    def update(grads: Tree, state: Adam, params: Tree = None) -> tuple[Tree, Adam]:
        rate = rate_at(learning_rate, state.step)
        left = 1.0 - state.beta1_pow
        factor = of_dtype(rate, left) / left

        def move(g: Leaf, m: Leaf, v: Leaf) -> tuple[Leaf, ...]:
            if g is None:
                return None, m, v
            m = m * beta1 + g * (1.0 - beta1)
            v = paddle.maximum(paddle.abs(g), v * beta2 + epsilon)
            return -(m / v * of_dtype(factor, g)), m, v

        found, *trees = by_leaf(move, grads, state.first, state.second)
        return found, _next(state, beta1, beta2, *trees, state.largest)

    made = with_state(Adam, lambda params: _start(params, beta1, beta2), update)
    return decayed(made, weight_decay, mask)


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
    """You et al., "Large batch optimization for deep learning", 2020:
    ``paddle.optimizer.Lamb``.

    Args:
        learning_rate: as of :func:`.first_order.sgd`.
        weight_decay: how much of the parameters a step has besides.
        beta1: as of :func:`adam`.
        beta2: as of :func:`adam`.
        epsilon: added to what divides.
        always_adapt: whether parameters without decay go in steps of their size, too.
        mask: which parameters decay; all where None.
    """
    _check("lamb", beta1, beta2)

    def update(grads: Tree, state: Adam, params: Tree = None) -> tuple[Tree, Adam]:
        params = needed(params, "lamb")
        tensors_in(params)
        marks = marks_of(mask, params)
        rate = rate_at(learning_rate, state.step)
        left = 1.0 - state.beta1_pow, 1.0 - state.beta2_pow

        def move(g: Leaf, m: Leaf, v: Leaf, p: Leaf, on: Any) -> tuple[Leaf, ...]:
            if g is None:
                return None, m, v
            m, v = _moments(g, m, v, beta1, beta2)
            means = m / of_dtype(left[0], g), v / of_dtype(left[1], g)
            step = means[0] / (paddle.sqrt(means[1]) + epsilon)
            decay = weight_decay if on else 0.0
            if decay:
                step = step + p * decay
            if decay or always_adapt:
                sizes = [paddle.sqrt((x * x).sum()) for x in (p, step)]
                ones = paddle.ones_like(sizes[0])
                there = paddle.logical_and(sizes[0] > 0.0, sizes[1] > 0.0)
                ratio = sizes[0] / paddle.where(there, sizes[1], ones)
                step = step * paddle.where(there, ratio, ones)
            return -(step * of_dtype(rate, g)), m, v

        found, *trees = by_leaf(move, grads, state.first, state.second, params, marks)
        return found, _next(state, beta1, beta2, *trees, state.largest)

    return with_state(Adam, lambda params: _start(params, beta1, beta2), update)


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
    """Liu et al., "On the variance of the adaptive learning rate and beyond", 2020:
    ``paddle.optimizer.RAdam``.

    Args:
        learning_rate: as of :func:`.first_order.sgd`.
        beta1: as of :func:`adam`.
        beta2: as of :func:`adam`.
        epsilon: added to what divides.
        weight_decay: as of :func:`.first_order.sgd`.
        mask: as of :func:`.first_order.sgd`.
    """
    _check("radam", beta1, beta2)
    last = 2.0 / (1.0 - beta2) - 1.0

    def update(grads: Tree, state: Adam, params: Tree = None) -> tuple[Tree, Adam]:
        rate = rate_at(learning_rate, state.step)
        t = (state.step + 1).astype("float64")
        power = paddle.exp(t * math.log(beta2)) if beta2 else t * 0.0
        left = 1.0 - power
        rho = last - 2.0 * t * power / left
        is_known = rho > 5.0
        kept = paddle.where(is_known, rho, paddle.full_like(rho, last))
        square = (
            (kept - 4.0) * (kept - 2.0) * last / ((last - 4.0) * (last - 2.0) * kept)
        )
        rectified = paddle.sqrt(square * left)
        bias = of_dtype(rate, t) / (1.0 - state.beta1_pow.astype("float64"))

        def move(g: Leaf, m: Leaf, v: Leaf) -> tuple[Leaf, ...]:
            if g is None:
                return None, m, v
            m, v = _moments(g, m, v, beta1, beta2)
            by_size = of_dtype(rectified, g) / (paddle.sqrt(v) + epsilon)
            size = paddle.where(is_known, by_size, paddle.ones_like(v))
            return -(m * of_dtype(bias, g) * size), m, v

        found, *trees = by_leaf(move, grads, state.first, state.second)
        return found, _next(state, beta1, beta2, *trees, state.largest)

    made = with_state(Adam, lambda params: _start(params, beta1, beta2), update)
    return decayed(made, weight_decay, mask)


class NAdam(NamedTuple):
    """The state of :func:`nadam`.

    Attributes:
        decay_pow: ``0.96 ** step``.
        beta2_pow: ``beta2 ** step``.
        product: of all factors of the averages so far.
    """

    step: Tensor
    decay_pow: Tensor
    beta2_pow: Tensor
    product: Tensor
    first: Tree
    second: Tree


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
    """Dozat, "Incorporating Nesterov momentum into Adam", 2016:
    ``paddle.optimizer.NAdam``.

    Args:
        learning_rate: as of :func:`.first_order.sgd`.
        beta1: as of :func:`adam`.
        beta2: as of :func:`adam`.
        epsilon: added to what divides.
        decay: of how much of the average is taken, Paddle's ``momentum_decay``.
        weight_decay: as of :func:`.first_order.sgd`.
        mask: as of :func:`.first_order.sgd`.
    """
    _check("nadam", beta1, beta2)

    def init(params: Tree) -> NAdam:
        one = scalar(1.0, params)
        return NAdam(step_number(), one, one, one, like(params), like(params))

    def update(grads: Tree, state: NAdam, params: Tree = None) -> tuple[Tree, NAdam]:
        rate = rate_at(learning_rate, state.step)
        power = state.decay_pow * 0.96
        beta2_pow = state.beta2_pow * beta2
        part = paddle.exp(paddle.log(power) * decay)
        mu = beta1 * (1.0 - 0.5 * part)
        mu_after = beta1 * (1.0 - 0.5 * part * 0.96**decay)
        product = state.product * mu
        by_m = mu_after / (1.0 - product * mu_after)
        by_g = (1.0 - mu) / (1.0 - product)
        left = 1.0 - beta2_pow

        def move(g: Leaf, m: Leaf, v: Leaf) -> tuple[Leaf, ...]:
            if g is None:
                return None, m, v
            m, v = _moments(g, m, v, beta1, beta2)
            mean = m * of_dtype(by_m, g) + g * of_dtype(by_g, g)
            size = paddle.sqrt(v / of_dtype(left, g)) + epsilon
            return -(mean / size * of_dtype(rate, g)), m, v

        found, *trees = by_leaf(move, grads, state.first, state.second)
        count = state.step + 1
        return found, NAdam(count, power, beta2_pow, product, *trees)

    return decayed(with_state(NAdam, init, update), weight_decay, mask)
