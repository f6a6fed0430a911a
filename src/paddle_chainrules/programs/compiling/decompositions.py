"""Operators decomposed into simpler ones for machine code: norms, softmax, losses.

Paddle's kernels of these operators go over memory several times, and end a region.
Their formulas consist of operators that have rules for machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.listener import not_listening
from ...paddle_side.process.random_state import private_dropout_seed
from ..capture_error import CaptureError
from ..codegen.fused_kernels.regions import may_be_part
from ..operators.calls import NoRule
from ..operators.images.channels_last import CHANNELS_LAST, FIRST
from ..sizes.any_size import samples_of
from ..sizes.one_number import with_one_number
from ..sizes.samples import Samples
from ..tracing.common_subexpressions import CommonSubexpressions
from ..tracing.inside import recorded_inside
from ..tracing.operations import Operation, Value, fresh_numbers, values_in, with_values

MAX_COMPARED_NUMBERS = 64
"""Constants of up to this many entries are compared with other constants."""


class Decomposition(NamedTuple):
    """The operators that replace an operator.

    Attributes:
        inputs: the values that stand for its inputs.
        constants: tensors that the formula makes from no input.
        ends: the values that stand for its outputs, None for unused ones.
    """

    inputs: Sequence[Value]
    constants: dict[Value, Tensor]
    ops: Sequence[Operation]
    ends: Sequence[Value | None]

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The ends that are not None."""
        return tuple(end for end in self.ends if end is not None)

    def read(self, op: Operation) -> list[Value]:
        """Return the inputs of an operation that it reads."""
        used = {v for part in self.ops for v in part.inputs}
        pairs = zip(_given(op), self.inputs, strict=True)
        return [value for value, own in pairs if own in used]

    def on(
        self,
        op: Operation,
        fresh: Iterator[int],
        constants: dict[Value, Tensor],
        known: dict[Any, Value],
    ) -> Iterator[Operation]:
        """Give the same on the values of an operation, adding its constants to others.

        Args:
            known: these others by their contents.
        """
        own = dict(zip(self.inputs, _given(op), strict=True))
        pairs = zip(self.ends, op.outputs, strict=True)
        own.update((end, out) for end, out in pairs if end is not None)

        def named(value: Value) -> Value:
            if value not in own:
                size = value.shape, value.dtype, value.bytes
                own[value] = Value(next(fresh), *size)
            return own[value]

        for value, tensor in self.constants.items():
            own[value] = known.setdefault(_content(tensor), named(value))
            constants.setdefault(own[value], tensor)
        for part in self.ops:
            args = tuple(with_values(arg, named) for arg in part.args)
            outs = tuple(map(named, part.outputs))
            yield replace(part, args=args, outputs=outs, where=op.where)


def _content(tensor: Tensor) -> Any:
    """Return a key that is the same for small tensors with the same contents."""
    if tensor.size > MAX_COMPARED_NUMBERS:
        return id(tensor)
    return tensor.dtype, *tensor.shape, tensor.numpy().tobytes()


def _given(op: Operation) -> list[Value]:
    """Return the tensors that an operation is given, without those left empty."""
    return [v for v in dict.fromkeys(op.inputs) if v.dtype != "none"]


def may_decompose(ops: Iterable[Operation]) -> bool:
    """Tell whether some of the operators may be decomposed."""
    return any(map(_has_formula, ops))


def _has_formula(op: Operation) -> bool:
    """Tell whether machine code uses an operator's formula instead of its kernel."""
    entry = op.operator
    return entry.formula is not None and not (entry.keeps_kernel or entry.loop)


def _is_decomposed(op: Operation) -> bool:
    """Tell whether an operation may have parts, by checks that cost nothing."""
    name = op.operator.name
    if name in CHANNELS_LAST and not any(
        isinstance(arg, str) and arg in FIRST for arg in op.args
    ):
        return False
    return _has_formula(op)


PartsOf = Callable[[Operation, tuple[bool, ...]], Decomposition | None]
"""A function that returns what replaces an operation, given which outputs are used.

It returns None where the operation stays.
"""

Replaced = tuple[list[Operation], dict[Value, Tensor]]
"""Operations, and the further constants that they need."""


def decomposed(
    ops: Sequence[Operation],
    given: Iterable[Value],
    outputs: Iterable[Value],
    samples: Samples | None,
    has_products: bool,
) -> Replaced:
    """Return the same, with operations decomposed where the parts go into regions.

    Args:
        given: values that exist before.
        has_products: whether products may be part of regions.
    """

    def inner(
        ops: Sequence[Operation], given: Iterable[Value], outputs: Iterable[Value]
    ) -> Replaced:
        return decomposed(ops, given, outputs, None, has_products)

    def parts_of(op: Operation, asked: tuple[bool, ...]) -> Decomposition | None:
        return _parts_of(op, asked, samples, inner, has_products)

    return _replaced(ops, given, outputs, _is_decomposed, parts_of)


