"""Optimizers that go along the gradient: sgd, momentum, and those of its size so far.

The numbers are those of Paddle's classes of these names, whose documentation has the
formulas and where they are from.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ..transforms.containers.tree import Tree
from .arguments import checked
from .parts import Mask, Steps, add_decayed_weights, each
from .schedules import Rate, rate_at
from .transformation import (
    Leaf,
    Optimizer,
    by_leaf,
    like,
    nothing,
    of_dtype,
    step_number,
    with_state,
)


def decayed(optimizer: Optimizer, decay: float, mask: Mask = None) -> Optimizer:
    """An optimizer whose gradients have ``decay`` times the parameters added before."""
    if not decay:
        return optimizer
    part = add_decayed_weights(decay, mask)

    def update(grads: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        return optimizer.update(part.update(grads, (), params)[0], state, params)

    return Optimizer(optimizer.init, update)


@checked
def sgd(
    learning_rate: Rate, *, weight_decay: float = 0.0, mask: Mask = None
) -> Optimizer:
    """Against the gradient: ``paddle.optimizer.SGD``.

    Args:
        learning_rate: a number, a tensor of one, or a schedule of the steps so far.
        weight_decay: how much of the parameters is added to the gradients.
        mask: of which parameters; all where None.
    """

    def update(grads: Tree, state: Steps, params: Tree = None) -> tuple[Tree, Steps]:
        rate = rate_at(learning_rate, state.step)
        found = each(lambda g: -(g * of_dtype(rate, g)))(grads, None)
        return found, Steps(state.step + 1)

    made = with_state(Steps, lambda params: Steps(step_number()), update)
    return decayed(made, weight_decay, mask)


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
    """Along what is left of the gradients so far: ``paddle.optimizer.Momentum``.

    Args:
        learning_rate: as of :func:`sgd`.
        decay: of the velocity, from step to step.
        nesterov: whether the gradient is taken as if it were at the next place.
        weight_decay: as of :func:`sgd`.
        mask: as of :func:`sgd`.
    """

    def update(
        grads: Tree, state: Momentum, params: Tree = None
    ) -> tuple[Tree, Momentum]:
        rate = rate_at(learning_rate, state.step)

        def move(g: Leaf, v: Leaf) -> tuple[Leaf, ...]:
            if g is None:
                return None, v
            v = v * decay + g
            step = g + v * decay if nesterov else v
            return -(step * of_dtype(rate, g)), v

        found, velocity = by_leaf(move, grads, state.velocity)
        return found, Momentum(state.step + 1, velocity)

    def init(params: Tree) -> Momentum:
        return Momentum(step_number(), like(params))

    made = with_state(Momentum, init, update)
    return decayed(made, weight_decay, mask)


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
    """By the root of the sum of all squares so far: ``paddle.optimizer.Adagrad``.

    Args:
        learning_rate: as of :func:`sgd`.
        epsilon: added to what divides.
        initial: the sum before the first step.
        weight_decay: as of :func:`sgd`.
        mask: as of :func:`sgd`.
    """

    def update(
        grads: Tree, state: Adagrad, params: Tree = None
    ) -> tuple[Tree, Adagrad]:
        rate = rate_at(learning_rate, state.step)

        def move(g: Leaf, s: Leaf) -> tuple[Leaf, ...]:
            if g is None:
                return None, s
            s = s + g * g
            return -(g * of_dtype(rate, g) / (paddle.sqrt(s) + epsilon)), s

        found, squares = by_leaf(move, grads, state.squares)
        return found, Adagrad(state.step + 1, squares)

    def init(params: Tree) -> Adagrad:
        return Adagrad(step_number(), like(params, initial))

    return decayed(with_state(Adagrad, init, update), weight_decay, mask)


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
    """By the mean sizes of steps and gradients: ``paddle.optimizer.Adadelta``.

    Args:
        learning_rate: as of :func:`sgd`.
        epsilon: added to both means.
        rho: the decay of the means, from step to step.
        weight_decay: as of :func:`sgd`.
        mask: as of :func:`sgd`.
    """

    def update(
        grads: Tree, state: Adadelta, params: Tree = None
    ) -> tuple[Tree, Adadelta]:
        rate = rate_at(learning_rate, state.step)

        def move(g: Leaf, s: Leaf, d: Leaf) -> tuple[Leaf, ...]:
            if g is None:
                return None, s, d
            s = s * rho + g * g * (1.0 - rho)
            step = -(paddle.sqrt((d + epsilon) / (s + epsilon)) * g)
            d = d * rho + step * step * (1.0 - rho)
            return step * of_dtype(rate, g), s, d

        found, squares, steps = by_leaf(move, grads, state.squares, state.steps)
        return found, Adadelta(state.step + 1, squares, steps)

    def init(params: Tree) -> Adadelta:
        return Adadelta(step_number(), like(params), like(params))

    return decayed(with_state(Adadelta, init, update), weight_decay, mask)


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
    """By the root of the mean of the squares: ``paddle.optimizer.RMSProp``.

    Args:
        learning_rate: as of :func:`sgd`.
        rho: the decay of the means, from step to step.
        epsilon: added under the root.
        decay: of the velocity, Paddle's ``momentum``.
        centered: whether the square of the mean is taken from the mean of the squares.
        weight_decay: as of :func:`sgd`.
        mask: as of :func:`sgd`.
    """

    def update(
        grads: Tree, state: RMSProp, params: Tree = None
    ) -> tuple[Tree, RMSProp]:
        rate = rate_at(learning_rate, state.step)

        def move(g: Leaf, s: Leaf, v: Leaf, m: Leaf) -> tuple[Leaf, ...]:
            if g is None:
                return None, s, v, m
            s = s * rho + g * g * (1.0 - rho)
            spread: Any = s
            if centered:
                m = m * rho + g * (1.0 - rho)
                spread = s - m * m
            v = v * decay + g * of_dtype(rate, g) / paddle.sqrt(spread + epsilon)
            return -v, s, v, m

        row = by_leaf(move, grads, state.squares, state.velocity, state.means)
        return row[0], RMSProp(state.step + 1, *row[1:])

    def init(params: Tree) -> RMSProp:
        means = like(params) if centered else nothing(params)
        return RMSProp(step_number(), like(params), like(params), means)

    return decayed(with_state(RMSProp, init, update), weight_decay, mask)
