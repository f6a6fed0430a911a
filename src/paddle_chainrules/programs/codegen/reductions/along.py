"""Scans along lines of tensors, which carry values from entry to entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...tracing.operations import Operation, Value
from ..elements.number import ElementValue
from ..elements.scalars import NotLowerable
from ..extents import ONE, SymInt
from ..ir_builder import PARALLEL, TYPES, VECTORIZE, FunctionBuilder, LoopCarried
from ..lowering import Address, Stage, StageBuilder
from ..manipulation.indices import AxisSplit
from ..views import Buffer, BufferView


class CarryInit(NamedTuple):
    """A carried value: its dtype, and its initial value."""

    dtype: str
    value: str


class ScanInputs(NamedTuple):
    """The arguments of a scan body.

    Attributes:
        position: its index within the line, in either direction.
        entries: the entry here of each tensor that is read.
        carry: the carried values.
    """

    position: ElementValue
    entries: list[ElementValue]
    carry: list[ElementValue]


class ScanOutputs(NamedTuple):
    """The results of a body.

    Attributes:
        carry: the values carried on.
        entries: the entries written to each tensor at this position.
    """

    carry: Sequence[ElementValue]
    entries: Sequence[ElementValue] = ()


class ScanSpec(NamedTuple):
    """Settings for the passage along lines.

    Attributes:
        split: the layout of the tensors.
        inits: the carried values.
        backward: whether to scan from the last position to the first.
        at_end: whether only the final carry is written, one
            for each line and tensor, rather than an entry at each position.
        is_expensive: whether lines that are contiguous are also done together, since
            the work takes longer than to fetch entries from all of them.
    """

    split: AxisSplit
    inits: Sequence[CarryInit]
    backward: bool = False
    at_end: bool = False
    is_expensive: bool = False

    @property
    def lines_at_once(self) -> SymInt:
        """Return how many lines are done together."""
        outer, _, inner = self.split
        is_few = not outer.power and outer.factor < MIN_OUTER
        return (
            inner
            if inner != ONE or is_few or not self.is_expensive
            else SymInt(BLOCK_ROWS)
        )


OPS_PER_ENTRY = 8
"""About how many operations an entry takes."""

BLOCK_ROWS, MIN_OUTER = 16, 3
"""The lines, one after another, done together, and the fewest for that."""


Body = Callable[[ScanInputs], ScanOutputs]


def add_scan(
    builder: StageBuilder,
    op: Operation,
    spec: ScanSpec,
    reads: Sequence[BufferView],
    writes: Sequence[BufferView],
    body: Body,
) -> None:
    """Add the stage of a scan along all lines.

    Lines side by side are scanned together. Their carried values are in scratch
    buffers.

    Args:
        reads, writes: without gaps. An entry read here may be the one written here.
    """
    outer, size, inner = spec.split
    total = outer.times(size).times(inner)
    written_size = outer.times(inner) if spec.at_end else total
    expected = [*((v, total) for v in reads), *((v, written_size) for v in writes)]
    if any(
        builder.shape_env.product(view.shape) != extent for view, extent in expected
    ):
        raise NotLowerable
    if any(view.buffer.dtype in ("bool", "uint8") for view, _ in expected):
        raise NotLowerable
    lines_at_once = spec.lines_at_once
    carry_views = (
        []
        if lines_at_once == ONE
        else [_scratch_row(start.dtype, lines_at_once) for start in spec.inits]
    )

    def emit(ir: FunctionBuilder, address: Address) -> None:
        ir.line(f"; {op!r}  {op.where}")
        emitter = _ScanEmitter(ir, spec, body)
        sources, targets, carries = (
            [(address(view), view.buffer.dtype) for view in views]
            for views in (reads, writes, carry_views)
        )
        line_size = size.times(inner)
        written_size = inner if spec.at_end else line_size
        count, lines_per_block = ir.size_value(outer), 1
        if lines_at_once != inner:
            lines_per_block = BLOCK_ROWS
            rounded_up = ir.emit(f"add i64 {count}, {BLOCK_ROWS - 1}")
            blocks = ir.emit(f"sdiv i64 {rounded_up}, {BLOCK_ROWS}")
        start, stop = ir.thread_range(blocks if lines_per_block > 1 else count)
        with ir.loop(stop, start=start) as i:
            step = SymInt(lines_per_block)
            sources = emitter.advanced(sources, line_size.times(step), i)
            targets = emitter.advanced(targets, written_size.times(step), i)
            if lines_at_once == ONE:
                emitter.emit_line(sources, targets)
            elif lines_per_block == 1:
                emitter.emit_lines(
                    sources, targets, carries, ir.size_value(inner), ONE, inner
                )
            else:
                first_line = ir.emit(f"mul i64 {i}, {BLOCK_ROWS}")
                remaining = ir.emit(f"sub i64 {count}, {first_line}")
                is_partial = ir.emit(f"icmp slt i64 {remaining}, {BLOCK_ROWS}")
                line_count = ir.emit(
                    f"select i1 {is_partial}, i64 {remaining}, i64 {BLOCK_ROWS}"
                )
                emitter.emit_lines(
                    sources, targets, carries, line_count, line_size, ONE
                )

    targets = tuple(view.buffer for view in (*writes, *carry_views))
    step = Stage(tuple(v.buffer for v in reads), targets, {}, emit)
    if not carry_views:
        step = replace(step, parallel_ops=total.times(SymInt(OPS_PER_ENTRY)))
    builder.stages.append(step)


def _scratch_row(dtype: str, extent: SymInt) -> BufferView:
    """Return a scratch view of this many entries."""
    return BufferView(Buffer(Value(-1, (), dtype, 0), extent), (), (), ())


TypedAddress = tuple[str, str]
"""An address, and the dtype of its elements."""


class _ScanEmitter:
    """Emits a scan along one line, or along lines side by side."""

    def __init__(self, ir: FunctionBuilder, spec: ScanSpec, body: Body) -> None:
        self._ir, self._spec, self._body = ir, spec, body

    def advanced(
        self, addresses: Sequence[TypedAddress], step: SymInt, index: str
    ) -> list[TypedAddress]:
        """Emit addresses this many steps further."""
        return [
            (self._ir.indexed_address(p, TYPES[d], step, index), d)
            for p, d in addresses
        ]

    def emit_line(
        self, sources: Sequence[TypedAddress], targets: Sequence[TypedAddress]
    ) -> None:
        """Emit the scan of one line, with carried values in registers."""
        ir, spec = self._ir, self._spec
        carried = [
            LoopCarried(
                TYPES[init.dtype],
                init.value,
                ir.fresh_name("now"),
                ir.fresh_name("next"),
            )
            for init in spec.inits
        ]
        pairs = zip(carried, spec.inits, strict=True)
        carry = [
            self._as_value(loop_value.phi, init.dtype) for loop_value, init in pairs
        ]
        with ir.loop(ir.size_value(spec.split.size), carried) as index:
            entry_index = self._entry_index(index)
            source_entries = self.advanced(sources, ONE, entry_index)
            target_entries = (
                targets if spec.at_end else self.advanced(targets, ONE, entry_index)
            )
            next_carry = self._emit_body(
                entry_index, source_entries, target_entries, carry
            )
            for loop_value, value in zip(carried, next_carry, strict=True):
                assignment = (
                    f"bitcast {loop_value.kind} {value.name} to {loop_value.kind}"
                )
                ir.line(f"{loop_value.next} = {assignment}")
        if spec.at_end:
            for value, target in zip(carry, targets, strict=False):
                self._store(value, target)

    def emit_lines(
        self,
        sources: Sequence[TypedAddress],
        targets: Sequence[TypedAddress],
        carries: Sequence[TypedAddress],
        count: str,
        line_stride: SymInt,
        entry_stride: SymInt,
    ) -> None:
        """Emit scans of several lines together, with carried values in memory.

        Args:
            count: of lines.
            line_stride: from a line to the next.
            entry_stride: from a position to the next.
        """
        ir, spec = self._ir, self._spec
        group = f", {PARALLEL}"
        target_stride = ONE if spec.at_end else line_stride
        with ir.loop(count, metadata=VECTORIZE) as j:
            for init, (address, _) in zip(
                spec.inits, self.advanced(carries, ONE, j), strict=True
            ):
                ir.line(f"store {TYPES[init.dtype]} {init.value}, ptr {address}{group}")
        with ir.loop(ir.size_value(spec.split.size)) as index:
            entry_index = self._entry_index(index)
            source_entries = self.advanced(sources, entry_stride, entry_index)
            target_entries = (
                targets
                if spec.at_end
                else self.advanced(targets, entry_stride, entry_index)
            )
            with ir.loop(count, metadata=VECTORIZE) as j:
                line_carries = self.advanced(carries, ONE, j)
                carry = [self._load(each, group) for each in line_carries]
                line_sources, line_targets = (
                    self.advanced(source_entries, line_stride, j),
                    self.advanced(target_entries, target_stride, j),
                )
                next_carry = self._emit_body(
                    entry_index, line_sources, line_targets, carry, group
                )
                for value, each in zip(next_carry, line_carries, strict=True):
                    self._store(value, each, group)
        if spec.at_end:
            with ir.loop(count, metadata=VECTORIZE) as j:
                pairs = [self.advanced(each, ONE, j) for each in (carries, targets)]
                for source, target in zip(*pairs, strict=False):
                    self._store(self._load(source, group), target, group)

    def _emit_body(
        self,
        entry_index: str,
        sources: Sequence[TypedAddress],
        targets: Sequence[TypedAddress],
        carry: list[ElementValue],
        group: str = "",
    ) -> Sequence[ElementValue]:
        """Emit loads, the body and stores at a position; return the next carry."""
        entries = [self._load(source, group) for source in sources]
        position = ElementValue(entry_index, "i64", self._ir)
        next_carry, results = self._body(ScanInputs(position, entries, carry))
        if not self._spec.at_end:
            for result, target in zip(results, targets, strict=True):
                self._store(result, target, group)
        return next_carry

    def _entry_index(self, index: str) -> str:
        """Emit the position of an iteration, in either direction."""
        if not self._spec.backward:
            return index
        last = self._ir.size_value(self._spec.split.size, SymInt(-1))
        return self._ir.emit(f"sub i64 {last}, {index}")

    def _as_value(self, name: str, dtype: str) -> ElementValue:
        return ElementValue(name, TYPES[dtype], self._ir, dtype == "float32")

    def _load(self, source: TypedAddress, group: str) -> ElementValue:
        pointer, dtype = source
        kind = TYPES[dtype]
        name = self._ir.emit(f"load {kind}, ptr {pointer}{group}")
        return self._as_value(name, dtype)

    def _store(
        self, value: ElementValue, target: TypedAddress, group: str = ""
    ) -> None:
        self._ir.line(f"store {value.kind} {value.name}, ptr {target[0]}{group}")
