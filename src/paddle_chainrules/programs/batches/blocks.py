"""Functions of rows run in blocks, tiles that stay in the processor's cache.

They are one operator of a program. A program of its own runs on one block of rows after
another. Its gradients are such an operator again, which runs each block again, so that
memory does not grow with the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import Any

import numpy as np
from paddle import Tensor

from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.devices import are_on_cpu
from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.interception import listening
from ...paddle_side.listener import listener, not_listening
from ..compiling.passes import program_of
from ..compiling.program import Program
from ..operators.calls import Call
from ..operators.entry import define, holds_for_complex, reverse_of
from ..operators.shared import ops
from ..tracing.inside import trace_inside
from ..tracing.operations import Operation, Value
from ..tracing.record import Tracer
from .batching import replayed

Rows = Callable[[list[Tensor]], Sequence[Tensor]]
"""A function whose results have a row for each row of its arguments."""

PROBE = 512
"""Rows of a first block."""

BYTES = 1 << 22
"""Bytes that the program of a block makes at a time.

This is the best of 2^18 to 2^25 on a processor with 2 MB of L2 cache, for widths 16 and
64.
"""

WHOLE = 1 << 28
"""Bytes that the program of all rows makes, up to which it runs whole.

As machine code it is faster by a tenth than its blocks, which visit their rows twice.
"""


MAX_BLOCKS_AT_ONCE = 16
"""The number of probes up to which all rows run at once, rather than in blocks."""

ABOUT = 2
"""Derivatives take at most about this many times the bytes of their function."""


def rows_at_once(program: Program, rows: int) -> int:
    """Return how many rows run whole, by the memory of a program for some rows."""
    return max(PROBE, WHOLE * rows // max(program.peak_bytes, 1))


class RowTiledProgram:
    """A program that runs on one tile of rows after another.

    Args:
        programs: by the number of rows, with the same inputs and outputs.
        rows: tells for each input whether it is split by rows, or whole in all blocks.
        sums: tells for each output whether it is the sum over blocks, or one block
            after another.
    """

    def __init__(
        self,
        programs: Mapping[int, Program],
        rows: Sequence[bool],
        sums: Sequence[bool],
    ) -> None:
        self.programs, self.rows, self.sums = programs, rows, sums
        self.size = max(programs)
        self._backward_programs: dict[Any, tuple[RowTiledProgram, list[bool]]] = {}

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        n = next(compress(tensors, self.rows)).shape[0]
        results: list[list[Tensor]] = [[] for _ in self.sums]
        with grad_mode(False):
            for start in range(0, n, self.size):
                stop = min(start + self.size, n)
                tile = self._slice_tile(tensors, start, stop)
                outputs = self.programs[stop - start].function(*tile)
                for chunks, chunk, is_sum in zip(
                    results, outputs, self.sums, strict=True
                ):
                    if is_sum and chunks:
                        ops.add_(chunks[0], chunk)
                    else:
                        chunks.append(chunk)
            return [
                chunks_of_output[0]
                if len(chunks_of_output) == 1
                else ops.concat(chunks_of_output, 0)
                for chunks_of_output in results
            ]

    def _slice_tile(
        self, tensors: Sequence[Tensor], start: int, stop: int
    ) -> list[Tensor]:
        return [
            ops.slice(x, [0], [start], [stop], [1], []) if is_row else x
            for x, is_row in zip(tensors, self.rows, strict=True)
        ]

    def backward_program(
        self, tensors: Sequence[Tensor], cotangents: Sequence[Tensor | None]
    ) -> tuple[RowTiledProgram, list[bool]]:
        """Return the tiled program from inputs and cotangents to requested gradients.

        Returns:
            The program, and for each input that requires a gradient whether it has one.
        """
        requested = tuple(map(_requires, tensors))
        has_cotangent = tuple(c is not None for c in cotangents)
        if (requested, has_cotangent) not in self._backward_programs:
            seeds = [c for c in cotangents if c is not None]
            sums = tuple(compress(self.sums, has_cotangent))
            joint = RowTiledProgram(
                self.programs, (*self.rows, *(not is_sum for is_sum in sums)), ()
            )
            programs, has_gradient = {}, [False] * sum(requested)
            for size, program in self.programs.items():
                tile = joint._slice_tile([*tensors, *seeds], 0, size)
                programs[size], has_gradient = _gradient_program(
                    program, tile, requested, has_cotangent
                )
            summed = compress(
                compress((not row for row in self.rows), requested), has_gradient
            )
            self._backward_programs[requested, has_cotangent] = (
                RowTiledProgram(programs, joint.rows, [*summed]),
                has_gradient,
            )
        return self._backward_programs[requested, has_cotangent]


def _requires(tensor: Tensor) -> bool:
    return not tensor.stop_gradient and is_differentiable(tensor)


def _gradient_program(
    program: Program,
    tensors: Sequence[Tensor],
    requested: Sequence[bool],
    has_cotangent: Sequence[bool],
) -> tuple[Program, list[bool]]:
    """Return the program of the gradients, and which of the requested ones exist."""
    leaves = [x.detach() for x in tensors]
    for x, flag in zip(leaves, requested, strict=False):
        x.stop_gradient = not flag
    record = Tracer(leaves)
    with listening(record), grad_mode(True):
        outputs = [*compress(replayed(program, leaves), has_cotangent)]
        requested_leaves = [*compress(leaves, requested)]
        seeds = leaves[len(requested) :]
        grads = record.gradients(outputs, requested_leaves, seeds, create_graph=False)
    grad_values = [record.value_of(g) for g in grads if g is not None]
    result = program_of(
        record.ops, record.inputs, record.constants, grad_values, "reverse"
    )
    return result, [g is not None for g in grads]


BLOCKS = define("blocks", "blocks tensors", run=lambda blocks, tensors: blocks(tensors))
holds_for_complex("blocks")


@reverse_of("blocks")
def _blocks_reverse(call: Call) -> list[Any]:
    blocks, tensors = call.args
    backward_program, has_gradient = blocks.backward_program(tensors, call.cotangents)
    seeds = [c for c in call.cotangents if c is not None]
    results = iter(BLOCKS.bind([backward_program, [*tensors, *seeds]]))
    requested_grads = iter([next(results) if flag else None for flag in has_gradient])
    return [None, [next(requested_grads) if _requires(x) else None for x in tensors]]


def may_probe_all_rows(n: int) -> bool:
    """Tell whether a function of n rows may be run whole, to see what it makes."""
    return n <= MAX_BLOCKS_AT_ONCE * PROBE


def need_no_tiles(recorded_ops: Sequence[Operation], n: int) -> bool:
    """Tell whether n rows need no blocks, by what a function has made of them."""
    if n <= PROBE or any(op.operator.random for op in recorded_ops):
        return True
    return sum(v.bytes for op in recorded_ops for v in op.outputs) * ABOUT <= WHOLE


def run_tiled(
    fn: Rows, unchecked: Rows, plain: Rows, inputs: Sequence[Tensor], n: int
) -> list[Tensor] | None:
    """Compute ``fn(inputs)`` in blocks while a record listens, or return None.

    Args:
        fn: raises where a row of its result depends on other rows.
        unchecked: the same without the check; we choose the size of blocks with it.
        plain: the function whose derivatives ``fn`` gives. Its result for a block must
            equal that part of its result for all rows.
        n: rows of all inputs that have a row for each row of the results.
    """
    rows = [bool(x.ndim) and x.shape[0] == n for x in inputs]
    if n <= PROBE or not are_on_cpu(inputs):
        return None
    if _traced_bytes(plain, inputs, rows) * n * ABOUT <= WHOLE * PROBE:
        return None
    probe = _trace_block(unchecked, inputs, rows, PROBE)
    if not probe.has_rows:
        return None
    if n <= rows_at_once(probe.program, PROBE):
        return None
    size = PROBE
    fitting = BYTES * PROBE // max(probe.program.peak_bytes, 1)
    while size * 2 <= fitting:
        size *= 2
    while size > fitting and size > 64:
        size //= 2
    if n <= size:
        return None
    remainder = n % size or size // 2
    block_of_size = {s: _trace_block(fn, inputs, rows, s) for s in (size, remainder)}
    if not all(block.has_rows for block in block_of_size.values()):
        return None
    blocks, tensors = _tiled_program(block_of_size, inputs, rows, [False] * probe.count)
    if any(x.shape[:1] == [n] for x in tensors[len(inputs) :]):
        return None  # a row of each for one of the inputs
    with not_listening():
        if not _tiles_agree(blocks, tensors, remainder) or not _is_row_wise(
            plain, inputs, rows, n, size
        ):
            return None
    return BLOCKS.bind([blocks, tensors])


def run_tiles_in_sequence(
    fn: Rows,
    inputs: Sequence[Tensor],
    is_row_input: Sequence[bool],
    size: int,
    sums: Sequence[bool],
) -> list[Tensor]:
    """Run a function on some rows at a time, while a record listens.

    Args:
        is_row_input: tells for each input whether it has these rows, or is whole.
        sums: tells for each output whether it is summed, or one row after another.
    """
    n = next(compress(inputs, is_row_input)).shape[0]
    sizes = {min(size, n), n % size or min(size, n)}
    block_of_size = {s: _trace_block(fn, inputs, is_row_input, s) for s in sizes}
    return BLOCKS.bind([*_tiled_program(block_of_size, inputs, is_row_input, sums)])


def _tiled_program(
    block_of_size: Mapping[int, _Block],
    inputs: Sequence[Tensor],
    rows: Sequence[bool],
    sums: Sequence[bool],
) -> tuple[RowTiledProgram, list[Tensor]]:
    """Return the tiled program of blocks of several sizes, and its inputs."""
    captured = {
        id(t): t for block in block_of_size.values() for t in block.captured.values()
    }
    programs = {
        size: block.with_inputs(captured) for size, block in block_of_size.items()
    }
    blocks = RowTiledProgram(programs, [*rows, *[False] * len(captured)], sums)
    return blocks, [*inputs, *captured.values()]


class _Block:
    """The program of a block, and the outer tensors that it captures."""

    def __init__(
        self, program: Program, captured: dict[Value, Tensor], has_rows: bool
    ) -> None:
        self.program, self.captured = program, captured
        self.has_rows, self.count = has_rows, len(program.outputs)

    def with_inputs(self, tensors: Mapping[int, Tensor]) -> Program:
        """Return the program with these tensors as further inputs."""
        by_id = {id(t): v for v, t in self.captured.items()}
        fresh = 1 + max(
            v.number
            for v in (*self.program.inputs, *self.program.constants, *self.captured)
        )
        fresh += sum(len(op.outputs) + len(op.inputs) for op in self.program.ops) + max(
            (v.number for op in self.program.ops for v in op.outputs), default=0
        )
        further_inputs = [
            by_id.get(key) or Value(fresh + i, t.shape, "none", 0)
            for i, (key, t) in enumerate(tensors.items())
        ]
        constants = {
            v: t for v, t in self.program.constants.items() if v not in self.captured
        }
        inputs = (*self.program.inputs, *further_inputs)
        return Program(
            inputs, constants, self.program.ops, self.program.outputs, "block"
        )


def _traced_bytes(plain: Rows, inputs: Sequence[Tensor], rows: Sequence[bool]) -> int:
    """Return the bytes of all results in a trace of the first rows."""
    with not_listening():
        first_inputs = [
            _first_rows(x, PROBE) if row else x
            for x, row in zip(inputs, rows, strict=True)
        ]
    record, _ = trace_inside(plain, first_inputs)
    return sum(v.bytes for op in record.ops for v in op.outputs)


def _trace_block(
    fn: Rows, inputs: Sequence[Tensor], rows: Sequence[bool], size: int
) -> _Block:
    """Trace a function on its first rows; return the block."""
    outer = listener()
    assert isinstance(outer, Tracer)
    outer.by_series = True
    with not_listening():
        first_inputs = [
            _first_rows(x, size) if row else x
            for x, row in zip(inputs, rows, strict=True)
        ]
    record, outputs = trace_inside(fn, first_inputs)
    if record.draws or record.writes:
        record.fail(
            "random numbers are drawn, or something is written in place, where it is "
            "differentiated in blocks of rows; put dropout into evaluation mode"
        )
    has_rows = all(v.shape[:1] == (size,) for v in outputs)
    program = program_of(record.ops, record.inputs, record.constants, outputs, "block")
    captured = {v: t for v, t in program.constants.items() if not record.is_own(v)}
    return _Block(program, captured, has_rows)


def _first_rows(x: Tensor, size: int) -> Tensor:
    result = x[:size].detach()
    result.stop_gradient = x.stop_gradient
    return result


def _is_row_wise(
    plain: Rows, inputs: Sequence[Tensor], rows: Sequence[bool], n: int, size: int
) -> bool:
    """Tell whether a function gives the same for each tile as for all rows."""
    with grad_mode(False):
        outputs = plain([x.detach() for x in inputs])
        for start in range(0, n, size):
            stop = min(start + size, n)
            tile_outputs = plain(
                [
                    (x[start:stop] if row else x).detach()
                    for x, row in zip(inputs, rows, strict=True)
                ]
            )
            for a, b in zip(tile_outputs, outputs, strict=True):
                if b.shape[:1] != [n] or not _is_close(a, b[start:stop], 1e-11, 1e-5):
                    return False
    return True


def _is_close(a: Tensor, b: Tensor, double: float, single: float) -> bool:
    """Tell whether all entries are near, relative to the largest."""
    x, y = a.numpy(), b.numpy()
    scale = np.abs(y[np.isfinite(y)]).max(initial=0.0)
    tolerance = double if y.dtype in (np.float64, np.complex128) else single
    return x.shape == y.shape and np.allclose(
        x, y, rtol=0, atol=tolerance * scale, equal_nan=True
    )


def _tiles_agree(
    blocks: RowTiledProgram, tensors: Sequence[Tensor], small_size: int
) -> bool:
    """Tell whether the end rows of a tile agree with a smaller tile of them."""
    size = blocks.size
    with grad_mode(False):
        outputs = blocks.programs[size].function(*blocks._slice_tile(tensors, 0, size))
        for start in (0, size - small_size):
            tile = blocks._slice_tile(tensors, start, start + small_size)
            results = blocks.programs[small_size].function(*tile)
            for a, b in zip(results, outputs, strict=True):
                if not _is_close(a, b[start : start + small_size], 1e-9, 1e-3):
                    return False
    return True
