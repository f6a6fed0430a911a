"""Whether each entry of a result depends on one row of the coordinates alone.

Where it does, the derivative by a column, all rows of it moved at once, is that by the
entry's own row. Where it does not (statistics of a batch, attention over it), it is
nothing that anybody asks for.
"""

from __future__ import annotations

from collections.abc import Sequence

import paddle
from paddle import Tensor

from ..paddle_side.dtypes import is_differentiable
from ..paddle_side.grad_mode import grad_mode
from ..paddle_side.listener import not_listening
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
        if program.draws:
            return True
        return all(_is_by_rows(program, inputs, at) for at in moved)


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


def _is_by_rows(program: Program, inputs: Sequence[Tensor], at: int) -> bool:
    """With half of its rows moved, each entry is as with all moved, or as with none."""
    x = inputs[at]
    n = x.shape[0] if x.ndim else 1
    if n < 2 or x.size == 0:
        return True

    def outputs(moved: Tensor) -> list[Tensor]:
        given = [moved if i == at else value for i, value in enumerate(inputs)]
        return program(*(value.clone() for value in given))

    rows = paddle.arange(n).reshape([n, *[1] * (x.ndim - 1)])
    every = paddle.roll(x, 1, 0)
    before, after = outputs(x), outputs(every)
    for which in (rows % 2 == 0, rows < n // 2):
        between = outputs(paddle.where(which, every, x))
        for found, one, other in zip(between, before, after, strict=True):
            if not is_differentiable(found) or found.size == 0:
                continue
            if not bool((_close(found, one) | _close(found, other)).all()):
                return False
    return True


def _close(a: Tensor, b: Tensor) -> Tensor:
    """Entry by entry, NaN and infinities beside themselves too."""
    roundoff = 1e-9 if a.dtype in (paddle.float64, paddle.complex128) else 1e-3
    size = b.abs()
    scale = paddle.where(paddle.isfinite(size), size, paddle.zeros_like(size)).max()
    near = (a - b).abs() <= roundoff * scale
    return near | (a == b) | (paddle.isnan(a) & paddle.isnan(b))
