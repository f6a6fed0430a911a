"""Partial derivatives with respect to inputs, by Taylor series on the trace.

A mixed derivative is a series along one direction of the derivatives along another.
Their common subexpressions are computed once, as everywhere in programs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import paddle
from paddle import Tensor

from ...paddle_side.autograd.engine import or_zeros
from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.listener import listener, not_listening
from ...paddle_side.process.random_state import random_state, restore_random_state
from ...settings import UNROLLED
from ..batches.blocks import (
    may_probe_all_rows,
    need_no_tiles,
    run_tiled,
    run_tiles_in_sequence,
)
from ..operators.calls import Series
from ..tracing.operations import Operation, Value
from ..tracing.record import Tracer
from ..tracing.where import at_one_location
from .independence import is_by_rows
from .taylor import full_coefficients, new_leaf, second_sums_of, series_of

MultiIndex = tuple[int, ...]
Wanted = tuple[int, MultiIndex]
"""A derivative of an output, by its index and its orders along the directions."""
Direction = Callable[[Sequence[Tensor]], Sequence[Tensor | None]]
"""A function of a point that returns a tensor for each input.

The tensor has the input's shape, or is one row for all of its rows. None means that the
input stays.
"""


def partials(
    fn: Callable[[list[Tensor]], Sequence[Tensor]],
    inputs: Sequence[Tensor],
    directions: Sequence[Direction],
    wanted: Sequence[Wanted],
    by_rows: bool = False,
) -> list[Tensor]:
    """Return derivatives of a function's outputs at its inputs, as a tracer listens.

    Args:
        by_rows: whether directions are columns. Derivatives are then those by an
            entry's own row.

    Raises:
        ValueError: entries of an output depend on several rows, where ``by_rows``.
    """
    if any(x.size == 0 for x in inputs):
        outputs = fn([*inputs])
        return [outputs[n] * 0.0 if any(index) else outputs[n] for n, index in wanted]

    def differentiate(linearized: LinearizationPoint) -> list[Tensor]:
        outputs = linearized.outputs
        ends: dict[Wanted, Tensor | None] = {(n, ()): outputs[n] for n, _ in wanted}
        for direction_index, direction in enumerate(linearized.directions):
            ends = _differentiate_along(
                linearized, direction, ends, direction_index, wanted
            )
        return [or_zeros(ends[n, i], outputs[n]) for n, i in wanted]

    return _evaluate_at_point(fn, inputs, directions, by_rows, differentiate)


DIRECTIONS_PER_GROUP = 16
"""The number of directions at a time, where there are more."""

Rows = Tensor | tuple[Tensor, Tensor]
"""Directions, one a row.

They are a matrix, or for each direction its column and how far it goes.
"""


def second_sums(
    fn: Callable[[list[Tensor]], Sequence[Tensor]],
    inputs: Sequence[Tensor],
    directions: Sequence[Rows | None],
    by_rows: bool = True,
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return sums of second derivatives along directions, as a tracer listens.

    One pass computes them.

    Args:
        directions: for each input one a row, the same at all rows of the input.

    Returns:
        For each output its value; the derivatives along all directions, which are the
        last dimension; and the sum of the second ones.

    Raises:
        ValueError: as :func:`partials`.
    """
    row_tensors = [tensor for d in directions for tensor in _row_tensors(d)]
    count = row_tensors[0].shape[0]
    if any(x.size == 0 for x in inputs):
        zeros = ((y, y * 0.0) for y in fn([*inputs]))
        return [(y, paddle.stack([zero] * count, -1), zero) for y, zero in zeros]

    def differentiate(linearized: LinearizationPoint) -> list[Tensor]:
        if count <= UNROLLED:
            return [
                tensor for results in _second_sums_at(linearized) for tensor in results
            ]
        return _second_sums_in_groups(fn, linearized, row_tensors, like=directions)

    first_rows = (
        row_tensors if count <= UNROLLED else [tensor[:1] for tensor in row_tensors]
    )
    results = _evaluate_at_point(
        fn,
        inputs,
        _directions_from_rows(first_rows, directions, inputs),
        by_rows,
        differentiate,
    )
    return [
        (results[i], results[i + 1], results[i + 2]) for i in range(0, len(results), 3)
    ]


def _row_tensors(rows: Rows | None) -> tuple[Tensor, ...]:
    return () if rows is None else rows if isinstance(rows, tuple) else (rows,)


