"""A function or layer called many times, each time on numbers of its own.

Calls 1, 2, 6 and 50 are compared: the first is of copies, later ones go by programs. Of
each, values and gradients beside those of the first call of another net, or by the
tape, in float64; and the gradient along a direction beside central differences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import paddle

from paddle_chainrules import jit, stateless, value_and_grad, vjp

from . import functions, layers
from .inputs import arrays_of
from .verdicts import (
    EXACT,
    ROUGH,
    TOLERANCE,
    WRONG,
    Array,
    Differences,
    Native,
    Question,
    Verdict,
    floats_of,
    is_float,
    judged,
    made,
    random_like,
    spread,
)

CALLS = (1, 2, 6, 50)
DTYPES = ("float64", "float32")
NEAR = {"float64": 1e-7, "float32": 2e-3}
"""How far an entry may be off, of the largest one."""

Begin = Callable[[str], Any]
Found = Sequence[Any]


def in_dtype(arrays: Sequence[Array], dtype: str) -> list[Array]:
    """Floating arrays in another dtype, complex ones in its precision."""

    def one(array: Array) -> Array:
        if np.iscomplexobj(array):
            return array.astype("complex64" if dtype == "float32" else "complex128")
        floating = np.issubdtype(array.dtype, np.floating)
        return array.astype(dtype) if floating else array

    return [one(array) for array in arrays]


def rounded(arrays: Sequence[Array], dtype: str) -> list[Array]:
    """Arrays in float64 of numbers that the dtype has."""
    return in_dtype(in_dtype(arrays, dtype), "float64")


@contextmanager
def default_dtype(dtype: str) -> Iterator[None]:
    """Paddle's, for what makes tensors of its own."""
    before = paddle.get_default_dtype()
    paddle.set_default_dtype(dtype)
    try:
        yield
    finally:
        paddle.set_default_dtype(before)


def tensors(arrays: Sequence[Array]) -> list[Any]:
    return [paddle.to_tensor(array) for array in arrays]


def off(found: Found, expected: Sequence[Found], near: float) -> str:
    """How a row differs from every row that it might be; nothing where from none."""
    why = ""
    for row in expected:
        parts = [_off(f, e, near) for f, e in zip(found, row, strict=True)]
        why = "; ".join(part for part in parts if part)
        if not why:
            return ""
    return why


def _off(found: Any, expected: Any, near: float) -> str:
    a, b = (None if t is None else t.numpy() for t in (found, expected))
    if a is None or b is None:
        some = a if b is None else b
        none = some is None or not np.abs(some).max(initial=0.0) > 0
        return "" if none else "None beside a gradient"
    if a.shape != b.shape:
        return f"of shape {a.shape}, not {b.shape}"
    same = np.isfinite(b) == np.isfinite(a)
    size = np.abs(b[np.isfinite(b)]).max(initial=1e-3)
    with np.errstate(invalid="ignore"):
        far = np.abs(np.where(np.isfinite(a) & np.isfinite(b), a - b, 0.0))
    worst = far.max(initial=0.0)
    if same.all() and worst <= near * size:
        return ""
    return f"off by {worst:.3g} of {size:.3g}"


def along_a_direction(
    function: Callable[[Sequence[Any]], Any],
    given: Sequence[Any],
    grads: Found,
    cotangents: Sequence[Array],
    near: float,
) -> str:
    """How gradients in float64 differ from central differences of the function.

    These say nothing where they depend on their step.
    """
    places = [i for i, t in enumerate(given) if is_float(t)]
    if not places or not cotangents:
        return ""
    exact = Differences(function, given, places)
    directions = random_like([exact._arrays[i] for i in places], 3)
    slopes, bend = exact.along(dict(zip(places, directions, strict=True)))
    steep = max((np.abs(s).max(initial=0.0) for s in slopes), default=0.0)
    if bend > 1e-4 * max(steep, 1.0):  # a step or a pole is near these numbers
        return ""
    pairs = [(c, s) for c, s in zip(cotangents, slopes, strict=True)]
    pairs += [
        (-grads[i].numpy(), d)
        for i, d in zip(places, directions, strict=True)
        if grads[i] is not None
    ]
    terms = [np.real(np.conj(a) * b).sum() for a, b in pairs]
    size = sum(np.abs(np.conj(a) * b).sum() for a, b in pairs)
    if abs(sum(terms)) <= near * max(size, 1e-3):
        return ""
    return f"{sum(terms):.3g} of {size:.3g} off along a direction"


