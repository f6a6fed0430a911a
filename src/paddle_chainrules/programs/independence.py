"""Whether each entry of a result depends on one row of the coordinates alone.

Where it does, the derivative by a column, all rows of it moved at once, is that by the
entry's own row. Where it does not (statistics of a batch, attention over it), it is
nothing that anybody asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import paddle
from paddle import Tensor

from ..paddle_side.dtypes import is_differentiable
from ..paddle_side.grad_mode import grad_mode
from ..paddle_side.listener import not_listening
from ..paddle_side.random_state import drawing_from, random_state
from .operations import Value
from .program import Program
from .record import Record


def is_by_rows(
    record: Record,
    start: int,
    starts: Sequence[Value],
    outputs: Sequence[Tensor],
    moved: Sequence[int],
) -> bool:
    """Whether entries of what was recorded depend on one row of each moved input."""
    with not_listening(), grad_mode(False):
        program = _recorded(record, start, starts, outputs)
        inputs = [record.tensor(x) for x in starts]
        state = random_state() if program.draws else None

        def run(given: Sequence[Tensor]) -> list[Tensor]:
            with drawing_from(state):
                return program(*(value.clone() for value in given))

        return all(_is_by_rows(run, inputs, at) for at in moved)


def _recorded(
    record: Record, start: int, starts: Sequence[Value], outputs: Sequence[Tensor]
) -> Program:
    """The operations from start on, as a program of the inputs."""
    ops = tuple(record.ops[start:])
    known = {*starts}
    constants: dict[Value, Tensor] = {}
    for op in ops:
        outside = [v for v in op.inputs if v not in known]
        constants.update((v, record.tensor(v)) for v in outside)
        known.update(outside, op.outputs)
    ends = tuple(record.value_of(y) for y in outputs)
    constants.update((v, record.tensor(v)) for v in ends if v not in known)
    return Program(tuple(starts), constants, ops, ends)


def _is_by_rows(
    run: Callable[[Sequence[Tensor]], list[Tensor]], inputs: Sequence[Tensor], at: int
) -> bool:
    """With half of its rows moved, each entry is as with all moved, or as with none."""
    x = inputs[at]
    n = x.shape[0] if x.ndim else 1
    if n < 2 or x.size == 0:
        return True

    def outputs(moved: Tensor) -> list[Tensor]:
        return run([moved if i == at else value for i, value in enumerate(inputs)])

    rows = paddle.arange(n).reshape([n, *[1] * (x.ndim - 1)])
    every = _elsewhere(x)
    before, after = outputs(x), outputs(every)
    for which in (rows % 2 == 0, rows < n // 2):
        between = outputs(paddle.where(which, every, x))
        for found, one, other in zip(between, before, after, strict=True):
            if not is_differentiable(found) or found.size == 0:
                continue
            if not bool((_close(found, one) | _close(found, other)).all()):
                return False
    return True


def _elsewhere(x: Tensor) -> Tensor:
    """Other numbers from the range of each column, so that its largest is another."""
    values = x.numpy()
    low, high = values.min(0, keepdims=True), values.max(0, keepdims=True)
    span = np.where(high > low, high - low, np.maximum(np.abs(low), 1))
    drawn = np.random.default_rng(0).random(values.shape)
    return paddle.to_tensor(low + drawn * span, x.dtype, x.place)


def _close(a: Tensor, b: Tensor) -> Tensor:
    """Entry by entry, NaN and infinities beside themselves too.

    Kernels compute a row in the same way whatever stands in others.
    """
    roundoff = 1e-12 if a.dtype in (paddle.float64, paddle.complex128) else 1e-6
    size = b.abs()
    scale = paddle.where(paddle.isfinite(size), size, paddle.zeros_like(size)).max()
    near = (a - b).abs() <= roundoff * scale
    return near | (a == b) | (paddle.isnan(a) & paddle.isnan(b))
