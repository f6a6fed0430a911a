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

RATE, GRADS, FIRST = 1, 2, 3
"""Places in the block, after the number of parameters: of the learning rate's address,
of the place from which on the gradients' addresses stand, and of the first setting."""


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
        """The part of the setting that machine code and places in memory depend on."""
        return self.formula, self.decays, len(self.numbers), self.moments, self.powers

    def marks(self, params: Sequence[Tensor]) -> list[bool]:
        """Tell for each parameter whether it has the last number; empty if all do."""
        own = self.has_last
        return [] if own is None else [bool(own(p.name)) for p in params]


METHODS = "_append_optimize_op", "_finish_update", "_create_accumulators"
"""Methods of Paddle's optimizers that a script may have replaced."""

_methods = attrgetter(*METHODS)
_native = {kind: _methods(kind) for kind in OPTIMIZERS}


def setting_of(optimizer: Any) -> StepFormula | str:
    """Return an optimizer's present setting, or the reason why no program can step."""
    its, own = type(optimizer), vars(optimizer)
    kind = OPTIMIZERS.get(its)
    replaced = not own.keys().isdisjoint(METHODS)
    if kind is None or not kind.formula or replaced or _methods(its) != _native[its]:
        return "there is no rule for it"
    if optimizer._auxiliary_vars or optimizer._use_multi_tensor:
        return "it scales gradients, or has use_multi_tensor"
    if own.get("_rescale_grad", 1.0) != 1.0:
        return "it scales gradients"
    if own.get("_lr_ratio") is not None:
        return "it has a rate for each parameter"
    moments, powers = tuple(kind.trees.values()), tuple(kind.scalars.values())
    if kind.optional and not own[kind.optional]:
        moments = moments[:-1]
    factors = [own[name] for name in kind.settings.values()][: len(powers)]
    decay = kind.decay_of(optimizer)
    numbers = *factors, *kind.settings_of(optimizer), *decay
    if not {*map(type, numbers)} <= {int, float}:
        return "a setting is no number of Python's"
    formula = formulas.nesterov if own.get("_use_nesterov") else kind.formula
    has_last = own.get("_apply_decay_param_fun")
    return StepFormula(formula, bool(decay), numbers, moments, powers, has_last)


def code_of(setting: StepFormula, dtype: str) -> Code:
    """Return the function that takes a step.

    Its block has, eight bytes each: the number of parameters, what stands at the places
    above, the settings as float64, then for each parameter its size, whether it has the
    last of the settings, its address and those of its moments and powers, then the
    gradients' addresses.
    """
    counts = map(len, (setting.numbers, setting.moments, setting.powers))
    return _code(setting.formula, setting.decays, *counts, dtype)


@cache
def _code(
    formula: Formula, decays: bool, numbers: int, moments: int, powers: int, dtype: str
) -> Code:
    text, kind = FunctionBuilder(), TYPES[dtype]

    def load(type: str, place: str) -> ElementValue:
        return ElementValue(text.emit(f"load {type}, ptr {place}"), type, text)

    def at(type: str, row: str, place: object) -> str:
        index = text.emit(f"add i64 {row}, {place}")
        where = f"getelementptr inbounds i64, ptr %block, i64 {index}"
        return load(type, text.emit(where)).name

    rate = load(kind, text.load_slot(RATE, "ptr", "rate"))
    given = []
    for k in range(numbers):
        exact = ElementValue(text.load_slot(FIRST + k, "double", "c"), "double", text)
        given.append(exact if kind == "double" else exact.to("fptrunc", kind))
    grads, first = text.load_slot(GRADS, "i64", "grads"), FIRST + numbers
    full = 2 * full_lanes(BYTES[dtype])
    with text.loop(text.load_slot(0, "i64", "count"), metadata=NO_VECTORIZE) as which:
        row = text.emit(f"mul i64 {which}, {3 + moments + powers}")
        size = at("i64", row, first)
        results = [at("ptr", row, first + 2 + i) for i in range(1 + moments + powers)]
        tensors, scalars = results[: 1 + moments], results[1 + moments :]
        grad = at("ptr", which, grads)
        own = ElementValue(at("i64", row, first + 1), "i64", text)
        before = [load(kind, place) for place in scalars]
        factors, settings = given[:powers], given[powers:]
        if decays:
            decay = settings.pop() * own.to("sitofp", kind)
        once = formulas.numbers_of(formula, rate, before, settings)
        whole = text.vector_loop_end("0", size, full)
        for lanes, start, stop in ((full, "0", whole), (0, whole, size)):
            of = VectorType(text, dtype, lanes or 1)
            with text.loop(stop, (), NO_VECTORIZE, start, lanes or 1) as i:
                inside = f"getelementptr inbounds {kind}, ptr"
                places = [text.emit(f"{inside} {p}, i64 {i}") for p in (*tensors, grad)]
                p, *kept, g = (
                    ElementValue(of.load(place), kind, text, lanes=lanes)
                    for place in places
                )
                if decays and formula is formulas.adam:  # of AdamW
                    p = p * (1 - rate * decay).broadcast(lanes)
                elif decays:
                    g = formulas.penalized(decay.broadcast(lanes), p, g)
                same = (x.broadcast(lanes) for x in once)
                step, *kept = formula(*same, g, *kept)
                for place, x in zip(places, (p - step, *kept), strict=False):
                    of.store(x.name, place)
        for place, x, factor in zip(scalars, before, factors, strict=True):
            text.line(f"store {kind} {(x * factor).name}, ptr {place}")
    return machine_code([str(text)])[0]