class Subject(Protocol):
    """What is called again and again, in one dtype and one way."""

    label: str
    near: float
    dtype: str

    def numbers(self, call: int) -> tuple[list[Array], list[Array]]:
        """What a call is given, and its cotangents, in float64."""

    def called(self, given: list[Any], seeds: list[Any]) -> Found:
        """Its floating results, then gradients by all that is given."""

    def expected(self, drawn: list[Array], bars: list[Array]) -> list[Found]:
        """The same in other ways, each of them right."""

    @property
    def function(self) -> Callable[[Sequence[Any]], Any] | None:
        """To be compared with by differences, in float64."""

    @property
    def own(self) -> Sequence[Any]:
        """Tensors of its own."""


def asked(subject: Subject, begin: Begin) -> list[Verdict]:
    """The questions of a subject, which end at the first that is not answered."""
    questions, why = Question(begin), ""
    for call in range(1, max(CALLS) + 1):
        drawn, bars = (rounded(row, subject.dtype) for row in subject.numbers(call))
        given, seeds = _in(subject.dtype, drawn, bars)
        name = f"call {call}, {subject.label}"
        if call not in CALLS:
            try:
                subject.called(given, seeds)
            except Exception as error:
                return [*questions.verdicts, Verdict(name, *judged(error))]
            continue

        def compare(given: Any = given, seeds: Any = seeds, at: Any = (drawn, bars)):
            nonlocal why
            row = subject.called(given, seeds)
            why = off(row, subject.expected(*at), subject.near)
            if not why and subject.dtype == "float64" and subject.function:
                here, grads = tensors(at[0]), row[len(row) - len(at[0]) :]
                near = max(subject.near, TOLERANCE)
                why = along_a_direction(subject.function, here, grads, at[1], near)
            return []

        questions.ask(name, compare, [*given, *seeds, *subject.own])
        if why:
            questions.verdicts[-1] = Verdict(name, WRONG, why)
        if any(verdict.verdict != EXACT for verdict in questions.verdicts):
            break
    return questions.verdicts


class CalledFunction:
    """A function of the table, by ``vjp`` of ``jit`` or by ``value_and_grad``."""

    own = ()

    def __init__(self, name: str, dtype: str, how: str) -> None:
        self._name, self._case = name, functions.TABLE[name]
        self.dtype, self.label, self.near = dtype, f"{dtype}, {how}", _near(name, dtype)
        first = tensors(in_dtype(arrays_of(name, self._case.inputs), dtype))
        with default_dtype(dtype):
            self._outputs = floats_of(self.function(first))
        self.is_real = not any(t.is_complex() for t in self._outputs)
        self._program = jit(self._case.function)
        self._gradient = value_and_grad(self._total, has_aux=True)
        self._by_loss = how == "value_and_grad"

    def function(self, given: Sequence[Any]) -> Any:
        return self._case.function(*given)

    def numbers(self, call: int) -> tuple[list[Array], list[Array]]:
        drawn = arrays_of(f"{self._name}, {call}", self._case.inputs)
        return drawn, random_like([t.numpy() for t in self._outputs], 100 + call)

    def _total(self, moved: dict[int, Any], rest: list[Any], seeds: list[Any]) -> Any:
        given = [moved.get(i, x) for i, x in enumerate(rest)]
        outputs = floats_of(self.function(given))
        pairs = zip(outputs, seeds, strict=True)
        return sum(((y * s).sum() for y, s in pairs), paddle.zeros([])), outputs

    def called(self, given: list[Any], seeds: list[Any]) -> Found:
        with default_dtype(self.dtype):
            if not self._by_loss:
                return _by_vjp(self._program, given, seeds)
            moved = {i: x for i, x in enumerate(given) if is_float(x)}
            rest = [None if i in moved else x for i, x in enumerate(given)]
            (_, outputs), grads = self._gradient(moved, rest, seeds)
        return [*outputs, *map(grads.get, range(len(given)))]

    def expected(self, drawn: list[Array], bars: list[Array]) -> list[Found]:
        kinds = dict.fromkeys(("float64", self.dtype))
        found = []
        for kind in kinds:
            with default_dtype(kind):
                found.append(_by_vjp(self._case.function, *_in(kind, drawn, bars)))
        return found


