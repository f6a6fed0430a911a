"""Optimizers along the gradient: sgd, momentum, and those that scale it by its past.

They compute the values of Paddle's classes of these names, whose documentation has the
formulas and their sources.
"""

from __future__ import annotations

from typing import NamedTuple

from paddle import Tensor

from ..transforms.containers.tree import Tree
from . import formulas
from .arguments import checked
from .parts import Mask, StepCountState
from .schedules import Rate
from .stepping import (
    formula_with_rate,
    optimizer_by_formula,
    with_weight_decay,
)
from .transformation import Optimizer, full_like_params, none_like_params


@checked
def sgd(
    learning_rate: Rate, *, weight_decay: float = 0.0, mask: Mask = None
) -> Optimizer:
    """Return gradient descent, as ``paddle.optimizer.SGD``.

    Args:
        learning_rate: a number, a tensor of one, or a schedule of the steps so far.
        weight_decay: how much of the parameters is added to the gradients.
        mask: the parameters that decay; all if None.
    """
    optimizer = optimizer_by_formula(
        StepCountState, formula_with_rate(formulas.sgd, learning_rate), []
    )
    return with_weight_decay(optimizer, weight_decay, mask)


class Momentum(NamedTuple):
    """The state of :func:`momentum`."""

    step: Tensor
    velocity: Tree


@checked
def momentum(
    learning_rate: Rate,
    decay: float = 0.9,
    *,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    mask: Mask = None,
) -> Optimizer:
    """Return gradient descent with momentum, as ``paddle.optimizer.Momentum``.

    Args:
        learning_rate: as for :func:`sgd`.
        decay: the decay of the velocity, from step to step.
        nesterov: whether to take the gradient as if it were at the next place.
        weight_decay: as for :func:`sgd`.
        mask: as for :func:`sgd`.
    """
    formula = formulas.nesterov if nesterov else formulas.momentum
    optimizer = optimizer_by_formula(
        Momentum, formula_with_rate(formula, learning_rate, decay), [full_like_params]
    )
    return with_weight_decay(optimizer, weight_decay, mask)


class Adagrad(NamedTuple):
    """The state of :func:`adagrad`."""

    step: Tensor
    squares: Tree


@checked
def adagrad(
    learning_rate: Rate,
    epsilon: float = 1e-6,
    *,
    initial: float = 0.0,
    weight_decay: float = 0.0,
    mask: Mask = None,
) -> Optimizer:
    """Divide by the root of the sum of all squares: ``paddle.optimizer.Adagrad``.

    Args:
        learning_rate: as for :func:`sgd`.
        epsilon: added to the divisor.
        initial: the sum before the first step.
        weight_decay: as for :func:`sgd`.
        mask: as for :func:`sgd`.
    """
    formula_and_numbers = formula_with_rate(formulas.adagrad, learning_rate, epsilon)
    optimizer = optimizer_by_formula(
        Adagrad, formula_and_numbers, [lambda params: full_like_params(params, initial)]
    )
    return with_weight_decay(optimizer, weight_decay, mask)


class Adadelta(NamedTuple):
    """The state of :func:`adadelta`: averages of the squares of gradients and steps."""

    step: Tensor
    squares: Tree
    steps: Tree


@checked
def adadelta(
    learning_rate: Rate = 0.001,
    epsilon: float = 1e-6,
    rho: float = 0.95,
    *,
    weight_decay: float = 0.0,
    mask: Mask = None,
) -> Optimizer:
    """Scale by the mean sizes of steps and gradients: ``paddle.optimizer.Adadelta``.

    Args:
        learning_rate: as for :func:`sgd`.
        epsilon: added to both means.
        rho: the decay of the means, from step to step.
        weight_decay: as for :func:`sgd`.
        mask: as for :func:`sgd`.
    """
    formula_and_numbers = formula_with_rate(
        formulas.adadelta, learning_rate, rho, epsilon
    )
    return with_weight_decay(
        optimizer_by_formula(
            Adadelta, formula_and_numbers, [full_like_params, full_like_params]
        ),
        weight_decay,
        mask,
    )


class RMSProp(NamedTuple):
    """The state of :func:`rmsprop`; the means are None where they are not used."""

    step: Tensor
    squares: Tree
    velocity: Tree
    means: Tree


@checked
def rmsprop(
    learning_rate: Rate,
    rho: float = 0.95,
    epsilon: float = 1e-6,
    *,
    decay: float = 0.0,
    centered: bool = False,
    weight_decay: float = 0.0,
    mask: Mask = None,
) -> Optimizer:
    """Divide by the root of the mean of the squares: ``paddle.optimizer.RMSProp``.

    Args:
        learning_rate: as for :func:`sgd`.
        rho: the decay of the means, from step to step.
        epsilon: added under the root.
        decay: the decay of the velocity, Paddle's ``momentum``.
        centered: whether to subtract the square of the mean from the mean of the
            squares.
        weight_decay: as for :func:`sgd`.
        mask: as for :func:`sgd`.
    """
    formula_and_numbers = formula_with_rate(
        formulas.rmsprop, learning_rate, rho, epsilon, decay
    )
    optimizer = optimizer_by_formula(
        RMSProp,
        formula_and_numbers,
        [
            full_like_params,
            full_like_params,
            full_like_params if centered else none_like_params,
        ],
    )
    return with_weight_decay(optimizer, weight_decay, mask)
