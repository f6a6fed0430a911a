"""Steps of Paddle's optimizers as machine code: one function for all parameters.

A rule gives what happens to one element, in the order of Paddle's kernels. The function
of a rule serves any number of parameters of any sizes, and reads the settings at each
call: it is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from paddle import Tensor
from paddle import optimizer as theirs

from ..programs.loops.elements.number import Number
from ..programs.loops.machine import Code, machine_code
from ..programs.loops.text import PARALLEL, TYPES, Text

RATE, GRADS, FIRST = 1, 2, 3
"""Places in the block, after the number of parameters: of the learning rate's address,
of the place from which on the gradients' addresses stand, and of the first setting."""

Numbers = Sequence[Number]

Made = tuple[Callable[..., Numbers], Numbers]
"""What makes of an element of a parameter, its gradient's and moments' the new ones of
the parameter and moments, and the powers after the step."""

Rule = Callable[..., Made]
"""Of the learning rate, the powers and the settings."""


class Setting(NamedTuple):
    """How an optimizer steps.

    Attributes:
        numbers: what its rule is given.
        moments: Paddle's names of what it keeps for each element, in the rule's order.
        powers: and of what it keeps for each parameter, one number.
        has_last: of a parameter's name, whether the last of the numbers is for it; for
            all where None.
    """

    rule: Rule
    numbers: tuple[float, ...]
    moments: tuple[str, ...] = ()
    powers: tuple[str, ...] = ()
    has_last: Callable[[str], bool] | None = None

    @property
    def kind(self) -> tuple[Any, ...]:
        """What machine code, and places in memory, are made by."""
        return self.rule, len(self.numbers), self.moments, self.powers

    def marks(self, params: Sequence[Tensor]) -> list[bool]:
        """Of each parameter whether it has the last of the numbers; none for all."""
        own = self.has_last
        return [] if own is None else [bool(own(p.name)) for p in params]


def _root(x: Number) -> Number:
    return x.intrinsic("sqrt")


def _sgd(rate: Number, powers: Numbers) -> Made:
    return lambda p, g: [p - rate * g], powers


def _momentum(rate: Number, powers: Numbers, mu: Number, *decay: Number) -> Made:
    def element(p: Number, g: Number, v: Number) -> Numbers:
        v = v * mu + (g + decay[0] * p if decay else g)
        return p - rate * v, v

    return element, powers


def _nesterov(rate: Number, powers: Numbers, mu: Number, *decay: Number) -> Made:
    def element(p: Number, g: Number, v: Number) -> Numbers:
        g = g + decay[0] * p if decay else g
        v = v * mu + g
        return p - (g + v * mu) * rate, v

    return element, powers


def _adagrad(rate: Number, powers: Numbers, epsilon: Number) -> Made:
    def element(p: Number, g: Number, s: Number) -> Numbers:
        s = s + g * g
        return p - rate * g / (_root(s) + epsilon), s

    return element, powers


def _adadelta(rate: Number, powers: Numbers, rho: Number, epsilon: Number) -> Made:
    def element(p: Number, g: Number, s: Number, d: Number) -> Numbers:
        s = rho * s + (1 - rho) * (g * g)
        step = -(_root((d + epsilon) / (s + epsilon)) * g)
        d = rho * d + (1 - rho) * (step * step)
        return p + rate * step, s, d

    return element, powers


def _rmsprop(rate: Number, powers: Numbers, *settings: Number) -> Made:
    rho, epsilon, mu = settings

    def element(p: Number, g: Number, s: Number, v: Number, *means: Number) -> Numbers:
        s = rho * s + (1 - rho) * (g * g)
        means = tuple(rho * m + (1 - rho) * g for m in means)
        spread = s - means[0] * means[0] if means else s
        v = mu * v + rate * g / _root(spread + epsilon)
        return p - v, s, v, *means

    return element, powers


def _adam(rate: Number, powers: Numbers, *settings: Number) -> Made:
    (one, two), (beta1, beta2, epsilon, *decay) = powers, settings
    root = _root(1 - two)
    factor, least = rate * (root / (1 - one)), epsilon * root
    kept = [1 - rate * coefficient for coefficient in decay]

    def element(
        p: Number, g: Number, m: Number, v: Number, *largest: Number
    ) -> Numbers:
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        largest = tuple((v < x).where(x, v) for x in largest)
        divisor = _root(largest[0] if largest else v) + least
        before = p * kept[0] if kept else p
        return before - factor * (m / divisor), m, v, *largest

    return element, [one * beta1, two * beta2]


def _adamax(rate: Number, powers: Numbers, *settings: Number) -> Made:
    (one,), (beta1, beta2, epsilon, exact) = powers, settings
    factor = rate / (1 - one)

    def element(p: Number, g: Number, m: Number, v: Number) -> Numbers:
        m = beta1 * m + (1 - beta1) * g
        size, below = abs(g), beta2 * v + epsilon
        v = (size < below).where(below, size)
        return p - factor * (m / v), m, v

    return element, [one * exact]


def _single(*numbers: Any) -> tuple[Any, ...]:
    """What operators of Paddle's take as float32, in float64 too."""
    return tuple(float(np.float32(x)) if type(x) is float else x for x in numbers)


MOMENTS, POWERS = ("moment1", "moment2"), ("beta1_pow_acc", "beta2_pow_acc")


