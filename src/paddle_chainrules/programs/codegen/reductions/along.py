"""Steps that go along the lines of tensors and carry values from place to place."""

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
    """A carried value: its dtype, and its start before the first place."""

    dtype: str
    value: str


class ScanInputs(NamedTuple):
    """The arguments of a body at a place.

    Attributes:
        place: its index within the line, in either direction.
        read: the entry here of each tensor that is read.
        now: the carried values.
    """

    place: ElementValue
    read: list[ElementValue]
    now: list[ElementValue]


class ScanOutputs(NamedTuple):
    """The results of a body.

    Attributes:
        following: the values carried on.
        written: the entries written to each tensor at this place.
    """

    following: Sequence[ElementValue]
    written: Sequence[ElementValue] = ()


class ScanSpec(NamedTuple):
    """Settings for the passage along lines.

    Attributes:
        lines: the layout of the tensors.
        starts: the carried values.
        backward: whether to go from the last place to the first.
        at_end: whether only the values carried beyond the last place are written, one
            for each line and tensor, rather than one at each place.
        is_dear: whether lines that lie one after another are also done together, since
            the work takes longer than to fetch entries from all of them.
    """

    lines: AxisSplit
    starts: Sequence[CarryInit]
    backward: bool = False
    at_end: bool = False
    is_dear: bool = False

    @property
    def together(self) -> SymInt:
        """Return how many lines are done together."""
        outer, _, inner = self.lines
        few = not outer.power and outer.factor < MIN_OUTER
        return inner if inner != ONE or few or not self.is_dear else SymInt(BLOCK_ROWS)


EACH = 8
"""Operations at a place, more or less."""

BLOCK_ROWS, MIN_OUTER = 16, 3
"""The lines, one after another, done together, and the fewest for that."""


Body = Callable[[ScanInputs], ScanOutputs]


def emit_scan(
    builder: StageBuilder,
    op: Operation,
    spec: ScanSpec,
    reads: Sequence[BufferView],
    writes: Sequence[BufferView],
    body: Body,
) -> None:
    """Add a step along all lines.

    Lines that lie side by side are done together. Their carried values are in memory of
    the step's own.

    Args:
        reads, writes: without gaps. An entry read here may be the one written here.
    """
    outer, size, inner = spec.lines
    whole = outer.times(size).times(inner)
    ends = outer.times(inner) if spec.at_end else whole
    results = [*((v, whole) for v in reads), *((v, ends) for v in writes)]
    if any(builder.shape_env.product(view.shape) != extent for view, extent in results):
        raise NotLowerable
    if any(view.buffer.dtype in ("bool", "uint8") for view, _ in results):
        raise NotLowerable
    many = spec.together
    own = [] if many == ONE else [_row(start.dtype, many) for start in spec.starts]

    def write(ir: FunctionBuilder, address: Address) -> None:
        ir.line(f"; {op!r}  {op.where}")
        walk = _ScanEmitter(ir, spec, body)
        given, made, kept = (
            [(address(view), view.buffer.dtype) for view in views]
            for views in (reads, writes, own)
        )
        line = size.times(inner)
        ends = inner if spec.at_end else line
        count, each = ir.size_value(outer), 1
        if many != inner:
            each = BLOCK_ROWS
            up = ir.emit(f"add i64 {count}, {BLOCK_ROWS - 1}")
            blocks = ir.emit(f"sdiv i64 {up}, {BLOCK_ROWS}")
        start, stop = ir.thread_range(blocks if each > 1 else count)
        with ir.loop(stop, start=start) as i:
            step = SymInt(each)
            given = walk.advanced(given, line.times(step), i)
            made = walk.advanced(made, ends.times(step), i)
            if many == ONE:
                walk.one(given, made)
            elif each == 1:
                walk.many(given, made, kept, ir.size_value(inner), ONE, inner)
            else:
                done = ir.emit(f"mul i64 {i}, {BLOCK_ROWS}")
                left = ir.emit(f"sub i64 {count}, {done}")
                few = ir.emit(f"icmp slt i64 {left}, {BLOCK_ROWS}")
                here = ir.emit(f"select i1 {few}, i64 {left}, i64 {BLOCK_ROWS}")
                walk.many(given, made, kept, here, line, ONE)

    made = tuple(view.buffer for view in (*writes, *own))
    step = Stage(tuple(v.buffer for v in reads), made, {}, write)
    if not own:
        step = replace(step, parallel_ops=whole.times(SymInt(EACH)))
    builder.stages.append(step)


def _row(dtype: str, extent: SymInt) -> BufferView:
    """Return memory for this many entries, which only one step uses."""
    return BufferView(Buffer(Value(-1, (), dtype, 0), extent), (), (), ())


