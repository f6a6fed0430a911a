"""Tests whether each entry of a result depends on its own row alone.

Where it does, the derivative by a column, with all its rows moved at once, is the
derivative by the entry's own row. Where it does not (statistics of a batch, attention
over it), that derivative has no use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import paddle
from paddle import Tensor

from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.listener import not_listening
from ...paddle_side.process.random_state import drawing_from, random_state
from ..batches.row_by_row import is_row_by_row
from ..comparison import other_inputs
from ..compiling.program import Program
from ..compiling.source import compile_program
from ..tracing.operations import Value
from ..tracing.record import Tracer


def is_by_rows(
    record: Tracer,
    start: int,
    starts: Sequence[Value],
    outputs: Sequence[Tensor],
    moved: Sequence[int],
) -> bool:
    """Tell whether recorded entries depend on one row of each moved input.

    Where the operators do not show it, rows are moved. A program that serves other
    calls is tried at other values, too.
    """
    if is_row_by_row(record.ops[start:], [starts[at] for at in moved]):
        return True
    with not_listening(), grad_mode(False):
        program, given = _recorded(record, start, starts, outputs)
        # Operator by operator: machine code, after some calls, rounds otherwise.
        function = compile_program(program.as_run)
        points = [[record.tensor(x) for x in given]]
        if record.is_reused:
            points.append(other_inputs(program, points[0]))
        state = random_state() if program.draws else None

        def run(given: Sequence[Tensor]) -> list[Tensor]:
            with drawing_from(state):
                results: list[Tensor] = function(*(value.clone() for value in given))
            return results

        return all(_is_by_rows(run, point, at) for point in points for at in moved)


def _recorded(
    record: Tracer, start: int, starts: Sequence[Value], outputs: Sequence[Tensor]
) -> tuple[Program, list[Value]]:
    """Return the operations from start on as a program, to run at other values.

    Its inputs are the given inputs first, then the values computed before.
    """
    ops = tuple(record.ops[start:])
    known, given = {*starts}, [*starts]
    constants: dict[Value, Tensor] = {}
    for op in ops:
        outside = [v for v in op.inputs if v not in known]
        for v in outside:
            if v in record.constants:
                constants[v] = record.tensor(v)
            else:
                given.append(v)
            known.add(v)
        known.update(op.outputs)
    ends = tuple(record.value_of(y) for y in outputs)
    constants.update((v, record.tensor(v)) for v in ends if v not in known)
    return Program(tuple(given), constants, ops, ends), given


def _is_by_rows(
    run: Callable[[Sequence[Tensor]], list[Tensor]], inputs: Sequence[Tensor], at: int
) -> bool:
    """Tell whether moving some rows moves exactly the entries of these rows.

    Each entry must be as with all rows moved, or as with none. An entry that belongs to
    a row must follow that row. Of any two rows, one is moved without the other at least
    once.
    """
    x = inputs[at]
    if x.ndim == 0 or x.size == 0:
        return True
    lead = x.shape[:-1] if x.ndim > 1 else x.shape

    def outputs(moved: Tensor) -> list[Tensor]:
        given = [moved if i == at else value for i, value in enumerate(inputs)]
        return [y for y in run(given) if is_differentiable(y) and y.size]

    every = _elsewhere(x)
    before, after = outputs(x), outputs(every)
    for shape in {tuple(lead), tuple(lead[:1])}:
        own = [tuple(y.shape[: len(shape)]) == shape for y in before]
        for moves in _halves(shape):
            which = paddle.to_tensor(moves)
            between = outputs(paddle.where(_beside(which, x), every, x))
            for result, one, other, has_rows in zip(
                between, before, after, own, strict=True
            ):
                near = _close(result, one, other), _close(result, other, one)
                if has_rows:
                    fits = paddle.where(_beside(which, result), near[1], near[0])
                elif len(shape) == len(lead):
                    fits = near[0] | near[1]
                else:
                    continue
                if not bool(fits.all()):
                    return False
    return True


def _halves(shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Give, for each binary digit of row numbers, the rows with it, and the others."""
    rows = np.arange(math.prod(shape)).reshape(shape)
    for digit in range(int(rows.max()).bit_length()):
        half = (rows >> digit) % 2 == 1
        yield half
        yield ~half


def _beside(which: Tensor, like: Tensor) -> Tensor:
    """Return for each entry the truth of its row."""
    ones = [1] * (like.ndim - which.ndim)
    return which.reshape([*which.shape, *ones]).expand(like.shape)


def _elsewhere(x: Tensor) -> Tensor:
    """Return other values in each column's range, at least a quarter of it away."""
    values = x.numpy()
    low, high = values.min(0, keepdims=True), values.max(0, keepdims=True)
    span = np.where(high > low, high - low, np.maximum(np.abs(low), 1))
    by = 0.25 + 0.5 * np.random.default_rng(0).random(values.shape)
    return paddle.to_tensor(low + (values - low + by * span) % span, x.dtype, x.place)


def _close(a: Tensor, b: Tensor, other: Tensor) -> Tensor:
    """Tell whether entries of a equal those of b, compared to their moved values.

    Kernels compute a row in the same way whatever other rows hold. So hardly any
    difference is allowed: a part of the distance that the entry moves.
    """
    part = 1e-12 if a.dtype in (paddle.float64, paddle.complex128) else 1e-6
    move = (b - other).abs()
    move = paddle.where(paddle.isfinite(move), move, paddle.zeros_like(move))
    near = (a - b).abs() <= part * move
    return near | (a == b) | (paddle.isnan(a) & paddle.isnan(b))