def _of_momentum(it: Any) -> Setting | str:
    if it._rescale_grad != 1.0:
        return "it scales gradients"
    decay = (it._regularization_coeff,) * (it._regularization_method == "l2_decay")
    rule = _nesterov if it._use_nesterov else _momentum
    return Setting(rule, _single(it._momentum, *decay), ("velocity",))


def _of_rmsprop(it: Any) -> Setting:
    moments = "mean_square", "momentum", *["mean_grad"] * bool(it._centered)
    return Setting(_rmsprop, _single(it._rho, it._epsilon, it._momentum), moments)


def _of_adam(it: Any, *decay: float) -> Setting:
    moments = (*MOMENTS, *["moment2_max"] * bool(it._amsgrad))
    numbers = it._beta1, it._beta2, it._epsilon, *decay
    return Setting(_adam, numbers, moments, POWERS)


def _of_adamw(it: Any) -> Setting | str:
    if it._lr_ratio is not None:
        return "it has a rate for each parameter"
    made = _of_adam(it, *_single(it._weight_decay))
    return made._replace(has_last=it._apply_decay_param_fun)


SETTINGS: dict[type, Callable[[Any], Setting | str]] = {
    theirs.SGD: lambda it: Setting(_sgd, ()),
    theirs.Momentum: _of_momentum,
    theirs.Adagrad: lambda it: Setting(_adagrad, _single(it._epsilon), ("moment",)),
    theirs.Adadelta: lambda it: Setting(
        _adadelta,
        _single(it._rho, it._epsilon),
        ("_avg_squared_grad", "_avg_squared_update"),
    ),
    theirs.RMSProp: _of_rmsprop,
    theirs.Adam: _of_adam,
    theirs.AdamW: _of_adamw,
    theirs.Adamax: lambda it: Setting(
        _adamax,
        (*_single(it._beta1, it._beta2, it._epsilon), it._beta1),
        ("moment", "inf_norm"),
        ("beta1_pow_acc",),
    ),
}
"""By class: how an optimizer steps, or why not by a program."""

METHODS = "_append_optimize_op", "_finish_update", "_create_accumulators"
"""What they do natively, which a script may have replaced."""

_methods = attrgetter(*METHODS)
_native = {kind: _methods(kind) for kind in SETTINGS}


def setting_of(optimizer: Any) -> Setting | str:
    """How an optimizer steps, as it is set by now, or why not by a program."""
    kind = type(optimizer)
    replaced = not vars(optimizer).keys().isdisjoint(METHODS)
    if kind not in SETTINGS or replaced or _methods(kind) != _native[kind]:
        return "there is no rule for it"
    if optimizer._auxiliary_vars or optimizer._use_multi_tensor:
        return "it scales gradients, or has use_multi_tensor"
    found = SETTINGS[kind](optimizer)
    if isinstance(found, Setting) and not {*map(type, found.numbers)} <= {int, float}:
        return "a setting is no number of Python's"
    return found


def code_of(setting: Setting, dtype: str) -> Code:
    """The function that takes a step.

    Its block has, eight bytes each: the number of parameters, what stands at the places
    above, the settings as float64, then for each parameter its size, whether it has the
    last of the settings, its address and those of its moments and powers, then the
    gradients' addresses.
    """
    counts = map(len, (setting.numbers, setting.moments, setting.powers))
    return _code(setting.rule, *counts, dtype)


@cache
def _code(rule: Rule, numbers: int, moments: int, powers: int, dtype: str) -> Code:
    text, kind = Text(), TYPES[dtype]

    def load(type: str, place: str, how: str = "") -> Number:
        return Number(text.put(f"load {type}, ptr {place}{how}"), type, text)

    def at(type: str, row: str, place: object) -> str:
        index = text.put(f"add i64 {row}, {place}")
        where = f"getelementptr inbounds i64, ptr %block, i64 {index}"
        return load(type, text.put(where)).name

    rate = load(kind, text.argument(RATE, "ptr", "rate"))
    given = []
    for k in range(numbers):
        exact = Number(text.argument(FIRST + k, "double", "c"), "double", text)
        given.append(exact if kind == "double" else exact.to("fptrunc", kind))
    grads, first = text.argument(GRADS, "i64", "grads"), FIRST + numbers
    with text.loop(text.argument(0, "i64", "count")) as which:
        row = text.put(f"mul i64 {which}, {3 + moments + powers}")
        size = at("i64", row, first)
        found = [at("ptr", row, first + 2 + i) for i in range(1 + moments + powers)]
        tensors, scalars = found[: 1 + moments], found[1 + moments :]
        grad = at("ptr", which, grads)
        own = Number(at("i64", row, first + 1), "i64", text)
        given[-1:] = [x * own.to("sitofp", kind) for x in given[-1:]]
        element, after = rule(rate, [load(kind, p) for p in scalars], *given)
        with text.loop(size, parallel=True) as i:
            inside = f"getelementptr inbounds {kind}, ptr"
            places = [text.put(f"{inside} {p}, i64 {i}") for p in (*tensors, grad)]
            p, *kept, g = (load(kind, place, f", {PARALLEL}") for place in places)
            for place, x in zip(places, element(p, g, *kept), strict=False):
                text.line(f"store {kind} {x.name}, ptr {place}, {PARALLEL}")
        for place, x in zip(scalars, after, strict=True):
            text.line(f"store {kind} {x.name}, ptr {place}")
    return machine_code([str(text)])[0]
