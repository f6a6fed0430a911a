"""Parts of optimizers: clipping, decay of weights, scaling, averages, accumulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ..transforms.containers.tree import Tree, flatten_tree
from .arguments import checked
from .formulas import penalized
from .schedules import Rate, rate_at
from .transformation import (
    Leaf,
    Optimizer,
    as_users_have_them,
    full_like_params,
    in_dtype_of,
    in_real_parts,
    leaves_without_none,
    map_leaves,
    stateless_update,
    step_number,
    with_state,
)


def map_gradients(rule: Callable[[Tensor], Tensor]) -> Callable[[Tree, Tree], Tree]:
    """Apply a rule to each gradient that is not None."""

    def of_tree(grads: Tree, _: Tree) -> Tree:
        return map_leaves(lambda g: (None if g is None else rule(g),), grads)[0]

    return of_tree


def scale(factor: Any) -> Optimizer:
    """Multiply updates by a number, or a tensor of one."""
    return stateless_update(map_gradients(lambda g: g * in_dtype_of(factor, g)))


class StepCountState(NamedTuple):
    """State that counts the steps so far, int64."""

    step: Tensor


@checked
def scale_by_schedule(schedule: Rate) -> Optimizer:
    """Multiply updates by a schedule's value at the number of steps so far."""

    def update(
        grads: Tree, state: StepCountState, params: Tree = None
    ) -> tuple[Tree, StepCountState]:
        rate = rate_at(schedule, state.step)
        return map_gradients(lambda g: g * in_dtype_of(rate, g))(
            grads, None
        ), StepCountState(state.step + 1)

    return with_state(
        StepCountState, lambda params: StepCountState(step_number()), update
    )


@checked
def clip_by_value(largest: float, least: float | None = None) -> Optimizer:
    """Clip each entry between two numbers, as ``paddle.nn.ClipGradByValue``.

    By default these are a number and its negative.
    """
    low = -largest if least is None else least
    return stateless_update(map_gradients(lambda g: paddle.clip(g, low, largest)))


@checked
def clip_by_norm(largest: float) -> Optimizer:
    """Shorten each tensor to a largest norm, as ``paddle.nn.ClipGradByNorm``."""

    def clip(g: Tensor) -> Tensor:
        norm = paddle.sqrt((g * g).sum())
        factor = paddle.where(norm > largest, largest / norm, paddle.ones_like(norm))
        return g * factor

    return stateless_update(map_gradients(clip))


def global_norm(tree: Tree) -> Tensor:
    """Return the norm of all entries of all tensors in a tree together."""
    leaves = leaves_without_none(in_real_parts(tree))
    if not leaves:
        raise ValueError("a tree without tensors has no norm; give one with gradients")
    double = any(g.dtype == paddle.float64 for g in leaves)
    squares = [(g * g).sum() for g in leaves]
    if double:
        squares = [s.astype("float64") for s in squares]
    return paddle.sqrt(sum(squares[1:], squares[0]))


@checked
def clip_by_global_norm(largest: float) -> Optimizer:
    """Shorten all tensors by one factor, as ``paddle.nn.ClipGradByGlobalNorm``.

    It does so if the norm of them all together is above a number.
    """

    def clip(grads: Tree, _: Tree) -> Tree:
        if all(g is None for g in flatten_tree(grads)[0]):
            return grads
        norm = global_norm(grads)
        limit = paddle.full_like(norm, largest)
        factor = limit / paddle.maximum(norm, limit)
        return map_gradients(lambda g: g * in_dtype_of(factor, g))(grads, None)

    return stateless_update(clip)


Mask = Any
"""A tree of booleans nested as the parameters, or a function that gives one of them."""


def params_and_marks(params: Tree, mask: Mask, name: str) -> tuple[Tree, Tree]:
    """Return the parameters, and which of them a mask lets through; all if it is None.

    Raises:
        ValueError: they were not given to ``update``.
    """
    if params is None:
        raise ValueError(
            f"{name} depends on the parameters; give them to update, as "
            "update(grads, state, params)"
        )
    leaves_without_none(params)
    if mask is None:
        return params, map_leaves(lambda p: (True,), params)[0]
    marks = mask(as_users_have_them(params)) if callable(mask) else mask
    return params, map_leaves(lambda p, is_on: (bool(is_on),), params, marks)[0]


