"""Taylor series through a record, by the rules of its operators.

An operator with a rule for series gives them itself. For any other, ``y = f(x)``, its
rule for gradients, used twice, writes the derivative along the curve, ``y' = J(x) x'``,
in operators: the gradient is linear in its cotangent, and the gradient of that is
``J``. Series of one order less through these operators are those of ``y'``. The
operators may again have no rule of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.listener import not_listening
from ..operators.calls import JetCall, Series
from ..operators.series import total
from ..tracing.operations import Operation, Value, with_values
from ..tracing.reverse import TraceView, reverse


def series_of(
    record: TraceView,
    start: int,
    stop: int,
    ends: Sequence[Value],
    starts: Sequence[Value],
    series: Sequence[Series],
) -> list[Series]:
    """Return the series of the ends along a curve, through some operations.

    These are the operations from start to stop.

    Args:
        series: of each of the starts, its value first, all of one length.
    """
    order = len(series[0]) - 1
    if order == 0:
        return [[record.tensor(value)] for value in ends]
    known: dict[Value, Series] = dict(zip(starts, series, strict=True))

    def of(value: Value) -> Series:
        return known.get(value) or [record.tensor(value), *[None] * order]

    for i in _operations_between(record, range(start, stop), ends, known):
        known.update(_through(record, i, of, order))
    return [of(value) for value in ends]


def second_sums_of(
    record: TraceView,
    start: int,
    stop: int,
    ends: Sequence[Value],
    starts: Sequence[Value],
    directions: Sequence[Sequence[Tensor | None]],
) -> list[tuple[list[Tensor | None], Tensor | None]]:
    """Return first derivatives along directions, and the sum of the second ones.

    One pass computes both. Second coefficients are linear in those before, so their sum
    goes along with the first direction only. However many directions there are, linear
    operators run once for the sum.

    Returns:
        These for each of the ends.
    """
    moving = {v for v, *parts in zip(starts, *directions, strict=True) if _any(parts)}
    curves: list[dict[Value, Series]] = [
        {v: [record.tensor(v), part, None] for v, part in zip(starts, d, strict=True)}
        for d in directions
    ]

    def along(known: dict[Value, Series]) -> Callable[[Value], Series]:
        return lambda v: known.get(v) or [record.tensor(v), None, None]

    for i in _operations_between(record, range(start, stop), ends, moving):
        op = record.ops[i]
        sums: dict[Value, Any] = dict.fromkeys(op.outputs)
        if rows := _rows_of_all(op, curves):
            x = op.inputs[0]
            every = along({x: [record.tensor(x), paddle.concat(rows, 0), None]})
            for v, (value, firsts, _) in _through(record, i, every, 2).items():
                for known, first in zip(curves, firsts.split(len(rows)), strict=True):
                    known[v] = [value, first, None]
            continue
        for known in curves:
            of = along(known)
            if any(_any(of(v)[1:]) for v in op.inputs):
                for v, (value, first, second) in _through(record, i, of, 2).items():
                    known[v] = [value, first, None]
                    sums[v] = total((sums[v], second))
        for v, part in sums.items():
            curves[0][v] = [*along(curves[0])(v)[:2], part]
    return [
        (
            [_in_full(along(k))(v)[1] for k in curves],
            _times(along(curves[0])(v)[2], 2.0),
        )
        for v in ends
    ]


def _rows_of_all(op: Operation, curves: Sequence[dict[Value, Series]]) -> list[Tensor]:
    """Return a first layer's directions, of one row each, which one product serves."""
    if not _is_of_last_axis(op) or any(
        known.keys() & op.inputs[1:] for known in curves
    ):
        return []
    x, rows = op.inputs[0], []
    for known in curves:
        _, first, second = known.get(x, (None, None, None))
        if first is None or second is not None or first.shape[:1] != [1]:
            return []
        rows.append(first)
    return rows if rows[0].ndim > 1 else []


def _any(parts: Iterable[Any]) -> bool:
    return any(part is not None for part in parts)


def _through(
    record: TraceView, i: int, of: Callable[[Value], Series], order: int
) -> dict[Value, Series]:
    """Return the series of an operation's results, from those of its arguments."""
    op = record.ops[i]
    if op.operator.alias:
        return {op.outputs[0]: of(op.inputs[0])}
    if not _is_of_last_axis(op) or any(_any(of(v)[1:]) for v in op.inputs[1:]):
        of = _in_full(of)
    if op.operator.jet is not None and not op.is_complex:
        args = [with_values(arg, of) for arg in op.args]
        outputs = [record.tensor(v) for v in op.outputs]
        results = [*map(_in_one_dtype, op.operator.jet(JetCall(args, outputs, order)))]
    else:
        results = _by_gradients(record, i, {v: of(v) for v in op.inputs}, order)
    return dict(zip(op.outputs, results, strict=True))


def _in_one_dtype(series: Series) -> Series:
    """Return a series in the dtype of its value.

    That dtype may be wider than that of the values it depends on.
    """
    dtype = series[0].dtype
    return [p if p is None or p.dtype == dtype else p.astype(dtype) for p in series]


