"""Tests whether each entry of a result depends on its own row alone.

Where it does, the derivative by a column, with all its rows moved at once, is the
derivative by the entry's own row. Where it does not (statistics of a batch, attention
over it), that derivative has no use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import paddle
from paddle import Tensor

from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.listener import is_single_use, not_listening
from ...paddle_side.process.random_state import drawing_from, random_state
from ..batches.row_by_row import is_row_by_row
from ..comparison import other_inputs
from ..compiling.passes import needed_ops
from ..compiling.program import Program
from ..compiling.source import compile_program
from ..operators.axes import AxesArgument, Elementwise
from ..tracing.operations import Operation, Value
from ..tracing.record import Tracer


def is_by_rows(
    tracer: Tracer,
    start: int,
    starts: Sequence[Value],
    outputs: Sequence[Tensor],
    moved: Sequence[int],
) -> bool:
    """Tell whether entries of the traced outputs depend on one row of each input.

    Where the operators do not show it, rows are moved. A program that serves other
    calls is tried at other values, too.
    """
    if is_row_by_row(
        tracer.ops[start:], [starts[input_index] for input_index in moved]
    ):
        return True
    with not_listening(), grad_mode(False):
        program, values = _traced_program(tracer, start, starts, outputs)
        # Operator by operator: machine code, after some calls, rounds otherwise.
        function = compile_program(program)
        points = [[tracer.tensor(x) for x in values]]
        if tracer.is_reused:
            points.append(other_inputs(program, points[0]))
        state = random_state() if program.draws else None

        def run(values: Sequence[Tensor]) -> list[Tensor]:
            with drawing_from(state):
                results: list[Tensor] = function(*(tensor.clone() for tensor in values))
            return results

        follow_rows = all(
            _outputs_follow_rows(run, point, input_index)
            for point in points
            for input_index in moved
        )
    if follow_rows and tracer.is_reused and not is_single_use():
        op = _op_across_rows(program, [starts[input_index] for input_index in moved])
        if op is not None:
            tracer.fail(
                f"{op.operator.name} joins rows, so a row may depend on others at "
                "other values. A program can't check that; call it without jit, which "
                "checks at each call"
            )
    return follow_rows


def _op_across_rows(program: Program, moved: Sequence[Value]) -> Operation | None:
    """Return an operation that joins rows and is used by the outputs, or None.

    Such an operation does one of three things: it returns fewer numbers than there are
    rows (a mean, a single row); it works along the axes of rows (``roll``, ``cumsum``);
    or it indexes values of the input by integers computed from the input.
    """
    row_axes = [x.shape[:-1] or x.shape for x in moved]
    row_count = min(map(math.prod, row_axes), default=0)
    if row_count < 2:
        return None
    ops, dependent = needed_ops(program.ops, program.outputs), {*moved}
    by_rows = {*moved} if len({*row_axes}) == 1 else set()
    used = {*program.outputs, *(v for op in ops for v in op.inputs)}
    for op in ops:
        inputs = dependent.intersection(op.inputs)
        if not inputs:
            continue
        outputs = used.intersection(op.outputs)
        if any(math.prod(output.shape) < row_count for output in outputs):
            return op
        if _indexes_by_values(op, inputs):
            return op
        row_inputs = [v for v in op.inputs if v in by_rows]
        if row_inputs:
            if _keeps_rows(op, row_inputs, row_axes[0]):
                by_rows |= outputs
            elif isinstance(op.operator.axes, AxesArgument) and not (
                op.operator.axes.splits_or_joins
            ):
                return op
        dependent |= outputs
    return None


def _indexes_by_values(op: Operation, inputs: Iterable[Value]) -> bool:
    """Tell whether an operation that is not elementwise has integers and floats."""
    dtypes = {v.dtype.rstrip("0123456789") for v in inputs}
    is_elementwise = isinstance(op.operator.axes, Elementwise)
    return not is_elementwise and {"int", "float"} <= dtypes


def _keeps_rows(
    op: Operation, row_inputs: Sequence[Value], rows: tuple[int, ...]
) -> bool:
    """Tell whether each row of the outputs depends on the same row alone."""
    rank = len(rows)
    have_rows = all(v.shape[:rank] == rows for v in (*row_inputs, *op.outputs))
    return have_rows and op.operator.axes.keeps_rows(
        op.named, row_inputs, op.outputs, rank
    )


def _traced_program(
    tracer: Tracer, start: int, starts: Sequence[Value], outputs: Sequence[Tensor]
) -> tuple[Program, list[Value]]:
    """Return the traced operations from start on as a program, and its inputs.

    Its inputs are the starts first, then other values computed before.
    """
    ops = tuple(tracer.ops[start:])
    known, inputs = {*starts}, [*starts]
    constants: dict[Value, Tensor] = {}
    for op in ops:
        new_values = [v for v in op.inputs if v not in known]
        for v in new_values:
            if v in tracer.constants:
                constants[v] = tracer.tensor(v)
            else:
                inputs.append(v)
            known.add(v)
        known.update(op.outputs)
    output_values = tuple(tracer.value_of(y) for y in outputs)
    constants.update((v, tracer.tensor(v)) for v in output_values if v not in known)
    return Program(tuple(inputs), constants, ops, output_values), inputs


def _outputs_follow_rows(
    run: Callable[[Sequence[Tensor]], list[Tensor]],
    inputs: Sequence[Tensor],
    input_index: int,
) -> bool:
    """Tell whether moving some rows moves exactly the entries of these rows.

    Each entry must be as with all rows moved, or as with none. An entry that belongs to
    a row must follow that row. Of any two rows, one is moved without the other at least
    once.
    """
    x = inputs[input_index]
    if x.ndim == 0 or x.size == 0:
        return True
    row_shape = x.shape[:-1] if x.ndim > 1 else x.shape

    def outputs(moved: Tensor) -> list[Tensor]:
        run_inputs = [
            moved if i == input_index else value for i, value in enumerate(inputs)
        ]
        return [y for y in run(run_inputs) if is_differentiable(y) and y.size]

    all_moved = _moved_values(x)
    unmoved_outputs, moved_outputs = outputs(x), outputs(all_moved)
    for shape in {tuple(row_shape), tuple(row_shape[:1])}:
        have_rows = [tuple(y.shape[: len(shape)]) == shape for y in unmoved_outputs]
        for mask_values in _row_halves(shape):
            mask = paddle.to_tensor(mask_values)
            some_moved = outputs(paddle.where(_row_mask(mask, x), all_moved, x))
            for result, at_rest, moved_output, has_rows in zip(
                some_moved, unmoved_outputs, moved_outputs, have_rows, strict=True
            ):
                is_near = (
                    _is_close(result, at_rest, moved_output),
                    _is_close(result, moved_output, at_rest),
                )
                if has_rows:
                    fits = paddle.where(_row_mask(mask, result), is_near[1], is_near[0])
                elif len(shape) == len(row_shape):
                    fits = is_near[0] | is_near[1]
                else:
                    continue
                if not bool(fits.all()):
                    return False
    return True


def _row_halves(shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield masks: for each binary digit of row numbers, rows with it, then others."""
    rows = np.arange(math.prod(shape)).reshape(shape)
    for digit in range(int(rows.max()).bit_length()):
        half = (rows >> digit) % 2 == 1
        yield half
        yield ~half