def by_formulas(
    ops: Sequence[Operation],
    given: Iterable[Value],
    outputs: Iterable[Value],
    lacks: Callable[[Operation], bool],
) -> Replaced:
    """Return the same, with formulas for operations that lack something.

    Operations whose formula lacks it too stay.
    """

    def may_go(op: Operation) -> bool:
        return op.operator.formula is not None and lacks(op)

    def inner(
        ops: Sequence[Operation], given: Iterable[Value], outputs: Iterable[Value]
    ) -> Replaced:
        return _replaced(ops, given, outputs, may_go, parts_of)

    def parts_of(op: Operation, asked: tuple[bool, ...]) -> Decomposition | None:
        result = _traced(op, asked, int, inner)
        return None if result is None or any(map(lacks, result.ops)) else result

    return inner(ops, given, outputs)


def _replaced(
    ops: Sequence[Operation],
    given: Iterable[Value],
    outputs: Iterable[Value],
    may_go: Callable[[Operation], bool],
    parts_of: PartsOf,
) -> Replaced:
    """Return the same, with parts in place of the operations that have some."""
    known: dict[Any, Decomposition | None] = {}
    wanted = {*outputs}
    chosen: list[tuple[Operation, Decomposition | None]] = []
    for op in reversed(ops):
        if not op.operator.random and wanted.isdisjoint(op.outputs):
            continue
        parts = None
        if may_go(op):
            requested = tuple(out in wanted for out in op.outputs)
            key = requested, _key(op)
            if key not in known:
                known[key] = parts_of(op, requested)
            parts = known[key]
        wanted.update(op.inputs if parts is None else parts.read(op))
        chosen.append((op, parts))
    common, kept = CommonSubexpressions(), {*outputs}
    fresh = fresh_numbers(given, ops)
    constants: dict[Value, Tensor] = {}
    alike: dict[Any, Value] = {}
    results: list[Operation] = []
    for op, parts in reversed(chosen):
        for each in [op] if parts is None else parts.on(op, fresh, constants, alike):
            named = common.named(each)
            # What a program gives is its own.
            if not kept.isdisjoint(named.outputs) or not common.is_known(named):
                results.append(named)
    return results, constants


def _key(op: Operation) -> Any:
    """Return a key that is the same for operations that have the same parts."""
    order = {v: i for i, v in enumerate(dict.fromkeys(op.inputs))}
    args = with_values(op.args, lambda v: (order[v], v.shape, v.dtype))
    return op.operator.name, repr(args)


def _parts_of(
    op: Operation,
    asked: tuple[bool, ...],
    samples: Samples | None,
    inner: Callable[..., Replaced],
    has_products: bool,
) -> Decomposition | None:
    """Return the formula's parts for the outputs asked for, if all fit in a region."""
    result = _traced(op, asked, int if samples else None, inner)
    if result is None or not all(
        may_be_part(part, has_products) or part.operator.random for part in result.ops
    ):
        return None
    if samples is not None:
        varying, size = samples.varying, samples.size
        other = size + 1

        def another(n: int) -> int:
            return n // size * other if n in varying else n

        again = _traced(op, asked, another, inner)
        both = again and samples_of(result, size, again, other, known=varying)
        if both is None or both.varying != varying:
            return None
    return result


def _zeros(value: Value, resized: Callable[[int], int]) -> Tensor:
    shape, dtype = [*map(resized, value.shape)], getattr(paddle, value.dtype)
    return paddle.zeros(shape, dtype)


def _traced(
    op: Operation,
    asked: tuple[bool, ...],
    resized: Callable[[int], int] | None,
    inner: Callable[..., Replaced],
) -> Decomposition | None:
    """Trace the formula of an operation.

    Args:
        resized: gives other sizes for the sizes of its inputs; None where they stay,
            whatever the number of samples.
        inner: replaces operations of the formula.
    """
    sized = resized is not None
    resized = resized or int
    values = _given(op)
    formula = op.operator.formula
    assert formula is not None
    results: list[Any] = []

    def of_tensors(tensors: list[Tensor]) -> list[Tensor]:
        named = dict(zip(values, tensors, strict=True))
        result = formula(*(with_values(arg, named.get) for arg in op.args))
        results.extend(result if isinstance(result, list | tuple) else [result])
        return [r for r in results if r is not None]

    try:
        with not_listening(), grad_mode(False):
            tensors = [_zeros(v, resized) for v in values]
        with grad_mode(False), private_dropout_seed():
            record, ends = recorded_inside(of_tensors, tensors)
    except (CaptureError, NoRule, RuntimeError, TypeError, ValueError):
        return None
    common = CommonSubexpressions()
    ops = []
    for each in map(common.named, record.ops):
        if each.operator.alias:
            common.alias[each.outputs[0]] = each.args[0]
        else:
            ops.append(each)
    rest = iter(common.alias.get(v, v) for v in ends)
    places = [next(rest) if r is not None else None for r in results]
    count = len(op.outputs)
    places = [*places[:count], *[None] * (count - len(places))]
    places = [p if on else None for p, on in zip(places, asked, strict=True)]
    made = {v for each in ops for v in each.outputs}
    places = [p if p in made else None for p in places]  # no input as it is
    there = [p for p in places if p is not None]
    if len({*there}) < sum(asked):
        return None  # the same twice, or left out
    given = (*record.inputs, *record.constants)
    ops, more = inner(ops, given, there)
    known = {**record.constants, **more}
    if sized:
        ops, known = with_one_number(ops, known, given)
    used = {*values_in([each.args for each in ops])}
    constants = {v: t for v, t in known.items() if v in used}
    return Decomposition(record.inputs, constants, ops, places)