Place = tuple[str, str]
"""An address, and the dtype of the memory there."""


class _ScanEmitter:
    """The text of a loop along a line, or along lines side by side."""

    def __init__(self, ir: FunctionBuilder, spec: ScanSpec, body: Body) -> None:
        self._ir, self._spec, self._body = ir, spec, body

    def advanced(
        self, places: Sequence[Place], step: SymInt, index: str
    ) -> list[Place]:
        """Return the places this many steps further."""
        return [
            (self._ir.indexed_address(p, TYPES[d], step, index), d) for p, d in places
        ]

    def one(self, given: Sequence[Place], made: Sequence[Place]) -> None:
        """Write a line, with carried values in registers."""
        ir, spec = self._ir, self._spec
        carried = [
            LoopCarried(
                TYPES[start.dtype],
                start.value,
                ir.fresh_name("now"),
                ir.fresh_name("next"),
            )
            for start in spec.starts
        ]
        pairs = zip(carried, spec.starts, strict=True)
        now = [self._number(each.phi, start.dtype) for each, start in pairs]
        with ir.loop(ir.size_value(spec.lines.size), carried) as index:
            place = self._place(index)
            here = self.advanced(given, ONE, place)
            there = made if spec.at_end else self.advanced(made, ONE, place)
            following = self._go(place, here, there, now)
            for each, number in zip(carried, following, strict=True):
                same = f"bitcast {each.kind} {number.name} to {each.kind}"
                ir.line(f"{each.next} = {same}")
        if spec.at_end:
            for number, to in zip(now, made, strict=False):
                self._put(number, to)

    def many(
        self,
        given: Sequence[Place],
        made: Sequence[Place],
        kept: Sequence[Place],
        count: str,
        aside: SymInt,
        ahead: SymInt,
    ) -> None:
        """Write lines together, with carried values in memory.

        Args:
            count: of lines.
            aside: from a line to the next.
            ahead: from a place to the next.
        """
        ir, spec = self._ir, self._spec
        group = f", {PARALLEL}"
        ends = ONE if spec.at_end else aside
        with ir.loop(count, metadata=VECTORIZE) as j:
            for start, (at, _) in zip(
                spec.starts, self.advanced(kept, ONE, j), strict=True
            ):
                ir.line(f"store {TYPES[start.dtype]} {start.value}, ptr {at}{group}")
        with ir.loop(ir.size_value(spec.lines.size)) as index:
            place = self._place(index)
            here = self.advanced(given, ahead, place)
            there = made if spec.at_end else self.advanced(made, ahead, place)
            with ir.loop(count, metadata=VECTORIZE) as j:
                own = self.advanced(kept, ONE, j)
                now = [self._got(each, group) for each in own]
                read, to = self.advanced(here, aside, j), self.advanced(there, ends, j)
                following = self._go(place, read, to, now, group)
                for number, each in zip(following, own, strict=True):
                    self._put(number, each, group)
        if spec.at_end:
            with ir.loop(count, metadata=VECTORIZE) as j:
                pairs = [self.advanced(each, ONE, j) for each in (kept, made)]
                for source, to_end in zip(*pairs, strict=False):
                    self._put(self._got(source, group), to_end, group)

    def _go(
        self,
        place: str,
        here: Sequence[Place],
        there: Sequence[Place],
        now: list[ElementValue],
        group: str = "",
    ) -> Sequence[ElementValue]:
        """Write the work at a place; return the values carried on."""
        read = [self._got(at, group) for at in here]
        number = ElementValue(place, "i64", self._ir)
        following, written = self._body(ScanInputs(number, read, now))
        if not self._spec.at_end:
            for result, to in zip(written, there, strict=True):
                self._put(result, to, group)
        return following

    def _place(self, index: str) -> str:
        """Return the index of a place."""
        if not self._spec.backward:
            return index
        last = self._ir.size_value(self._spec.lines.size, SymInt(-1))
        return self._ir.emit(f"sub i64 {last}, {index}")

    def _number(self, name: str, dtype: str) -> ElementValue:
        return ElementValue(name, TYPES[dtype], self._ir, dtype == "float32")

    def _got(self, at: Place, group: str) -> ElementValue:
        pointer, dtype = at
        kind = TYPES[dtype]
        name = self._ir.emit(f"load {kind}, ptr {pointer}{group}")
        return self._number(name, dtype)

    def _put(self, number: ElementValue, to: Place, group: str = "") -> None:
        self._ir.line(f"store {number.kind} {number.name}, ptr {to[0]}{group}")
