"""Loops over the elements of views, as LLVM text.

The innermost loop handles a vector of elements at a time, and the last few alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .elements.scalars import SUM, Reduction, Shape
from .extents import ONE, ZERO, Extent, Sizes
from .processor import registers
from .text import AS_IT_IS, BYTES, Carried, Text, in_memory, splat, spread, vector
from .views import View

class Access(NamedTuple):
    """The reads or writes of a nest of loops to one view.

    Attributes:
        strides: elements from one place to the next, along each dimension of the nest.
        reduction: how one entry is made of many, along the dimensions of stride 0.
    """

    view: View
    strides: tuple[Extent, ...]
    reduction: Reduction | None = None

    @property
    def kind(self) -> str:
        """The type in which an element lies in memory."""
        return in_memory(self.view.memory.dtype)


Body = Callable[[Sequence[str], int], Sequence[str]]
"""A function of the elements read that gives the elements to write.

The second argument is the number of lanes of vectors, 0 for one element of each.
"""

WIDEST = 32
"""The most bytes of a register that we use. With more, processors may slow down."""

MOST_LANES = 16

CHEAP, MEDIUM = 4, 40
"""Operations on an element, up to which four or two registers are filled at a time."""

DEAR = 8
"""Operations on an element that are worth fetching one from each of several places."""

TWO_LOOPS = 1.6
"""How much faster a vector loop must be, if another one has to finish its work."""


class Nest:
    """Loops over a shape, around a body for the elements of each access.

    Neighbouring dimensions are one loop where all accesses continue from one to the
    next as within one. Sums and maxima along the innermost loop are carried from one
    iteration to the next, in any order. Along the other loops they are made in memory,
    in order.

    Args:
        address: gives the name of a pointer to the first element of a view.
        shared: the loop that threads share, if any. Memory that sums are added up in
            is already filled then.
        work: about how many operations the body has.
    """

    def __init__(
        self,
        text: Text,
        shape: Shape,
        reads: Sequence[Access],
        writes: Sequence[Access],
        sizes: Sizes,
        address: Callable[[View], str],
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
        for k, how in self._added.items():
            view = self._accesses[k].view
            fill(self._text, view, self._address(view), self._sizes, how.start)

    def _level(self, depth: int, pointers: Sequence[str], body: Body) -> None:
        text = self._text
        if not self._loops:
            self._elements(_Innermost(pointers, (ONE,) * len(pointers)), body)
            return
        loop = self._loops[depth]
        start, stop = "0", text.number(loop.extent)
        if depth == self._shared:
            start, stop = text.part(stop)
        if depth == len(self._loops) - 1:
            self._innermost(loop, pointers, body, start, stop)
            return
        with text.loop(stop, how=AS_IT_IS, start=start) as index:
            here = self._moved(pointers, loop, index)
            self._level(depth + 1, here, body)

    def _moved(
        self, pointers: Sequence[str], loop: _Loop, index: str
    ) -> list[str]:
        rows = zip(pointers, self._accesses, loop.strides, strict=True)
        return [self._text.along(p, e.kind, stride, index) for p, e, stride in rows]

    def _innermost(
        self, loop: _Loop, pointers: Sequence[str], body: Body, start: str, stop: str
    ) -> None:
        is_shared = len(self._loops) - 1 == self._shared
        lanes, is_all = self._lanes(loop, is_shared)
        sums = {k: how.start for k, how in self._carried.items()}
        if lanes:
            whole = stop if is_all else self._text.whole(start, stop, lanes)
            self._row(loop, pointers, body, (start, whole), lanes, sums)
            start = whole
        if not (lanes and is_all):
            self._row(loop, pointers, body, (start, stop), 0, sums)
        for k, total in sums.items():
            self._store(k, pointers[k], total)

    def _row(
        self,
        loop: _Loop,
        pointers: Sequence[str],
        body: Body,
        part: tuple[str, str],
        lanes: int,
        sums: dict[int, str],
    ) -> None:
        """Write an innermost loop.

        Args:
            part: the first index, and the one after the last.
            sums: what is carried: before the loop, and then after it.
        """
        text, (start, stop) = self._text, part
        carried = {}
        for k, how in self._carried.items():
            kind = self._accesses[k].kind
            first = splat(kind, how.start, lanes) if lanes else sums[k]
            names = text.name("sum"), text.name("more")
            carried[k] = Carried(vector(kind, lanes), first, *names)
        if (start, stop) == ("0", str(lanes)):  # one vector is all
            here = self._moved(pointers, loop, "0")
            at = _Innermost(here, loop.strides, lanes, {k: c.start for k, c in carried.items()})
            found = self._elements(at, body)
        else:
            with text.loop(stop, [*carried.values()], AS_IT_IS, start, lanes or 1) as i:
                here = self._moved(pointers, loop, i)
                at = _Innermost(here, loop.strides, lanes, {k: c.now for k, c in carried.items()})
                for k, total in self._elements(at, body).items():
                    kind = carried[k].kind
                    text.line(f"{carried[k].next} = bitcast {kind} {total} to {kind}")
            found = {k: each.now for k, each in carried.items()}
        for k, total in found.items():
            sums[k] = self._total(k, total, lanes) if lanes else total

    def _elements(self, at: _Innermost, body: Body) -> dict[int, str]:
        """Write the body; return what is carried."""
        lanes, found = at.lanes, {}
        places = [*zip(at.pointers, at.strides, self._accesses, strict=True)]
        reads = places[: len(self._reads)]
        made = body([self._load(*place, lanes) for place in reads], lanes)
        for k, value in enumerate(made, len(self._reads)):
            if k in self._carried:
                how, kind = self._carried[k], self._accesses[k].kind
                more = how.of(kind, at.carried[k], value, " reassoc", lanes)
                found[k] = self._text.put(more)
            else:
                self._store(k, at.pointers[k], value, lanes, at.strides[k])
        return found

    def _total(self, k: int, found: str, lanes: int) -> str:
        """Return the reduction of a vector's lanes."""
        text, how, kind = self._text, self._carried[k], self._accesses[k].kind
        while lanes > 1:
            whole, lanes = vector(kind, lanes), lanes // 2
            if lanes == 1:
                one, two = (
                    text.put(f"extractelement {whole} {found}, i64 {i}") for i in (0, 1)
                )
                return text.put(how.of(kind, one, two, " reassoc"))
            halves = (
                ", ".join(f"i32 {i}" for i in range(first, first + lanes))
                for first in (0, lanes)
            )
            one, two = (
                text.put(
                    f"shufflevector {whole} {found}, {whole} poison, "
                    f"<{lanes} x i32> <{places}>"
                )
                for places in halves
            )
            found = text.put(how.of(kind, one, two, " reassoc", lanes))
        return found

    def _lanes(self, loop: _Loop, is_shared: bool) -> tuple[int, bool]:
        """Return how many lanes vectors have, and whether none are left over."""
        sizes = [BYTES[each.view.memory.dtype] for each in self._accesses]
        fit = min(registers().bytes, WIDEST) // max(sizes)
        apart = sum(stride not in (ZERO, ONE) for stride in loop.strides)
        if apart and self._work < DEAR * apart:
            return 0, False
        most = fit
        if not apart and self._work <= MEDIUM:
            most *= 4 if self._work <= CHEAP else 2
        widths = [
            n for n in (2, 4, 8, 16) if n <= min(most, MOST_LANES)
        ]
        count = loop.extent
        if is_shared or count.power:
            even = [] if is_shared else [n for n in widths if count.factor % n == 0]
            if even and even[-1] >= min(fit, widths[-1]):
                return even[-1], True
            return max((n for n in widths if n <= fit), default=0), False
        best = 0, False
        least = float(count.factor)
        for n in widths:
            vectors, rest = divmod(count.factor, n)
            time = vectors * max(1, n // fit) + rest
            if rest:
                time *= TWO_LOOPS
            if vectors and (time < least or time == least and not rest):
                best, least = (n, not rest), time
        return best

    def _load(self, pointer: str, stride: Extent, each: Access, lanes: int) -> str:
        """Return the elements that a body begins with."""
        text, kind, count = self._text, each.kind, lanes
        if lanes and stride == ZERO:
            count = 0  # the same in all lanes
        if count and stride != ONE:
            found = "poison"
            for lane, place in enumerate(self._apart(pointer, kind, stride, lanes)):
                one = text.put(f"load {kind}, ptr {place}", "x")
                more = f"insertelement {vector(kind, lanes)} {found}, {kind} {one}"
                found = text.put(f"{more}, i64 {lane}")
        else:
            size = BYTES[each.view.memory.dtype]
            found = f"load {vector(kind, count)}, ptr {pointer}, align {size}"
            found = text.put(found, "x")
        if each.view.memory.dtype == "bool":
            found = text.put(f"icmp ne {vector(kind, count)} {found}, {splat(kind, '0', count)}")
            kind = "i1"
        return found if count == lanes else spread(text, kind, found, lanes)

    def _store(
        self, k: int, pointer: str, value: str, lanes: int = 0, stride: Extent = ONE
    ) -> None:
        text, each = self._text, self._accesses[k]
        kind, dtype = vector(each.kind, lanes), each.view.memory.dtype
        if k in self._added:
            before = self._load(pointer, stride, each, lanes)
            value = text.put(self._added[k].of(each.kind, before, value, lanes=lanes))
        elif dtype == "bool":
            value = text.put(f"zext {vector('i1', lanes)} {value} to {kind}")
        if lanes and stride != ONE:
            for lane, place in enumerate(self._apart(pointer, each.kind, stride, lanes)):
                one = text.put(f"extractelement {kind} {value}, i64 {lane}")
                text.line(f"store {each.kind} {one}, ptr {place}")
        else:
            text.line(f"store {kind} {value}, ptr {pointer}, align {BYTES[dtype]}")

    def _apart(self, pointer: str, kind: str, stride: Extent, lanes: int) -> list[str]:
        """Return the places of a vector's elements, which don't lie side by side."""
        places, text = [pointer], self._text
        for _ in range(lanes - 1):
            further = f"ptr {places[-1]}, i64 {text.number(stride)}"
            places.append(text.put(f"getelementptr inbounds {kind}, {further}", "p"))
        return places


class _Innermost(NamedTuple):
    """The elements, or vectors of them, that a body begins and ends with."""

    pointers: Sequence[str]
    strides: Sequence[Extent]
    lanes: int = 0
    carried: Mapping[int, str] = {}


def clear(text: Text, view: View, pointer: str, sizes: Sizes) -> None:
    """Write zeros over a view without gaps."""
    count = sizes.product(view.shape).times(Extent(BYTES[view.memory.dtype]))
    given = f"ptr {pointer}, i8 0, i64 {text.number(count)}, i1 false"
    text.line(f"call void @llvm.memset.p0.i64({given})")


def fill(text: Text, view: View, pointer: str, sizes: Sizes, number: str) -> None:
    """Write a number all over a view without gaps."""
    if number == SUM.start:
        clear(text, view, pointer, sizes)
        return
    write = Access(view, sizes.strides(view.shape))
    kind = write.kind
    nest = Nest(text, view.shape, [], [write], sizes, lambda view: pointer)
    nest.write(lambda given, lanes: [splat(kind, number, lanes)])


def shared_loop(
    shape: Shape, reads: Sequence[Access], writes: Sequence[Access], sizes: Sizes
) -> int | None:
    """Return the loop that threads may share: each writes memory of its own there."""
    if {each.view.memory for each in reads} & {each.view.memory for each in writes}:
        return None
    for depth, loop in enumerate(_loops(shape, [*reads, *writes], sizes)):
        if ZERO not in loop.strides[len(reads) :]:
            return depth
    return None


class _Loop(NamedTuple):
    extent: Extent
    strides: tuple[Extent, ...]


def _loops(shape: Shape, accesses: Sequence[Access], sizes: Sizes) -> list[_Loop]:
    found: list[_Loop] = []
    for k, size in enumerate(shape):
        if size == 1:
            continue
        extent = sizes.of(size)
        strides = tuple(each.strides[k] for each in accesses)
        goes_on = [stride.times(extent) for stride in strides]
        if found and [*found[-1].strides] == goes_on:
            found[-1] = _Loop(found[-1].extent.times(extent), strides)
        else:
            found.append(_Loop(extent, strides))
    return found
