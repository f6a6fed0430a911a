"""Loops over the elements of views, as LLVM text.

The innermost loop handles a vector of elements at a time, and the last few alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .elements.scalars import SUM, Reduction, Shape
from .extents import ONE, ZERO, ShapeEnv, SymInt
from .ir_builder import (
    AS_IT_IS,
    BYTES,
    FunctionBuilder,
    LoopCarried,
    in_memory,
    splat,
    spread,
    vector,
)
from .processor import full_lanes
from .views import BufferView


class NestAccess(NamedTuple):
    """The reads or writes of a nest of loops to one view.

    Attributes:
        strides: elements from one place to the next, along each dimension of the nest.
        reduction: how one entry is made of many, along the dimensions of stride 0.
    """

    view: BufferView
    strides: tuple[SymInt, ...]
    reduction: Reduction | None = None

    @property
    def kind(self) -> str:
        """The type in which an element lies in memory."""
        return in_memory(self.view.memory.dtype)


Body = Callable[[Sequence[str], int], Sequence[str]]
"""A function of the elements read that gives the elements to write.

The second argument is the number of lanes of vectors, 0 for one element of each.
"""

LANES = (2, 4, 8, 16, 32)
"""The numbers of elements that a vector may have."""

CHEAP, MEDIUM = 4, 40
"""Operations on an element, up to which four or two registers are filled at a time."""

AROUND = 2
"""Operations of a loop itself, for each of its iterations."""

NEAR = 4
"""Up to this stride, elements are chosen from vectors that hold those between, too."""

TWO_LOOPS = 1.6
"""How much faster vectors must be, if another loop has to do what is left over.

