"""Taylor series through a trace, by the rules of its operators.

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
from ..operators.series import linear_series, product_series, total
from ..tracing.operations import Operation, Value, values_in, with_values
from ..tracing.reverse import TraceView, reverse


def series_of(
    tracer: TraceView,
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
        return [[tracer.tensor(value)] for value in ends]
    series_by_value: dict[Value, Series] = dict(zip(starts, series, strict=True))

    def series_at(value: Value) -> Series:
        return series_by_value.get(value) or [tracer.tensor(value), *[None] * order]

    for i in _operations_between(tracer, range(start, stop), ends, series_by_value):
        series_by_value.update(_propagate_series(tracer, i, series_at, order))
    return [series_at(value) for value in ends]


def second_sums_of(
    tracer: TraceView,
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
    moving = {
        v
        for v, *coefficients in zip(starts, *directions, strict=True)
        if _any_present(coefficients)
    }
    curves: list[dict[Value, Series]] = [
        {
            v: [tracer.tensor(v), coefficient, None]
            for v, coefficient in zip(starts, d, strict=True)
        }
        for d in directions
    ]

    def series_lookup(
        series_by_value: dict[Value, Series],
    ) -> Callable[[Value], Series]:
        return lambda v: series_by_value.get(v) or [tracer.tensor(v), None, None]

    for i in _operations_between(tracer, range(start, stop), ends, moving):
        op = tracer.ops[i]
        sums: dict[Value, Any] = dict.fromkeys(op.outputs)
        if rows := _stackable_rows(op, curves):
            x = op.inputs[0]
            stacked_series_at = series_lookup(
                {x: [tracer.tensor(x), paddle.concat(rows, 0), None]}
            )
            for v, (value, firsts, _) in _propagate_series(
                tracer, i, stacked_series_at, 2
            ).items():
                for series_by_value, first in zip(
                    curves, firsts.split(len(rows)), strict=True
                ):
                    series_by_value[v] = [value, first, None]
            continue
        for series_by_value in curves:
            series_at = series_lookup(series_by_value)
            if any(_any_present(series_at(v)[1:]) for v in op.inputs):
                for v, (value, first, second) in _propagate_series(
                    tracer, i, series_at, 2
                ).items():
                    series_by_value[v] = [value, first, None]
                    sums[v] = total((sums[v], second))
        for v, coefficient in sums.items():
            curves[0][v] = [*series_lookup(curves[0])(v)[:2], coefficient]
    return [
        (
            [_with_full_coefficients(series_lookup(k))(v)[1] for k in curves],
            _scaled(series_lookup(curves[0])(v)[2], 2.0),
        )
        for v in ends
    ]


def _stackable_rows(
    op: Operation, curves: Sequence[dict[Value, Series]]
) -> list[Tensor]:
    """Return the one-row directions of a first layer, for which one product suffices.

    The list is empty where there are others.
    """
    if not _accepts_one_row(op) or any(
        series_by_value.keys() & op.inputs[1:] for series_by_value in curves
    ):
        return []
    x, rows = op.inputs[0], []
    for series_by_value in curves:
        _, first, second = series_by_value.get(x, (None, None, None))
        if first is None or second is not None or first.shape[:1] != [1]:
            return []
        rows.append(first)
    return rows if rows[0].ndim > 1 else []


def _any_present(items: Iterable[Any]) -> bool:
    return any(item is not None for item in items)


def _propagate_series(
    tracer: TraceView, i: int, series_at: Callable[[Value], Series], order: int
) -> dict[Value, Series]:
    """Return the series of an operation's outputs, from those of its inputs."""
    op = tracer.ops[i]
    if op.operator.alias:
        return {op.outputs[0]: series_at(op.inputs[0])}
    if not _accepts_one_row(op) or any(
        _any_present(series_at(v)[1:]) for v in op.inputs[1:]
    ):
        series_at = _with_full_coefficients(series_at)
    if op.operator.jet is not None and not op.is_complex:
        args = [with_values(arg, series_at) for arg in op.args]
        outputs = [tracer.tensor(v) for v in op.outputs]
        results = [*map(_in_one_dtype, op.operator.jet(JetCall(args, outputs, order)))]
    elif moving := _linear_arguments(op, series_at):
        results = _series_by_linearity(tracer, op, series_at, moving)
    else:
        results = _series_by_gradients(
            tracer, i, {v: series_at(v) for v in op.inputs}, order
        )
    return dict(zip(op.outputs, results, strict=True))