def _is_of_last_axis(op: Operation) -> bool:
    """Tell whether it accepts one row in place of many equal rows."""
    name, args = op.operator.name, op.args
    is_product = name == "linear" or (name == "matmul" and not args[2])
    return is_product and len(args[1].shape) <= 2  # not of many matrices


def _in_full(of: Callable[[Value], Series]) -> Callable[[Value], Series]:
    """Return coefficients in the value's shape, where one row stands for many."""

    return lambda value: in_full(of(value))


def in_full(series: Series) -> Series:
    """Return all coefficients in the value's shape."""
    x, *parts = series
    return [x, *(p if p is None else _expanded(p, x) for p in parts)]


def _expanded(part: Tensor, like: Tensor) -> Tensor:
    return part if part.shape == like.shape else part.expand(like.shape)


def _operations_between(
    record: TraceView, places: range, ends: Sequence[Value], starts: Iterable[Value]
) -> list[int]:
    """Return the operations through which the ends depend on the starts.

    Only operations where gradients are on count.
    """
    reached, forward = {*starts}, []
    for i in places:
        op = record.ops[i]
        if record.taped[i] and not reached.isdisjoint(op.inputs):
            forward.append(i)
            reached.update(op.outputs)
    needed, results = {*ends}, []
    for i in reversed(forward):
        if not needed.isdisjoint(record.ops[i].outputs):
            results.append(i)
            needed.update(record.ops[i].inputs)
    return results[::-1]


def _by_gradients(
    record: TraceView, place: int, curve: dict[Value, Series], order: int
) -> list[Series]:
    """Return the series by ``y' = J(x) x'``.

    Coefficient k of ``y'`` is ``(k + 1) y[k + 1]``.

    Args:
        curve: the series of the arguments.
    """
    op, start = record.ops[place], len(record.ops)
    moving = {
        value: x
        for value, x in curve.items()
        if record.requires(value) and any(part is not None for part in x[1:])
    }
    velocities = {value: _velocity(x) for value, x in moving.items()}
    slopes, along = _slopes(record, place, velocities)
    stop = len(record.ops)
    ends = [slope for slope in slopes if slope is not None]
    results: list[Series] = [[record.tensor(value)] for value in op.outputs]
    # J is often written in the results, of which each order takes those below.
    for k in range(1, order + 1):
        known = dict(zip(op.outputs, results, strict=True))
        known |= {value: x[:k] for value, x in moving.items()}
        known |= {along[value]: v[:k] for value, v in velocities.items()}
        each = iter(series_of(record, start, stop, ends, [*known], [*known.values()]))
        for i, slope in enumerate(slopes):
            last = None if slope is None else next(each)[k - 1]
            results[i] = [*results[i], _times(last, 1.0 / k)]
    return results


def _slopes(
    record: TraceView, place: int, velocities: dict[Value, Series]
) -> tuple[list[Value | None], dict[Value, Value]]:
    """Return ``J(x) v`` for all outputs of an operation, and the values for ``v``."""
    op, start = record.ops[place], len(record.ops)
    outputs = [v for v in op.outputs if record.requires(v)]
    with grad_mode(True):
        seeds = [own(record, paddle.zeros_like(record.tensor(v))) for v in outputs]
        along = {value: own(record, v[0]) for value, v in velocities.items()}
        gradients = reverse(record, place, place + 1, outputs, [*velocities], seeds)
        pairs = [
            (gradient, v)
            for gradient, v in zip(gradients, along.values(), strict=True)
            if gradient is not None
        ]
        with not_listening():
            ends = [record.value_of(gradient) for gradient, _ in pairs]
            starts = [record.value_of(seed) for seed in seeds]
            stand = {value: record.value_of(v) for value, v in along.items()}
        results = reverse(
            record, start, len(record.ops), ends, starts, [v for _, v in pairs]
        )
    with not_listening():
        slopes = {
            output: record.value_of(slope)
            for output, slope in zip(outputs, results, strict=True)
            if slope is not None
        }
    return [slopes.get(v) for v in op.outputs], stand


def own(record: TraceView, tensor: Tensor) -> Tensor:
    """Return the same values as a new value, to differentiate by."""
    own: Tensor = paddle.assign(tensor)
    own.stop_gradient = False
    record.dummies.append(own)
    return own


def leaf_of(record: TraceView, tensor: Tensor) -> Tensor:
    """Return as :func:`own` does, but integers and the like unchanged."""
    return own(record, tensor) if is_differentiable(tensor) else tensor


def _velocity(x: Series) -> Series:
    """Return the series of ``x'``, whose value is a tensor."""
    results = [_times(part, float(k)) for k, part in enumerate(x[1:], 1)]
    return [paddle.zeros_like(x[0]) if results[0] is None else results[0], *results[1:]]


def _times(part: Tensor | None, factor: float) -> Tensor | None:
    return part if part is None or factor == 1 else part * factor