The other loop makes the code twice as long.
"""


class LoopNest:
    """Loops over a shape, around a body for the elements of each access.

    Neighbouring dimensions are one loop where all accesses continue from one to the
    next as within one. Sums and maxima along the innermost loop are carried from one
    iteration to the next, in any order. If the innermost loop is a single vector, this
    holds for the loop around it, too. Along other loops they are made in memory, in
    order.

    Args:
        address: gives the name of a pointer to the first element of a view.
        shared: the loop that threads share, if any. Memory that sums are added up in
            is already filled then.
        work: about how many operations the body has.
    """

    def __init__(
        self,
        text: FunctionBuilder,
        shape: Shape,
        reads: Sequence[NestAccess],
        writes: Sequence[NestAccess],
        sizes: ShapeEnv,
        address: Callable[[BufferView], str],
        shared: int | None = None,
        work: int = 1,
    ) -> None:
        self._text, self._reads, self._writes = text, reads, writes
        self._accesses = [*reads, *writes]
        self._loops = _loops(shape, self._accesses, sizes)
        self._sizes, self._address, self._shared = sizes, address, shared
        self._work = work
        self._carried: dict[int, Reduction] = {}
        """Reductions along the innermost loop, by place among the accesses."""
        self._added: dict[int, Reduction] = {}
        """Reductions in memory."""
        for k, each in enumerate(self._accesses):
            along = [loop.strides[k] for loop in self._loops]
            if each.reduction and along and along[-1] == ZERO:
                self._carried[k] = each.reduction
                along.pop()
            if each.reduction and ZERO in along:
                self._added[k] = each.reduction

    def write(self, body: Body) -> None:
        """Write its text."""
        if self._shared is None:
            self.prepare()
        pointers = [self._address(each.view) for each in self._accesses]
        self._level(0, pointers, body)

    def prepare(self) -> None:
        """Write the text that comes before: zeros to which loops add in memory."""
        for k, attrs in self._added.items():
            view = self._accesses[k].view
            fill(self._text, view, self._address(view), self._sizes, attrs.start)

    def _level(self, depth: int, pointers: Sequence[str], body: Body) -> None:
        text = self._text
        if not self._loops:
            self._elements(_Elements(pointers, (ONE,) * len(pointers), {}), body)
            return
        loop = self._loops[depth]
        start, stop = "0", text.number(loop.extent)
        if depth == self._shared:
            start, stop = text.part(stop)
        if depth == len(self._loops) - 1:
            self._innermost(loop, pointers, body, start, stop)
            return
        if depth == len(self._loops) - 2 and (lanes := self._one_vector()):
            self._vectors(loop, pointers, body, (start, stop), lanes)
            return
        with text.loop(stop, how=AS_IT_IS, start=start) as index:
            here = self._moved(pointers, loop, index)
            self._level(depth + 1, here, body)

    def _moved(self, pointers: Sequence[str], loop: _Loop, index: str) -> list[str]:
        rows = zip(pointers, self._accesses, loop.strides, strict=True)
        return [self._text.along(p, e.kind, stride, index) for p, e, stride in rows]

    def _innermost(
        self, loop: _Loop, pointers: Sequence[str], body: Body, start: str, stop: str
    ) -> None:
        """Write the loop over vectors, the one over what is left, and the sums."""
        text = self._text
        lanes, is_all = self._lanes(loop, len(self._loops) - 1 == self._shared)
        sums = {k: attrs.start for k, attrs in self._carried.items()}
        if lanes:
            whole = stop if is_all else text.whole(start, stop, lanes)
            starts = {
                k: splat(self._accesses[k].kind, first, lanes)
                for k, first in sums.items()
            }
            results = self._row(loop, pointers, body, (start, whole), starts, lanes)
            sums = {k: self._total(k, each, lanes) for k, each in results.items()}
            start = whole
        if not (lanes and is_all):
            sums = self._row(loop, pointers, body, (start, stop), sums)
        for k, total in sums.items():
            self._store(k, pointers[k], total)

    def _one_vector(self) -> int:
        """Return the lanes of a vector that is all of the innermost loop, or 0."""
        inner, last = self._loops[-1], len(self._loops) - 1
        lanes, _ = self._lanes(inner, False)
        return lanes if inner.extent == SymInt(lanes) and last != self._shared else 0

    def _vectors(
        self,
        loop: _Loop,
        pointers: Sequence[str],
        body: Body,
        part: tuple[str, str],
        lanes: int,
    ) -> None:
        """Write a loop over rows of one vector each; sums of rows stay in registers.

        Args:
            part: the first index, and the one after the last.
        """
        text, (start, stop), strides = self._text, part, self._loops[-1].strides
        starts = {
            k: splat(each.kind, each.reduction.start, lanes)
            for k, each in enumerate(self._accesses)
            if each.reduction
        }
        over = {k: s for k, s in starts.items() if loop.strides[k] == ZERO}
        carried = self._carrying(over, lanes)
        now = {k: each.now for k, each in carried.items()}
        own = {k: starts[k] for k in self._carried} | now
        with text.loop(stop, [*carried.values()], AS_IT_IS, start) as index:
            here = self._moved(pointers, loop, index)
            results = self._elements(_Elements(here, strides, own, lanes), body)
            _carry_on(text, carried, results)
            self._end({k: v for k, v in results.items() if k not in now}, here, lanes)
        self._end(now, pointers, lanes)

    def _carrying(
        self, starts: Mapping[int, str], lanes: int
    ) -> dict[int, LoopCarried]:
        """Return what a loop carries, from these starts on."""
        text = self._text
        return {
            k: LoopCarried(
                vector(self._accesses[k].kind, lanes),
                *(start, text.name("sum"), text.name("more")),
            )
            for k, start in starts.items()
        }

    def _end(
        self, sums: Mapping[int, str], pointers: Sequence[str], lanes: int
    ) -> None:
        """Write sums of vectors to their places."""
        for k, result in sums.items():
            if k in self._carried:
                self._store(k, pointers[k], self._total(k, result, lanes))
            else:
                stride = self._loops[-1].strides[k]
                self._store(k, pointers[k], result, lanes, stride)

    def _row(
        self,
        loop: _Loop,
        pointers: Sequence[str],
        body: Body,
        part: tuple[str, str],
        starts: dict[int, str],
        lanes: int = 0,
    ) -> dict[int, str]:
        """Write an innermost loop, over vectors or single elements.

        Args:
            part: the first index, and the one after the last.
            starts: what is carried into the loop, by place among the accesses.

        Returns:
            What is carried out of it.
        """
        text, (start, stop) = self._text, part
        if lanes and (start, stop) == ("0", str(lanes)):
            here = self._moved(pointers, loop, "0")
            return self._elements(_Elements(here, loop.strides, starts, lanes), body)
        carried = self._carrying(starts, lanes)
        now = {k: each.now for k, each in carried.items()}
        with text.loop(stop, [*carried.values()], AS_IT_IS, start, lanes or 1) as index:
            here = self._moved(pointers, loop, index)
            at = _Elements(here, loop.strides, now, lanes)
            _carry_on(text, carried, self._elements(at, body))
        return now

    def _elements(self, at: _Elements, body: Body) -> dict[int, str]:
        """Write the body, and what is around it; return what is carried on."""
        results: dict[int, str] = {}
        places = zip(at.pointers, at.strides, self._reads, strict=False)
        made = body([self._load(*place, at.lanes) for place in places], at.lanes)
        for k, value in enumerate(made, len(self._reads)):
            attrs, kind = self._accesses[k].reduction, self._accesses[k].kind
            if attrs and k in at.carried:
                more = attrs.of(kind, at.carried[k], value, " reassoc", at.lanes)
                results[k] = self._text.emit(more)
            else:
                self._store(k, at.pointers[k], value, at.lanes, at.strides[k])
        return results

    def _total(self, k: int, result: str, lanes: int) -> str:
        """Return the reduction of a vector's lanes, one half with the other."""
        text, attrs, kind = self._text, self._carried[k], self._accesses[k].kind
        while lanes > 1:
            whole, lanes = vector(kind, lanes), lanes // 2
            halves = []
            for first in (0, lanes):
                places = ", ".join(f"i32 {first + i}" for i in range(lanes))
                both = f"{whole} {result}, {whole} poison, <{lanes} x i32> <{places}>"
                halves.append(text.emit(f"shufflevector {both}"))
            result = text.emit(attrs.of(kind, halves[0], halves[1], " reassoc", lanes))
        return text.emit(f"extractelement {vector(kind, 1)} {result}, i64 0")

    def _lanes(self, loop: _Loop, is_shared: bool) -> tuple[int, bool]:
        """Return how many lanes vectors have, and whether no elements are left."""
        sizes = [BYTES[each.view.memory.dtype] for each in self._accesses]
        fit = full_lanes(max(sizes))
        apart = sum(stride not in (ZERO, ONE) for stride in loop.strides)
        waits = any(
            stride == ZERO and k >= len(self._reads) and k not in self._carried
            for k, stride in enumerate(loop.strides)
        )
        if waits or self._cost(loop, fit) >= self._cost(loop, 0):
            return 0, False
        most = fit
        if not apart and self._work <= MEDIUM:
            most *= 4 if self._work <= CHEAP else 2
        widths = [n for n in LANES if n <= most]
        factor, power = loop.extent
        if is_shared or power:
            whole = [n for n in widths if n >= fit and factor % n == 0]
            return (whole[-1], True) if whole and not is_shared else (fit, False)
        result, least = (0, False), float(factor)
        for n in widths:
            vectors, rest = divmod(factor, n)
            time = float(vectors * max(1, n // fit) + rest)
            if rest:
                time *= TWO_LOOPS
            if vectors and (time, rest > 0) <= (least, False):
                result, least = (n, not rest), time
        return result

    def _cost(self, loop: _Loop, lanes: int) -> float:
        """Return about how many operations an element takes, in vectors or alone."""
        result = self._work + AROUND
        for k, stride in enumerate(loop.strides):
            is_read = k < len(self._reads)
            if not lanes or stride in (ZERO, ONE):
                result += 1
            else:
                is_near = is_read and _is_near(stride)
                result += 2 * (stride.factor if is_near else lanes)
        return result / max(lanes, 1)

    def _load(self, pointer: str, stride: SymInt, each: NestAccess, lanes: int) -> str:
        """Return the elements that a body begins with."""
        text, kind, dtype = self._text, each.kind, each.view.memory.dtype
        count = 0 if stride == ZERO else lanes
        if count and _is_near(stride):
            result = self._chosen(pointer, each, stride.factor, lanes)
        elif count and stride != ONE:
            result = "poison"
            for lane, place in enumerate(self._apart(pointer, kind, stride, lanes)):
                one = text.emit(f"load {kind}, ptr {place}", "x")
                more = f"insertelement {vector(kind, lanes)} {result}, {kind} {one}"
                result = text.emit(f"{more}, i64 {lane}")
        else:
            where = f"{vector(kind, count)}, ptr {pointer}, align {BYTES[dtype]}"
            result = text.emit(f"load {where}", "x")
        if dtype == "bool":
            zero = splat(kind, "0", count)
            result = text.emit(f"icmp ne {vector(kind, count)} {result}, {zero}")
            kind = "i1"
        return result if count == lanes else spread(text, kind, result, lanes)

    def _store(
        self, k: int, pointer: str, value: str, lanes: int = 0, stride: SymInt = ONE
    ) -> None:
        text, each = self._text, self._accesses[k]
        kind, dtype = vector(each.kind, lanes), each.view.memory.dtype
        if k in self._added:
            before = self._load(pointer, stride, each, lanes)
            value = text.emit(self._added[k].of(each.kind, before, value, lanes=lanes))
        elif dtype == "bool":
            value = text.emit(f"zext {vector('i1', lanes)} {value} to {kind}")
        if not lanes or stride == ONE:
            text.line(f"store {kind} {value}, ptr {pointer}, align {BYTES[dtype]}")
            return
        for lane, place in enumerate(self._apart(pointer, each.kind, stride, lanes)):
            one = text.emit(f"extractelement {kind} {value}, i64 {lane}")
            text.line(f"store {each.kind} {one}, ptr {place}")

    def _chosen(self, pointer: str, each: NestAccess, step: int, lanes: int) -> str:
        """Return every second element or so, out of vectors that hold all of them."""
        text, kind = self._text, vector(each.kind, lanes)
        # No vector reaches beyond the last element that is chosen.
        last = (lanes - 1) * (step - 1)
        firsts = [min(which * lanes, last) for which in range(step)]
        result = "poison"
        for which, first in enumerate(firsts):
            place = text.further(pointer, each.kind, first)
            size = BYTES[each.view.memory.dtype]
            more = text.emit(f"load {kind}, ptr {place}, align {size}", "x")
            places = []
            for lane in range(lanes):
                own = min(lane * step // lanes, step - 1)
                here = lanes + lane * step - first
                places.append(f"i32 {here if own == which else lane}")
            both = (
                f"{kind} {result}, {kind} {more}, <{lanes} x i32> <{', '.join(places)}>"
            )
            result = text.emit(f"shufflevector {both}")
        return result

    def _apart(self, pointer: str, kind: str, stride: SymInt, lanes: int) -> list[str]:
        """Return the places of a vector's elements, which don't lie side by side."""
        places, text = [pointer], self._text
        for _ in range(lanes - 1):
            further = f"ptr {places[-1]}, i64 {text.number(stride)}"
            places.append(text.emit(f"getelementptr inbounds {kind}, {further}", "p"))
        return places


def _carry_on(
    text: FunctionBuilder, carried: Mapping[int, LoopCarried], result: Mapping[int, str]
) -> None:
    """Give the names for the next iteration to what was found in this one."""
    for k, each in carried.items():
        text.line(f"{each.next} = bitcast {each.kind} {result[k]} to {each.kind}")


def _is_near(stride: SymInt) -> bool:
    return not stride.power and 1 < stride.factor <= NEAR


class _Elements(NamedTuple):
    """The places of elements, or of vectors of them, that a body reads and writes."""

    pointers: Sequence[str]
    strides: Sequence[SymInt]
    carried: Mapping[int, str]
    lanes: int = 0


def clear(
    text: FunctionBuilder, view: BufferView, pointer: str, sizes: ShapeEnv
) -> None:
    """Write zeros over a view without gaps."""
    count = sizes.product(view.shape).times(SymInt(BYTES[view.memory.dtype]))
    given = f"ptr {pointer}, i8 0, i64 {text.number(count)}, i1 false"
    text.line(f"call void @llvm.memset.p0.i64({given})")


def fill(
    text: FunctionBuilder, view: BufferView, pointer: str, sizes: ShapeEnv, number: str
) -> None:
    """Write a number all over a view without gaps."""
    if number == SUM.start:
        clear(text, view, pointer, sizes)
        return
    write = NestAccess(view, sizes.strides(view.shape))
    kind = write.kind
    nest = LoopNest(text, view.shape, [], [write], sizes, lambda view: pointer)
    nest.write(lambda given, lanes: [splat(kind, number, lanes)])


def shared_loop(
    shape: Shape,
    reads: Sequence[NestAccess],
    writes: Sequence[NestAccess],
    sizes: ShapeEnv,
) -> int | None:
    """Return the loop that threads may share: each writes memory of its own there."""
    if {each.view.memory for each in reads} & {each.view.memory for each in writes}:
        return None
    for depth, loop in enumerate(_loops(shape, [*reads, *writes], sizes)):
        if ZERO not in loop.strides[len(reads) :]:
            return depth
    return None


class _Loop(NamedTuple):
    extent: SymInt
    strides: tuple[SymInt, ...]


def _loops(
    shape: Shape, accesses: Sequence[NestAccess], sizes: ShapeEnv
) -> list[_Loop]:
    results: list[_Loop] = []
    for k, size in enumerate(shape):
        if size == 1:
            continue
        extent = sizes.of(size)
        strides = tuple(each.strides[k] for each in accesses)
        goes_on = [stride.times(extent) for stride in strides]
        if results and [*results[-1].strides] == goes_on:
            results[-1] = _Loop(results[-1].extent.times(extent), strides)
        else:
            results.append(_Loop(extent, strides))
    return results