def _linear_arguments(op: Operation, series_at: Callable[[Value], Series]) -> list[int]:
    """Return the moving arguments, if a result is linear in each; else none."""
    moving = [
        k
        for k, arg in enumerate(op.args)
        if any(_any_present(series_at(v)[1:]) for v in values_in([arg]))
    ]
    is_linear = {*moving} <= {*op.operator.linear}
    return moving if is_linear and len(moving) <= 2 else []


def _series_by_linearity(
    tracer: TraceView,
    op: Operation,
    series_at: Callable[[Value], Series],
    moving: list[int],
) -> list[Series]:
    """Return the series of a function that is linear in one or two arguments."""
    args = [with_values(arg, tracer.tensor) for arg in op.args]

    def bind(*terms: Any) -> list[Any]:
        for k, term in zip(moving, terms, strict=True):
            args[k] = term
        return op.operator.bind(args)

    values = [tracer.tensor(v) for v in op.outputs]
    series = [_series_of_argument(op.args[k], series_at) for k in moving]
    if len(moving) == 1:
        higher = linear_series(bind, series[0][1:])
        return [
            [value, *(row if row is None else row[i] for row in higher)]
            for i, value in enumerate(values)
        ]
    x, y = series
    return [[values[0], *product_series(x, y, lambda a, b: bind(a, b)[0])[1:]]]


def _series_of_argument(arg: Any, series_at: Callable[[Value], Series]) -> Series:
    """Return the series of an argument, with lists of tensors for one of a list."""
    if isinstance(arg, Value):
        return series_at(arg)
    all_series = [*map(series_at, arg)]
    values = [series[0] for series in all_series]
    return [
        [
            paddle.zeros_like(value) if term is None else term
            for value, term in zip(values, terms, strict=True)
        ]
        if _any_present(terms)
        else None
        for terms in zip(*all_series, strict=True)
    ]


def _in_one_dtype(series: Series) -> Series:
    """Return a series in the dtype of its value.

    That dtype may be wider than that of the values it depends on.
    """
    dtype = series[0].dtype
    return [p if p is None or p.dtype == dtype else p.astype(dtype) for p in series]


def _accepts_one_row(op: Operation) -> bool:
    """Tell whether an operation accepts one row in place of many equal rows."""
    name, args = op.operator.name, op.args
    is_product = name == "linear" or (name == "matmul" and not args[2])
    return is_product and len(args[1].shape) <= 2  # not of many matrices


def _with_full_coefficients(
    series_at: Callable[[Value], Series],
) -> Callable[[Value], Series]:
    """Return a function of the same series, with coefficients in the value's shape."""

    return lambda value: full_coefficients(series_at(value))


def full_coefficients(series: Series) -> Series:
    """Return all coefficients in the value's shape."""
    x, *coefficients = series
    return [x, *(p if p is None else _expand_to(p, x) for p in coefficients)]


def _expand_to(coefficient: Tensor, like: Tensor) -> Tensor:
    return (
        coefficient
        if coefficient.shape == like.shape
        else coefficient.expand(like.shape)
    )


def _operations_between(
    tracer: TraceView, op_range: range, ends: Sequence[Value], starts: Iterable[Value]
) -> list[int]:
    """Return the operations through which the ends depend on the starts.

    Only operations where gradients are on count.
    """
    reached, depending = {*starts}, []
    for i in op_range:
        op = tracer.ops[i]
        if tracer.taped[i] and not reached.isdisjoint(op.inputs):
            depending.append(i)
            reached.update(op.outputs)
    needed, results = {*ends}, []
    for i in reversed(depending):
        if not needed.isdisjoint(tracer.ops[i].outputs):
            results.append(i)
            needed.update(tracer.ops[i].inputs)
    return results[::-1]