@checked
def add_decayed_weights(decay: float, mask: Mask = None) -> Optimizer:
    """Add ``decay`` times the parameters that a mask lets through.

    Before an optimizer it is the gradient of a penalty, as ``weight_decay`` of
    ``paddle.optimizer.SGD``, ``Momentum``, ``Adam`` and others.
    """

    def update(grads: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        params, marks = params_and_marks(params, mask, "decay of weights")

        def add(g: Leaf, p: Leaf, on: Any) -> tuple[Leaf]:
            return (g if g is None or not on else penalized(decay, p, g),)

        return map_leaves(add, grads, params, marks)[0], state

    return with_state(tuple, lambda params: (), update)


class AverageState(NamedTuple):
    """Averages, nested as the averaged tree, and the number of steps."""

    step: Tensor
    average: Tree


@checked
def ema(decay: float, debias: bool = True) -> Optimizer:
    """Replace updates by their exponential moving average.

    ``average = decay * average + (1 - decay) * x``. For an average of parameters call
    its ``update`` with these: ``average, state = update(params, state)``.

    Args:
        debias: whether to divide by ``1 - decay ** count``, so that the average is no
            nearer to zero at the start.
    """

    def update(
        grads: Tree, state: AverageState, params: Tree = None
    ) -> tuple[Tree, AverageState]:
        count = state.step + 1

        def move(g: Leaf, a: Leaf) -> tuple[Leaf, ...]:
            if g is None:
                return a, None
            a = a * decay + g * (1.0 - decay)
            if not debias:
                return a, a
            remaining = 1.0 - paddle.full([], decay, "float64") ** count.astype(
                "float64"
            )
            return a, a / remaining.astype(a.dtype)

        average, result = map_leaves(move, grads, state.average)
        return result, AverageState(count, average)

    def init(params: Tree) -> AverageState:
        return AverageState(step_number(), full_like_params(params))

    return with_state(AverageState, init, update)


class Accumulated(NamedTuple):
    """Gradients so far, their number of calls, and the state of the inner optimizer."""

    step: Tensor
    total: Tree
    inner: Tree


@checked
def accumulate(optimizer: Optimizer, every: int) -> Optimizer:
    """Take a step with the mean of ``every`` gradients, one call after another.

    Between its steps updates are zeros. In optax it is ``MultiSteps``.

    Raises:
        ValueError: ``every`` is below 1.
    """
    if every < 1:
        raise ValueError(
            f"gradients are accumulated over {every} calls; give a number from 1 on"
        )

    def init(params: Tree) -> Accumulated:
        return Accumulated(
            step_number(), full_like_params(params), optimizer.init(params)
        )

    def update(
        grads: Tree, state: Accumulated, params: Tree = None
    ) -> tuple[Tree, Accumulated]:
        count = state.step + 1
        is_due = count == every

        def add(g: Leaf, t: Leaf) -> tuple[Leaf]:
            return (t if g is None else t + g / every,)

        (total,) = map_leaves(add, grads, state.total)
        (mean,) = map_leaves(lambda g, t: (t if g is not None else None,), grads, total)
        updates, inner = optimizer.update(mean, state.inner, params)

        def select(new: Leaf, old: Leaf) -> tuple[Leaf]:
            if new is None or old is None:
                return (new,)
            return (paddle.where(is_due, new, old),)

        zeros = full_like_params(total)
        (updates,) = map_leaves(select, updates, zeros)
        (inner,) = map_leaves(select, inner, state.inner)
        (total,) = map_leaves(select, zeros, total)
        (count,) = select(paddle.zeros_like(count), count)
        return updates, Accumulated(count, total, inner)

    return with_state(Accumulated, init, update)
