"""Partial derivatives with respect to inputs, by Taylor series on the record.

A mixed derivative is a series along one direction of the derivatives along another.
Their common parts are computed once, as everywhere in programs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import paddle
from paddle import Tensor

from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.listener import listener, not_listening
from ...paddle_side.process.random_state import random_state, restore_random_state
from ..batches.blocks import (
    may_probe_all_rows,
    need_no_tiles,
    run_tiled,
    run_tiles_in_sequence,
)
from ..operators.calls import Series
from ..tracing.operations import Operation, Value
from ..tracing.record import Tracer
from ..tracing.where import in_one_place
from .independence import is_by_rows
from .taylor import in_full, own, second_sums_of, series_of

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
    """Return derivatives of a function's outputs at its inputs, as a record listens.

    Args:
        by_rows: whether directions are columns. Derivatives are then those by an
            entry's own row.

    Raises:
        ValueError: entries of an output depend on several rows, where ``by_rows``.
    """
    if any(x.size == 0 for x in inputs):
        outputs = fn([*inputs])
        return [outputs[n] * 0.0 if any(index) else outputs[n] for n, index in wanted]

    def answer(seen: LinearizationPoint) -> list[Tensor]:
        outputs = seen.outputs
        ends: dict[Wanted, Tensor | None] = {(n, ()): outputs[n] for n, _ in wanted}
        for at, direction in enumerate(seen.directions):
            ends = _along(seen, direction, ends, at, wanted)
        return [or_zeros(ends[n, i], outputs[n]) for n, i in wanted]

    return _at_point(fn, inputs, directions, by_rows, answer)


UNROLLED = 16
"""The number of directions up to which one program has all their operations."""

IN_TURN = 16
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
    """Return sums of second derivatives along directions, as a record listens.

    One pass computes them.

    Args:
        directions: for each input one a row, the same at all rows of the input.

    Returns:
        For each output its value; the derivatives along all directions, which are the
        last dimension; and the sum of the second ones.

    Raises:
        ValueError: as :func:`partials`.
    """
    given = [part for d in directions for part in _parts(d)]
    count = given[0].shape[0]
    if any(x.size == 0 for x in inputs):
        zeros = ((y, y * 0.0) for y in fn([*inputs]))
        return [(y, paddle.stack([zero] * count, -1), zero) for y, zero in zeros]

    def answer(seen: LinearizationPoint) -> list[Tensor]:
        if count <= UNROLLED:
            return [part for every in _second_sums(seen) for part in every]
        return _in_turn(fn, seen, given, like=directions)

    few = given if count <= UNROLLED else [part[:1] for part in given]
    every = _at_point(fn, inputs, _each(few, directions, inputs), by_rows, answer)
    return [(every[i], every[i + 1], every[i + 2]) for i in range(0, len(every), 3)]


def _parts(rows: Rows | None) -> tuple[Tensor, ...]:
    return () if rows is None else rows if isinstance(rows, tuple) else (rows,)


def _each(
    given: Sequence[Tensor], like: Sequence[Rows | None], inputs: Sequence[Tensor]
) -> list[Direction]:
    """Return directions, from the tensors that their rows are made of.

    Args:
        like: for each input what the directions are.
    """
    parts = iter(given)
    matrices = [
        _matrix(x, *[next(parts) for _ in _parts(rows)]) if rows is not None else None
        for x, rows in zip(inputs, like, strict=False)
    ]

    def at(k: int) -> Direction:
        return lambda point: [
            None if m is None else m[k].reshape([*[1] * (x.ndim - 1), -1])
            for x, m in zip(point, matrices, strict=False)
        ]

    return [*map(at, range(given[0].shape[0]))]


def _matrix(x: Tensor, rows: Tensor, lengths: Tensor | None = None) -> Tensor:
    """Return directions of an input, one a row."""
    if lengths is None:
        return rows
    units = paddle.nn.functional.one_hot(rows, x.shape[-1])
    return units.astype(x.dtype) * lengths.unsqueeze(-1)


def _second_sums(seen: LinearizationPoint) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return for each output the sums along all directions."""
    ends, stop = seen.ends(seen.outputs), len(seen.record.ops)
    with grad_mode(True):
        results = second_sums_of(
            seen.record, seen.start, stop, ends, seen.starts, seen.directions
        )
        return [
            (
                y,
                paddle.stack([or_zeros(first, y) for first in firsts], -1),
                or_zeros(total, y),
            )
            for y, (firsts, total) in zip(seen.outputs, results, strict=True)
        ]


def _in_turn(
    fn: Callable[[list[Tensor]], Sequence[Tensor]],
    seen: LinearizationPoint,
    given: Sequence[Tensor],
    like: Sequence[Rows | None],
) -> list[Tensor]:
    """Return the same for one group of directions after another."""
    point, n = seen.inputs, len(seen.inputs)

    def some(every: list[Tensor]) -> list[Tensor]:
        along = _each(every[n:], like, every[:n])
        results = _second_sums(_seen(fn, every[:n], along, False))
        return [
            part
            for _, firsts, total in results
            for part in (paddle.moveaxis(firsts, -1, 0), total)
        ]

    over = [*[False] * n, *[True] * len(given)]
    sums = [False, True] * len(seen.outputs)
    each = iter(run_tiles_in_sequence(some, [*point, *given], over, IN_TURN, sums))
    return [
        part
        for y in seen.outputs
        for part in (y, paddle.moveaxis(next(each), 0, -1), next(each))
    ]