def _row_mask(mask: Tensor, like: Tensor) -> Tensor:
    """Return the mask of an entry's row for each entry of a tensor."""
    trailing_ones = [1] * (like.ndim - mask.ndim)
    return mask.reshape([*mask.shape, *trailing_ones]).expand(like.shape)


def _moved_values(x: Tensor) -> Tensor:
    """Return other values in each column's range, at least a quarter of it away."""
    values = x.numpy()
    low, high = values.min(0, keepdims=True), values.max(0, keepdims=True)
    span = np.where(high > low, high - low, np.maximum(np.abs(low), 1))
    shift = 0.25 + 0.5 * np.random.default_rng(0).random(values.shape)
    return paddle.to_tensor(
        low + (values - low + shift * span) % span, x.dtype, x.place
    )


def _is_close(a: Tensor, b: Tensor, moved: Tensor) -> Tensor:
    """Tell whether entries of a equal those of b, compared to their moved values.

    Kernels compute a row in the same way whatever other rows hold. So hardly any
    difference is allowed: a small fraction of the distance that the entry moves.
    """
    tolerance = 1e-12 if a.dtype in (paddle.float64, paddle.complex128) else 1e-6
    distance = (b - moved).abs()
    distance = paddle.where(
        paddle.isfinite(distance), distance, paddle.zeros_like(distance)
    )
    is_near = (a - b).abs() <= tolerance * distance
    return is_near | (a == b) | (paddle.isnan(a) & paddle.isnan(b))
