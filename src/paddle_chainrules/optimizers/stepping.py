"""Optimizers from formulas: steps and states of trees of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..transforms.containers.tree import Tree
from . import formulas
from .formulas import Formula, Move
from .parts import Mask, add_decayed_weights
from .schedules import Rate, rate_at
from .transformation import (
    Leaf,
    Optimizer,
    in_dtype_of,
    map_leaves,
    scalar,
    step_number,
    with_state,
)

Numbers = Callable[[Any], Sequence[Any]]
"""Function from the state of an optimizer to the numbers that a formula takes."""


def optimizer_by_formula(
    kind: type[Any],
    formula_and_numbers: tuple[Formula, Numbers],
    initial_states: Sequence[Callable[[Tree], Tree]],
    betas: Sequence[float] = (),
    extra_inputs: Callable[[Tree], Sequence[Tree]] | None = None,
) -> Optimizer:
    """Create an optimizer by a formula.

    Args:
        kind: the class of its state: the number of steps, powers, and what is kept.
        formula_and_numbers: the formula, and its numbers.
        initial_states: give what is kept before the first step, from the parameters.
        betas: the numbers whose powers the state has.
        extra_inputs: gives what else the formula takes, from the parameters.
    """
    count = 1 + len(betas)

    def init(params: Tree) -> Any:
        powers = [scalar(beta, params) for beta in betas]
        return kind(
            step_number(), *powers, *(start(params) for start in initial_states)
        )

    def update(grads: Tree, state: Any, params: Tree = None) -> tuple[Tree, Any]:
        formula, numbers = formula_and_numbers
        trees = *state[count:], *(extra_inputs(params) if extra_inputs else ())
        result, *new_state = apply_formula(formula, numbers(state), grads, *trees)
        powers = [x * beta for x, beta in zip(state[1:count], betas, strict=True)]
        return result, kind(state.step + 1, *powers, *new_state[: len(initial_states)])

    return with_state(kind, init, update)


def formula_with_rate(
    formula: Formula, learning_rate: Rate, *settings: float, powers: int = 0
) -> tuple[Formula, Numbers]:
    """Return a formula, and its numbers from the learning rate and the settings.

    Args:
        powers: the number of powers in the state.
    """

    def numbers(state: Any) -> Sequence[Any]:
        rate, result = rate_at(learning_rate, state.step), state[1 : 1 + powers]
        rate = in_dtype_of(rate, result[0]) if result else rate
        return formulas.numbers_of(formula, rate, result, settings)

    return formula, numbers


def apply_formula(
    formula: Formula, numbers: Sequence[Any], grads: Tree, *trees: Tree
) -> list[Tree]:
    """Return updates by a formula, and the trees that it takes and gives anew.

    Where a gradient is None, so is the update, and all else stays. The formula is given
    no other None, and what it does not return stays.
    """
    by_dtype: dict[int, list[Any]] = {}  # of which there is one each, with a slow hash

    def move(g: Leaf, *state: Leaf) -> Move:
        if g is None:
            return None, *state
        dtype = id(g.dtype)
        if dtype not in by_dtype:
            by_dtype[dtype] = [in_dtype_of(x, g) for x in numbers]
        present = [x for x in state if x is not None]
        step, *new_state = formula(*by_dtype[dtype], g, *present)
        return -step, *new_state, *state[len(new_state) :]

    return map_leaves(move, grads, *trees)


def with_weight_decay(
    optimizer: Optimizer, decay: float, mask: Mask = None
) -> Optimizer:
    """Return an optimizer that first adds ``decay`` times the parameters."""
    if not decay:
        return optimizer
    weight_decay = add_decayed_weights(decay, mask)

    def update(grads: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        return optimizer.update(
            weight_decay.update(grads, (), params)[0], state, params
        )

    return Optimizer(optimizer.init, update)
