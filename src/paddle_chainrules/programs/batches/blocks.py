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
"""The number of probes up to which all rows run at once, before they go in blocks."""

ABOUT = 2
"""Derivatives take at most about this many times the bytes of their function."""


def rows_at_once(program: Program, rows: int) -> int:
    """Return how many rows run whole, by the memory of a program for some rows."""
    return max(PROBE, WHOLE * rows // max(program.peak_bytes, 1))


class RowTiledProgram:
    """Programs for blocks of certain numbers of rows.

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
        self._back: dict[Any, tuple[RowTiledProgram, list[bool]]] = {}

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        n = next(compress(tensors, self.rows)).shape[0]
        results: list[list[Tensor]] = [[] for _ in self.sums]
        with grad_mode(False):
            for start in range(0, n, self.size):
                stop = min(start + self.size, n)
                here = self._block(tensors, start, stop)
                made = self.programs[stop - start].function(*here)
                for parts, part, is_sum in zip(results, made, self.sums, strict=True):
                    if is_sum and parts:
                        ops.add_(parts[0], part)
                    else:
                        parts.append(part)
            return [p[0] if len(p) == 1 else ops.concat(p, 0) for p in results]

    def _block(self, tensors: Sequence[Tensor], start: int, stop: int) -> list[Tensor]:
        return [
            ops.slice(x, [0], [start], [stop], [1], []) if is_row else x
            for x, is_row in zip(tensors, self.rows, strict=True)
        ]

    def back(
        self, tensors: Sequence[Tensor], cotangents: Sequence[Tensor | None]
    ) -> tuple[RowTiledProgram, list[bool]]:
        """Return blocks from inputs and given cotangents to the gradients needed.

        Returns:
            Blocks, and for each input that requires a gradient whether there is one.
        """
        wanted = tuple(map(_requires, tensors))
        given = tuple(c is not None for c in cotangents)
        if (wanted, given) not in self._back:
            seeds = [c for c in cotangents if c is not None]
            sums = tuple(compress(self.sums, given))
            both = RowTiledProgram(
                self.programs, (*self.rows, *(not s for s in sums)), ()
            )
            made, has = {}, [False] * sum(wanted)
            for size, program in self.programs.items():
                here = both._block([*tensors, *seeds], 0, size)
                made[size], has = _reversed(program, here, wanted, given)
            kept = compress(compress((not row for row in self.rows), wanted), has)
            self._back[wanted, given] = RowTiledProgram(made, both.rows, [*kept]), has
        return self._back[wanted, given]


def _requires(tensor: Tensor) -> bool:
    return not tensor.stop_gradient and is_differentiable(tensor)


def _reversed(
    program: Program,
    tensors: Sequence[Tensor],
    wanted: Sequence[bool],
    given: Sequence[bool],
) -> tuple[Program, list[bool]]:
    """Return the program of the gradients, and for each wanted one if it exists."""
    leaves = [x.detach() for x in tensors]
    for x, flag in zip(leaves, wanted, strict=False):
        x.stop_gradient = not flag
    record = Tracer(leaves)
    with listening(record), grad_mode(True):
        outputs = [*compress(replayed(program, leaves), given)]
        starts = [*compress(leaves, wanted)]
        seeds = leaves[len(wanted) :]
        grads = record.gradients(outputs, starts, seeds, create_graph=False)
    ends = [record.value_of(g) for g in grads if g is not None]
    result = program_of(record.ops, record.inputs, record.constants, ends, "reverse")
    return result, [g is not None for g in grads]


BLOCKS = define("blocks", "blocks tensors", run=lambda blocks, tensors: blocks(tensors))
holds_for_complex("blocks")


@reverse_of("blocks")
def _blocks_reverse(call: Call) -> list[Any]:
    blocks, tensors = call.args
    back, has = blocks.back(tensors, call.cotangents)
    seeds = [c for c in call.cotangents if c is not None]
    results = iter(BLOCKS.bind([back, [*tensors, *seeds]]))
    each = iter([next(results) if flag else None for flag in has])
    return [None, [next(each) if _requires(x) else None for x in tensors]]


def are_few(n: int) -> bool:
    """Tell whether a function of n rows may be run whole, to see what it makes."""
    return n <= MAX_BLOCKS_AT_ONCE * PROBE


def go_as_they_are(made: Sequence[Operation], n: int) -> bool:
    """Tell whether n rows need no blocks, by what a function has made of them."""
    if n <= PROBE or any(op.operator.random for op in made):
        return True
    return sum(v.bytes for op in made for v in op.outputs) * ABOUT <= WHOLE


def in_blocks(
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
    if _bytes_of(plain, inputs, rows) * n * ABOUT <= WHOLE * PROBE:
        return None
    result = _block_of(unchecked, inputs, rows, PROBE)
    if not result.has_rows:
        return None
    if n <= rows_at_once(result.program, PROBE):
        return None
    size = PROBE
    fitting = BYTES * PROBE // max(result.program.peak_bytes, 1)
    while size * 2 <= fitting:
        size *= 2
    while size > fitting and size > 64:
        size //= 2
    if n <= size:
        return None
    rest = n % size or size // 2
    made = {s: _block_of(fn, inputs, rows, s) for s in (size, rest)}
    if not all(block.has_rows for block in made.values()):
        return None
    blocks, tensors = _joined(made, inputs, rows, [False] * result.count)
    if any(x.shape[:1] == [n] for x in tensors[len(inputs) :]):
        return None  # a row of each for one of the inputs
    with not_listening():
        if not _agree(blocks, tensors, rest) or not _has_rows(
            plain, inputs, rows, n, size
        ):
            return None
    return BLOCKS.bind([blocks, tensors])


def one_after_another(
    fn: Rows,
    inputs: Sequence[Tensor],
    over: Sequence[bool],
    size: int,
    sums: Sequence[bool],
) -> list[Tensor]:
    """Run a function on some rows at a time, while a record listens.

    Args:
        over: tells for each input whether it is these rows, or whole.
        sums: tells for each output whether it is summed, or one row after another.
    """
    n = next(compress(inputs, over)).shape[0]
    sizes = {min(size, n), n % size or min(size, n)}
    made = {s: _block_of(fn, inputs, over, s) for s in sizes}
    return BLOCKS.bind([*_joined(made, inputs, over, sums)])


def _joined(
    made: Mapping[int, _Block],
    inputs: Sequence[Tensor],
    rows: Sequence[bool],
    sums: Sequence[bool],
) -> tuple[RowTiledProgram, list[Tensor]]:
    """Return blocks of several sizes, and their inputs."""
    wholes = {id(t): t for block in made.values() for t in block.wholes.values()}
    programs = {size: block.of(wholes) for size, block in made.items()}
    blocks = RowTiledProgram(programs, [*rows, *[False] * len(wholes)], sums)
    return blocks, [*inputs, *wholes.values()]


class _Block:
    """The program of a block, and the tensors from elsewhere that it uses."""

    def __init__(
        self, program: Program, wholes: dict[Value, Tensor], has_rows: bool
    ) -> None:
        self.program, self.wholes = program, wholes
        self.has_rows, self.count = has_rows, len(program.outputs)

    def of(self, wholes: Mapping[int, Tensor]) -> Program:
        """Return the program with these tensors as further inputs."""
        by_id = {id(t): v for v, t in self.wholes.items()}
        fresh = 1 + max(
            v.number
            for v in (*self.program.inputs, *self.program.constants, *self.wholes)
        )
        fresh += sum(len(op.outputs) + len(op.inputs) for op in self.program.ops) + max(
            (v.number for op in self.program.ops for v in op.outputs), default=0
        )
        more = [
            by_id.get(key) or Value(fresh + i, t.shape, "none", 0)
            for i, (key, t) in enumerate(wholes.items())
        ]
        kept = {v: t for v, t in self.program.constants.items() if v not in self.wholes}
        inputs = (*self.program.inputs, *more)
        return Program(inputs, kept, self.program.ops, self.program.outputs, "block")


def _bytes_of(plain: Rows, inputs: Sequence[Tensor], rows: Sequence[bool]) -> int:
    """Return the bytes that a function makes of the first rows."""
    with not_listening():
        first = [
            _first(x, PROBE) if row else x for x, row in zip(inputs, rows, strict=True)
        ]
    record, _ = trace_inside(plain, first)
    return sum(v.bytes for op in record.ops for v in op.outputs)


def _block_of(
    fn: Rows, inputs: Sequence[Tensor], rows: Sequence[bool], size: int
) -> _Block:
    """Return the block of the first rows."""
    outer = listener()
    assert isinstance(outer, Tracer)
    outer.by_series = True
    with not_listening():
        first = [
            _first(x, size) if row else x for x, row in zip(inputs, rows, strict=True)
        ]
    record, ends = trace_inside(fn, first)
    if record.draws or record.writes:
        record.fail(
            "random numbers are drawn, or something is written in place, where it is "
            "differentiated in blocks of rows; put dropout into evaluation mode"
        )
    has_rows = all(v.shape[:1] == (size,) for v in ends)
    program = program_of(record.ops, record.inputs, record.constants, ends, "block")
    wholes = {v: t for v, t in program.constants.items() if not record.is_own(v)}
    return _Block(program, wholes, has_rows)


def _first(x: Tensor, size: int) -> Tensor:
    result = x[:size].detach()
    result.stop_gradient = x.stop_gradient
    return result


def _has_rows(
    plain: Rows, inputs: Sequence[Tensor], rows: Sequence[bool], n: int, size: int
) -> bool:
    """Tell whether all blocks give what all rows together give, wherever they are."""
    with grad_mode(False):
        whole = plain([x.detach() for x in inputs])
        for start in range(0, n, size):
            stop = min(start + size, n)
            here = plain(
                [
                    (x[start:stop] if row else x).detach()
                    for x, row in zip(inputs, rows, strict=True)
                ]
            )
            for a, b in zip(here, whole, strict=True):
                if b.shape[:1] != [n] or not _near(a, b[start:stop], 1e-11, 1e-5):
                    return False
    return True


def _near(a: Tensor, b: Tensor, double: float, single: float) -> bool:
    """Tell whether all entries are near, relative to the largest."""
    x, y = a.numpy(), b.numpy()
    scale = np.abs(y[np.isfinite(y)]).max(initial=0.0)
    near = double if y.dtype in (np.float64, np.complex128) else single
    return x.shape == y.shape and np.allclose(
        x, y, rtol=0, atol=near * scale, equal_nan=True
    )


def _agree(blocks: RowTiledProgram, tensors: Sequence[Tensor], few: int) -> bool:
    """Tell whether the end rows of a block agree with a block of their own."""
    size = blocks.size
    with grad_mode(False):
        many = blocks.programs[size].function(*blocks._block(tensors, 0, size))
        for start in (0, size - few):
            here = blocks._block(tensors, start, start + few)
            results = blocks.programs[few].function(*here)
            for a, b in zip(results, many, strict=True):
                if not _near(a, b[start : start + few], 1e-9, 1e-3):
                    return False
    return True