def or_zeros(part: Tensor | None, like: Tensor) -> Tensor:
    """Return a part, or zeros where it is missing."""
    return paddle.zeros_like(like) if part is None else part


@dataclass(frozen=True)
class LinearizationPoint:
    """A function recorded at a point.

    Attributes:
        inputs: the point; ``starts`` holds the values that stand for it.
        start: the first of its operations on the record.
        directions: at the point.
    """

    record: Tracer
    inputs: Sequence[Tensor]
    start: int
    starts: Sequence[Value]
    outputs: Sequence[Tensor]
    directions: Sequence[Sequence[Tensor | None]]

    @property
    def made(self) -> list[Operation]:
        """The operations of the function."""
        return self.record.ops[self.start :]

    def ends(self, tensors: Iterable[Tensor]) -> list[Value]:
        with not_listening():
            return [self.record.value_of(x) for x in tensors]


def _at_point(
    fn: Callable[[list[Tensor]], Sequence[Tensor]],
    inputs: Sequence[Tensor],
    directions: Sequence[Direction],
    by_rows: bool,
    answer: Callable[[LinearizationPoint], list[Tensor]],
) -> list[Tensor]:
    """Evaluate ``answer`` for a function at a point, in blocks of many rows."""
    rows = {x.shape[0] if x.ndim else 1 for x in inputs}
    seen = None
    if len(rows) != 1 or may_probe_all_rows(*rows):
        seen = _seen(fn, inputs, directions, by_rows)
    if len(rows) == 1 and (seen is None or not need_no_tiles(seen.made, *rows)):
        state = random_state()
        try:
            result = run_tiled(
                lambda point: answer(_seen(fn, point, directions, True)),
                lambda point: answer(_seen(fn, point, directions, False)),
                fn,
                inputs,
                rows.pop(),
            )
        except Exception:  # of a function that asks for all rows, whichever it raises
            result = None
        if result is not None:
            return result
        restore_random_state(state)
    seen = seen or _seen(fn, inputs, directions, by_rows)
    with in_one_place(seen.record):
        return answer(seen)


def _seen(
    fn: Callable[[list[Tensor]], Sequence[Tensor]],
    inputs: Sequence[Tensor],
    directions: Sequence[Direction],
    by_rows: bool,
) -> LinearizationPoint:
    record = listener()
    assert isinstance(record, Tracer)
    record.by_series = True
    with grad_mode(True):
        point = [own(record, x) for x in inputs]
        with not_listening():
            starts = [record.value_of(x) for x in point]
        start = len(record.ops)
        outputs = fn(point)
    along = [direction(inputs) for direction in directions]
    if by_rows:
        moved = [
            i
            for i, parts in enumerate(zip(*along, strict=True))
            if any(part is not None for part in parts)
        ]
        if not is_by_rows(record, start, starts, outputs, moved):
            raise ValueError(
                "the net's result in one row depends on other rows of the input, as by "
                "statistics of a batch or attention over it, so that it has no "
                "derivative by the coordinates of its own row alone; put the layer "
                "into evaluation mode, or take jvp or jacobian, which are of the whole "
                "batch"
            )
    return LinearizationPoint(record, inputs, start, starts, outputs, along)


def _along(
    seen: LinearizationPoint,
    direction: Sequence[Tensor | None],
    ends: dict[Wanted, Tensor | None],
    at: int,
    wanted: Sequence[Wanted],
) -> dict[Wanted, Tensor | None]:
    """Differentiate known derivatives along one more direction, as often as wanted."""
    record, starts = seen.record, seen.starts
    tops: dict[int, list[Wanted]] = {}
    for known in ends:
        top = max(index[at] for n, index in wanted if (n, index[:at]) == known)
        tops.setdefault(top, []).append(known)
    results: dict[Wanted, Tensor | None] = {}
    for order, group in tops.items():
        there = {known: end for known in group if (end := ends[known]) is not None}
        moving = {x: v for x, v in zip(starts, direction, strict=True) if v is not None}
        values = seen.ends(there.values())
        curves: list[Series] = [
            [record.tensor(x), v, *[None] * order][: order + 1]
            for x, v in moving.items()
        ]
        with grad_mode(True):
            series = series_of(
                record, seen.start, len(record.ops), values, [*moving], curves
            )
            parts = dict(zip(there, series, strict=True))
            requested = {(n, i[: at + 1]) for n, i in wanted if (n, i[:at]) in group}
            for n, index in requested:
                below = n, index[:-1]
                part = in_full(parts[below])[index[-1]] if below in parts else None
                results[n, index] = _times(part, math.factorial(index[-1]))
    return results


def _times(part: Tensor | None, factor: int) -> Tensor | None:
    return part if part is None or factor == 1 else part * float(factor)