def _directions_from_rows(
    row_tensors: Sequence[Tensor], like: Sequence[Rows | None], inputs: Sequence[Tensor]
) -> list[Direction]:
    """Return the directions whose rows are stored in some tensors.

    Args:
        row_tensors: of all inputs, as :func:`_row_tensors` lists them.
        like: for each input rows of the same structure.
    """
    tensors = iter(row_tensors)
    matrices = [
        _direction_matrix(x, *[next(tensors) for _ in _row_tensors(rows)])
        if rows is not None
        else None
        for x, rows in zip(inputs, like, strict=False)
    ]

    def direction(k: int) -> Direction:
        return lambda point: [
            None if m is None else m[k].reshape([*[1] * (x.ndim - 1), -1])
            for x, m in zip(point, matrices, strict=False)
        ]

    return [*map(direction, range(row_tensors[0].shape[0]))]


def _direction_matrix(x: Tensor, rows: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Return directions of an input, one a row."""
    if lengths is None:
        return rows
    units = paddle.nn.functional.one_hot(rows, x.shape[-1])
    return units.astype(x.dtype) * lengths.unsqueeze(-1)


def _second_sums_at(
    linearized: LinearizationPoint,
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return for each output what :func:`second_sums` does, for all directions."""
    ends, stop = linearized.values_of(linearized.outputs), len(linearized.tracer.ops)
    with grad_mode(True):
        results = second_sums_of(
            linearized.tracer,
            linearized.start,
            stop,
            ends,
            linearized.starts,
            linearized.directions,
        )
        return [
            (
                y,
                paddle.stack([or_zeros(first, y) for first in firsts], -1),
                or_zeros(total, y),
            )
            for y, (firsts, total) in zip(linearized.outputs, results, strict=True)
        ]


def _second_sums_in_groups(
    fn: Callable[[list[Tensor]], Sequence[Tensor]],
    linearized: LinearizationPoint,
    row_tensors: Sequence[Tensor],
    like: Sequence[Rows | None],
) -> list[Tensor]:
    """Return the results of :func:`second_sums`, one group of directions at a time."""
    point, n = linearized.inputs, len(linearized.inputs)

    def run_group(tensors: list[Tensor]) -> list[Tensor]:
        directions = _directions_from_rows(tensors[n:], like, tensors[:n])
        results = _second_sums_at(_linearize(fn, tensors[:n], directions, False))
        return [
            tensor
            for _, firsts, total in results
            for tensor in (paddle.moveaxis(firsts, -1, 0), total)
        ]

    is_grouped = [*[False] * n, *[True] * len(row_tensors)]
    is_summed = [False, True] * len(linearized.outputs)
    grouped_results = iter(
        run_tiles_in_sequence(
            run_group,
            [*point, *row_tensors],
            is_grouped,
            DIRECTIONS_PER_GROUP,
            is_summed,
        )
    )
    return [
        tensor
        for y in linearized.outputs
        for tensor in (
            y,
            paddle.moveaxis(next(grouped_results), 0, -1),
            next(grouped_results),
        )
    ]


@dataclass(frozen=True)
class LinearizationPoint:
    """A function traced at a point.

    Attributes:
        inputs: the point; ``starts`` holds its values.
        start: the index of the function's first operation in the trace.
        directions: at the point.
    """

    tracer: Tracer
    inputs: Sequence[Tensor]
    start: int
    starts: Sequence[Value]
    outputs: Sequence[Tensor]
    directions: Sequence[Sequence[Tensor | None]]

    @property
    def operations(self) -> list[Operation]:
        """The operations of the function."""
        return self.tracer.ops[self.start :]

    def values_of(self, tensors: Iterable[Tensor]) -> list[Value]:
        with not_listening():
            return [self.tracer.value_of(x) for x in tensors]


def _evaluate_at_point(
    fn: Callable[[list[Tensor]], Sequence[Tensor]],
    inputs: Sequence[Tensor],
    directions: Sequence[Direction],
    by_rows: bool,
    evaluate: Callable[[LinearizationPoint], list[Tensor]],
) -> list[Tensor]:
    """Call ``evaluate`` with a function traced at a point, in blocks of many rows."""
    rows = {x.shape[0] if x.ndim else 1 for x in inputs}
    linearized = None
    if len(rows) != 1 or may_probe_all_rows(*rows):
        linearized = _linearize(fn, inputs, directions, by_rows)
    if len(rows) == 1 and (
        linearized is None or not need_no_tiles(linearized.operations, *rows)
    ):
        state = random_state()
        try:
            result = run_tiled(
                lambda point: evaluate(_linearize(fn, point, directions, True)),
                lambda point: evaluate(_linearize(fn, point, directions, False)),
                fn,
                inputs,
                rows.pop(),
            )
        except Exception:  # of a function that asks for all rows, whichever it raises
            result = None
        if result is not None:
            return result
        restore_random_state(state)
    linearized = linearized or _linearize(fn, inputs, directions, by_rows)
    with at_one_location(linearized.tracer):
        return evaluate(linearized)


def _linearize(
    fn: Callable[[list[Tensor]], Sequence[Tensor]],
    inputs: Sequence[Tensor],
    directions: Sequence[Direction],
    by_rows: bool,
) -> LinearizationPoint:
    tracer = listener()
    assert isinstance(tracer, Tracer)
    tracer.by_series = True
    with grad_mode(True):
        point = [new_leaf(tracer, x) for x in inputs]
        with not_listening():
            starts = [tracer.value_of(x) for x in point]
        start = len(tracer.ops)
        outputs = fn(point)
    directions_at_point = [direction(inputs) for direction in directions]
    if by_rows:
        moved = [
            i
            for i, tangents in enumerate(zip(*directions_at_point, strict=True))
            if any(tangent is not None for tangent in tangents)
        ]
        if not is_by_rows(tracer, start, starts, outputs, moved):
            _check_rows(inputs, outputs, moved)
            raise ValueError(
                "the net's result in one row depends on other rows of the input, as by "
                "statistics of a batch or attention over it, so that it has no "
                "derivative by the coordinates of its own row alone; put the layer "
                "into evaluation mode, or take jvp or jacobian, which are of the whole "
                "batch"
            )
    return LinearizationPoint(
        tracer, inputs, start, starts, outputs, directions_at_point
    )


def _check_rows(
    inputs: Sequence[Tensor], outputs: Sequence[Tensor], moved: Sequence[int]
) -> None:
    """Refuse outputs that have no rows as the inputs have.

    Raises:
        ValueError: one has none.
    """
    row_counts = {inputs[i].shape[0] for i in moved if inputs[i].ndim}
    for output in outputs:
        if not row_counts & {*output.shape[:1]}:
            raise ValueError(
                f"the net returns shape {list(output.shape)} for an input of shape "
                f"{list(inputs[moved[0]].shape)}, but derivatives by the input need a "
                "value for each sample; return [n, 1], without a sum or mean over the "
                "batch"
            )


def _differentiate_along(
    linearized: LinearizationPoint,
    direction: Sequence[Tensor | None],
    ends: dict[Wanted, Tensor | None],
    direction_index: int,
    wanted: Sequence[Wanted],
) -> dict[Wanted, Tensor | None]:
    """Differentiate known derivatives along one more direction, as often as wanted."""
    tracer, starts = linearized.tracer, linearized.starts
    by_order: dict[int, list[Wanted]] = {}
    for key in ends:
        order_needed = max(
            index[direction_index]
            for n, index in wanted
            if (n, index[:direction_index]) == key
        )
        by_order.setdefault(order_needed, []).append(key)
    results: dict[Wanted, Tensor | None] = {}
    for order, group in by_order.items():
        present = {key: end for key in group if (end := ends[key]) is not None}
        moving = {x: v for x, v in zip(starts, direction, strict=True) if v is not None}
        values = linearized.values_of(present.values())
        curves: list[Series] = [
            [tracer.tensor(x), v, *[None] * order][: order + 1]
            for x, v in moving.items()
        ]
        with grad_mode(True):
            series = series_of(
                tracer, linearized.start, len(tracer.ops), values, [*moving], curves
            )
            series_by_key = dict(zip(present, series, strict=True))
            requested = {
                (n, i[: direction_index + 1])
                for n, i in wanted
                if (n, i[:direction_index]) in group
            }
            for n, index in requested:
                below = n, index[:-1]
                coefficient = (
                    full_coefficients(series_by_key[below])[index[-1]]
                    if below in series_by_key
                    else None
                )
                results[n, index] = _scaled(coefficient, math.factorial(index[-1]))
    return results


def _scaled(coefficient: Tensor | None, factor: int) -> Tensor | None:
    return (
        coefficient
        if coefficient is None or factor == 1
        else coefficient * float(factor)
    )