def _series_by_gradients(
    tracer: TraceView, op_index: int, curve: dict[Value, Series], order: int
) -> list[Series]:
    """Return the series by ``y' = J(x) x'``.

    Coefficient k of ``y'`` is ``(k + 1) y[k + 1]``.

    Args:
        curve: the series of the arguments.
    """
    op, start = tracer.ops[op_index], len(tracer.ops)
    moving = {
        value: x
        for value, x in curve.items()
        if tracer.requires(value)
        and any(coefficient is not None for coefficient in x[1:])
    }
    velocities = {value: _series_derivative(x) for value, x in moving.items()}
    slopes, velocity_values = _directional_derivatives(tracer, op_index, velocities)
    stop = len(tracer.ops)
    ends = [slope for slope in slopes if slope is not None]
    results: list[Series] = [[tracer.tensor(value)] for value in op.outputs]
    # J is often written in the results, of which each order takes those below.
    for k in range(1, order + 1):
        series_by_value = dict(zip(op.outputs, results, strict=True))
        series_by_value |= {value: x[:k] for value, x in moving.items()}
        series_by_value |= {
            velocity_values[value]: v[:k] for value, v in velocities.items()
        }
        slope_series = iter(
            series_of(
                tracer,
                start,
                stop,
                ends,
                [*series_by_value],
                [*series_by_value.values()],
            )
        )
        for i, slope in enumerate(slopes):
            coefficient_k = None if slope is None else next(slope_series)[k - 1]
            results[i] = [*results[i], _scaled(coefficient_k, 1.0 / k)]
    return results


def _directional_derivatives(
    tracer: TraceView, op_index: int, velocities: dict[Value, Series]
) -> tuple[list[Value | None], dict[Value, Value]]:
    """Return ``J(x) v`` for the outputs of an operation, and the values of ``v``."""
    op, start = tracer.ops[op_index], len(tracer.ops)
    outputs = [v for v in op.outputs if tracer.requires(v)]
    with grad_mode(True):
        seeds = [new_leaf(tracer, paddle.zeros_like(tracer.tensor(v))) for v in outputs]
        velocity_leaves = {
            value: new_leaf(tracer, v[0]) for value, v in velocities.items()
        }
        gradients = reverse(
            tracer, op_index, op_index + 1, outputs, [*velocities], seeds
        )
        pairs = [
            (gradient, v)
            for gradient, v in zip(gradients, velocity_leaves.values(), strict=True)
            if gradient is not None
        ]
        with not_listening():
            ends = [tracer.value_of(gradient) for gradient, _ in pairs]
            starts = [tracer.value_of(seed) for seed in seeds]
            velocity_values = {
                value: tracer.value_of(v) for value, v in velocity_leaves.items()
            }
        results = reverse(
            tracer, start, len(tracer.ops), ends, starts, [v for _, v in pairs]
        )
    with not_listening():
        slopes = {
            output: tracer.value_of(slope)
            for output, slope in zip(outputs, results, strict=True)
            if slope is not None
        }
    return [slopes.get(v) for v in op.outputs], velocity_values


def new_leaf(tracer: TraceView, tensor: Tensor) -> Tensor:
    """Return a copy of a tensor that requires gradients, to differentiate by."""
    new_leaf: Tensor = paddle.assign(tensor)
    new_leaf.stop_gradient = False
    tracer.dummies.append(new_leaf)
    return new_leaf


def leaf_of(tracer: TraceView, tensor: Tensor) -> Tensor:
    """Return a new leaf, or an integer tensor and the like unchanged."""
    return new_leaf(tracer, tensor) if is_differentiable(tensor) else tensor


def _series_derivative(x: Series) -> Series:
    """Return the series of ``x'``, whose value is a tensor."""
    results = [_scaled(coefficient, float(k)) for k, coefficient in enumerate(x[1:], 1)]
    return [paddle.zeros_like(x[0]) if results[0] is None else results[0], *results[1:]]


def _scaled(coefficient: Tensor | None, factor: float) -> Tensor | None:
    return coefficient if coefficient is None or factor == 1 else coefficient * factor
