"""Steps of Paddle's optimizers as machine code: one function for all parameters.

The formulas are those of ``optimizers/formulas.py``. A function serves any number of
parameters of any sizes, and reads the settings at each call: it is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from paddle import Tensor

from ..optimizers import formulas
from ..optimizers.formulas import Formula
from ..optimizers.paddles import OPTIMIZERS
from ..programs import Target

RATE_OFFSET, GRADS_OFFSET, FIRST_SETTING = 1, 2, 3
"""Offsets in the block, after the number of parameters: of the learning rate's address,
of the offset at which the gradients' addresses begin, and of the first setting."""


Numbers = Sequence[Any]


class StepFormula(NamedTuple):
    """The formula and the settings by which an optimizer steps.

    Attributes:
        decays: whether Paddle's kernel itself decays weights.
        numbers: the factors of the powers, the formula's settings, and the decay.
        moments: Paddle's names of the tensors kept for each element, in the formula's
            order.
        powers: Paddle's names of the single numbers kept for each parameter.
        has_last: tells by a parameter's name whether the last of the numbers is for it;
            None if it is for all.
    """

    formula: Formula
    decays: bool
    numbers: tuple[float, ...]
    moments: tuple[str, ...]
    powers: tuple[str, ...]
    has_last: Callable[[str], bool] | None

    @property
    def kind(self) -> tuple[Any, ...]:
        """The part of the setting that machine code and memory layout depend on."""
        return self.formula, self.decays, len(self.numbers), self.moments, self.powers

    def marks(self, params: Sequence[Tensor]) -> list[bool]:
        """Tell for each parameter whether it has the last number; empty if all do."""
        has_last = self.has_last
        return [] if has_last is None else [bool(has_last(p.name)) for p in params]


METHODS = "_append_optimize_op", "_finish_update", "_create_accumulators"
"""Methods of Paddle's optimizers that a script may have replaced."""

_methods = attrgetter(*METHODS)
_native = {kind: _methods(kind) for kind in OPTIMIZERS}


def step_formula_of(optimizer: Any) -> StepFormula | str:
    """Return an optimizer's present setting, or the reason why no program can step."""
    optimizer_class, attributes = type(optimizer), vars(optimizer)
    kind = OPTIMIZERS.get(optimizer_class)
    replaced = not attributes.keys().isdisjoint(METHODS)
    if (
        kind is None
        or not kind.formula
        or replaced
        or _methods(optimizer_class) != _native[optimizer_class]
    ):
        return "there is no rule for it"
    if optimizer._auxiliary_vars or optimizer._use_multi_tensor:
        return "it scales gradients, or has use_multi_tensor"
    if attributes.get("_rescale_grad", 1.0) != 1.0:
        return "it scales gradients"
    if attributes.get("_lr_ratio") is not None:
        return "it has a rate for each parameter"
    moments, powers = tuple(kind.trees.values()), tuple(kind.scalars.values())
    if kind.optional and not attributes[kind.optional]:
        moments = moments[:-1]
    factors = [attributes[name] for name in kind.settings.values()][: len(powers)]
    decay = kind.decay_of(optimizer)
    numbers = *factors, *kind.settings_of(optimizer), *decay
    if not {*map(type, numbers)} <= {int, float}:
        return "a setting is no number of Python's"
    formula = formulas.nesterov if attributes.get("_use_nesterov") else kind.formula
    has_last = attributes.get("_apply_decay_param_fun")
    return StepFormula(formula, bool(decay), numbers, moments, powers, has_last)


def compiled_step(formula: StepFormula, dtype: str) -> Callable[[bytes], bool]:
    """Return the function that takes a step.

    Its block has, eight bytes each: the number of parameters, the entries at the
    offsets above, the settings as float64, then for each parameter its size, whether it
    has the last of the settings, its address and those of its moments and powers, then
    the gradients' addresses.
    """
    counts = len(formula.numbers), len(formula.moments), len(formula.powers)
    return _compile_step(formula.formula, formula.decays, counts, dtype)


@cache
def _compile_step(
    formula: Formula, decays: bool, counts: tuple[int, int, int], dtype: str
) -> Callable[[bytes], bool]:
    def numbers_of(rate: Any, powers: Numbers, settings: list[Any]) -> Numbers:
        decay = [settings.pop()] if decays else []
        if decay and formula is formulas.adam:  # of AdamW
            decay = [1 - rate * decay[0]]
        return *decay, *formulas.numbers_of(formula, rate, powers, settings)

    def update(numbers: Numbers, p: Any, g: Any, state: Numbers) -> Numbers:
        decay, numbers = numbers[:decays], numbers[decays:]
        if decay and formula is formulas.adam:
            p = p * decay[0]
        elif decay:
            g = formulas.penalized(decay[0], p, g)
        step, *state = formula(*numbers, g, *state)
        return p - step, *state

    layout = RATE_OFFSET, GRADS_OFFSET, FIRST_SETTING
    return Target().update_code(numbers_of, update, counts, dtype, layout, decays)