def _by_vjp(fn: Any, given: list[Any], seeds: list[Any]) -> Found:
    y, back = vjp(fn, *given)
    return [*floats_of(y), *back(_cotangent(y, seeds))]


def _cotangent(y: Any, seeds: list[Any]) -> Any:
    """Nested as an output; some give float64 whatever they are given."""
    pairs = zip(floats_of(y), seeds, strict=True)
    return spread(y, iter([seed.astype(leaf.dtype) for leaf, seed in pairs]))


class CalledLayer:
    """A layer of the table as a net, with other parameters at every call."""

    def __init__(self, name: str, dtype: str, how: dict[str, bool]) -> None:
        self._name, self._case = name, layers.TABLE[name]
        self.dtype, self.label = dtype, ", ".join([dtype, *how])
        self.near = _near(name, dtype)
        self._options = {"seed": 7} if self._case.seeded else {}
        args = tensors(in_dtype(arrays_of(name, self._case.inputs), dtype))
        with default_dtype(dtype):
            self._net, params, _ = stateless(made(self._case), **how)
            y = self._net.forward(params, *args, **self._options)
        self._params = {n: t.numpy() for n, t in params.items()}
        self._outputs = floats_of(y)

    @property
    def own(self) -> Sequence[Any]:
        return [*self._net.buffers.values()]

    @property
    def function(self) -> Callable[[Sequence[Any]], Any] | None:
        if self._case.constant_writes:
            return None
        return Native(self._case, [*self._params])

    def numbers(self, call: int) -> tuple[list[Array], list[Array]]:
        rng = np.random.default_rng(call)
        params = self._params.values()
        moved = [a * (1 + 0.1 * rng.uniform(-1, 1, a.shape)) for a in params]
        args = arrays_of(f"{self._name}, {call}", self._case.inputs)
        bars = random_like([t.numpy() for t in self._outputs], 100 + call)
        return [*moved, *args], bars

    def called(self, given: list[Any], seeds: list[Any]) -> Found:
        with default_dtype(self.dtype):
            return self._called(self._net, given, seeds, self._options)

    def _called(
        self, net: Any, given: list[Any], seeds: list[Any], options: dict[str, Any]
    ) -> Found:
        count = len(self._params)
        params = dict(zip(self._params, given[:count], strict=True))
        y, back, *_ = net.pullback(params, *given[count:], **options)
        by_name, by_arg = back(_cotangent(y, seeds))
        return [*floats_of(y), *by_name.values(), *by_arg]

    def expected(self, drawn: list[Array], bars: list[Array]) -> list[Found]:
        """By the first call of other nets; random numbers are those of a dtype."""
        kinds = (
            [self.dtype] if self._options else dict.fromkeys(("float64", self.dtype))
        )
        return [self._first(kind, drawn, bars) for kind in kinds]

    def _first(self, dtype: str, drawn: list[Array], bars: list[Array]) -> Found:
        with default_dtype(self.dtype):
            net = stateless(made(self._case), jit=False)[0].in_dtype(dtype)
        with default_dtype(dtype):
            return self._called(net, *_in(dtype, drawn, bars), self._options)


def _near(name: str, dtype: str) -> float:
    return max(NEAR[dtype], 1e-4 if name in ROUGH else 0.0)


def _in(dtype: str, *rows: Sequence[Array]) -> list[list[Any]]:
    return [tensors(in_dtype(row, dtype)) for row in rows]


def of_function(name: str, begin: Begin) -> list[Verdict]:
    """In both dtypes, as far as Paddle has it, and in both ways."""
    found: list[Verdict] = []
    for dtype in DTYPES:
        for how in ("jit", "value_and_grad"):
            begin(f"{dtype}, {how}")
            try:
                subject = CalledFunction(name, dtype, how)
            except Exception:
                if dtype == "float64":
                    raise
                continue
            if subject.is_real or how == "jit":
                found += asked(subject, begin)
    return found


def of_layer(name: str, begin: Begin) -> list[Verdict]:
    """In both dtypes, as far as Paddle has it, by default and with ``jit``."""
    found: list[Verdict] = []
    for dtype in DTYPES:
        for how in ({}, {"jit": True}):
            begin(dtype)
            try:
                subject = CalledLayer(name, dtype, how)
            except Exception as error:
                if dtype == "float64":
                    found.append(Verdict("itself", *judged(error)))
                continue
            found += asked(subject, begin)
    return found
