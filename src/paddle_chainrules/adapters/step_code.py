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
from ..programs.codegen.elements.number import ElementValue
from ..programs.codegen.ir_builder import BYTES, NO_VECTORIZE, TYPES, FunctionBuilder
from ..programs.codegen.jit_engine import Code, machine_code
from ..programs.codegen.matrix_products.vectors import VectorType
from ..programs.codegen.processor import full_lanes

RATE_OFFSET, GRADS_OFFSET, FIRST_SETTING = 1, 2, 3
"""Offsets in the block, after the number of parameters: of the learning rate's address,
of the offset at which the gradients' addresses begin, and of the first setting."""


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


def compiled_step(formula: StepFormula, dtype: str) -> Code:
    """Return the function that takes a step.

    Its block has, eight bytes each: the number of parameters, the entries at the
    offsets above, the settings as float64, then for each parameter its size, whether it
    has the last of the settings, its address and those of its moments and powers, then
    the gradients' addresses.
    """
    counts = map(len, (formula.numbers, formula.moments, formula.powers))
    return _compile_step(formula.formula, formula.decays, *counts, dtype)


@cache
def _compile_step(
    formula: Formula, decays: bool, numbers: int, moments: int, powers: int, dtype: str
) -> Code:
    text, kind = FunctionBuilder(), TYPES[dtype]

    def load(type: str, address: str) -> ElementValue:
        return ElementValue(text.emit(f"load {type}, ptr {address}"), type, text)

    def block_entry(type: str, row: str, address: object) -> str:
        index = text.emit(f"add i64 {row}, {address}")
        pointer = f"getelementptr inbounds i64, ptr %block, i64 {index}"
        return load(type, text.emit(pointer)).name

    rate = load(kind, text.load_slot(RATE_OFFSET, "ptr", "rate"))
    all_numbers = []
    for k in range(numbers):
        double_value = ElementValue(
            text.load_slot(FIRST_SETTING + k, "double", "c"), "double", text
        )
        all_numbers.append(
            double_value if kind == "double" else double_value.to("fptrunc", kind)
        )
    grads, first = text.load_slot(GRADS_OFFSET, "i64", "grads"), FIRST_SETTING + numbers
    unrolled_lanes = 2 * full_lanes(BYTES[dtype])
    with text.loop(text.load_slot(0, "i64", "count"), metadata=NO_VECTORIZE) as param:
        row = text.emit(f"mul i64 {param}, {3 + moments + powers}")
        size = block_entry("i64", row, first)
        pointers = [
            block_entry("ptr", row, first + 2 + i) for i in range(1 + moments + powers)
        ]
        tensors, scalars = pointers[: 1 + moments], pointers[1 + moments :]
        grad = block_entry("ptr", param, grads)
        uses_last = ElementValue(block_entry("i64", row, first + 1), "i64", text)
        old_scalars = [load(kind, address) for address in scalars]
        factors, settings = all_numbers[:powers], all_numbers[powers:]
        if decays:
            decay = settings.pop() * uses_last.to("sitofp", kind)
        shared_numbers = formulas.numbers_of(formula, rate, old_scalars, settings)
        full_end = text.vector_loop_end("0", size, unrolled_lanes)
        for lanes, start, stop in (
            (unrolled_lanes, "0", full_end),
            (0, full_end, size),
        ):
            vector = VectorType(text, dtype, lanes or 1)
            with text.loop(stop, (), NO_VECTORIZE, start, lanes or 1) as i:
                element_pointer = f"getelementptr inbounds {kind}, ptr"
                addresses = [
                    text.emit(f"{element_pointer} {p}, i64 {i}")
                    for p in (*tensors, grad)
                ]
                p, *state, g = (
                    ElementValue(vector.load(address), kind, text, lanes=lanes)
                    for address in addresses
                )
                if decays and formula is formulas.adam:  # of AdamW
                    p = p * (1 - rate * decay).broadcast(lanes)
                elif decays:
                    g = formulas.penalized(decay.broadcast(lanes), p, g)
                per_lane = (x.broadcast(lanes) for x in shared_numbers)
                step, *state = formula(*per_lane, g, *state)
                for address, x in zip(addresses, (p - step, *state), strict=False):
                    vector.store(x.name, address)
        for address, x, factor in zip(scalars, old_scalars, factors, strict=True):
            text.line(f"store {kind} {(x * factor).name}, ptr {address}")
    return machine_code([str(text)])[0]
