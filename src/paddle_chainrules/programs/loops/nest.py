"""Loops over the elements of views, as LLVM text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .elements.scalars import SUM, Reduction, Shape
from .extents import ONE, ZERO, Extent, Sizes
from .text import BYTES, PARALLEL, Carried, Text, in_memory
from .views import View

METADATA = """
!0 = distinct !{}
!1 = distinct !{!1, !2}
!2 = !{!"llvm.loop.parallel_accesses", !0}
"""
"""Metadata: no element is written before another is read, wherever outputs are."""


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


Body = Callable[[Sequence[str]], Sequence[str]]
"""A function of the elements read that gives the elements to write."""


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
    ) -> None:
        self._text, self._reads, self._writes = text, reads, writes
        self._accesses = [*reads, *writes]
        self._loops = _loops(shape, self._accesses, sizes)
        self._sizes, self._address, self._shared = sizes, address, shared
        self._carried: dict[int, Carried] = {}
        self._added: dict[int, Reduction] = {}
        """Reductions in memory, by place among the accesses."""
        for k, each in enumerate(self._accesses):
            along = [loop.strides[k] for loop in self._loops]
            if each.reduction and along and along[-1] == ZERO:
                self._carried[k] = _carried(text, each, each.reduction)
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
        if depth == len(self._loops):
            self._element(pointers, body)
            return
        text, loop = self._text, self._loops[depth]
        is_last = depth == len(self._loops) - 1
        carried = [*self._carried.values()] if is_last else []
        start, stop = "0", text.number(loop.extent)
        if depth == self._shared:
            start, stop = text.part(stop)
        with text.loop(stop, carried, is_last, start) as index:
            rows = zip(pointers, self._accesses, loop.strides, strict=True)
            here = [text.along(p, each.kind, stride, index) for p, each, stride in rows]
            self._level(depth + 1, here, body)
        if is_last:
            for k, each in self._carried.items():
                self._store(k, pointers[k], each.now, "")

    def _element(self, pointers: Sequence[str], body: Body) -> None:
        group = f", {PARALLEL}" if self._loops else ""
        pairs = zip(pointers, self._reads, strict=False)
        made = body([_load(self._text, p, each, group) for p, each in pairs])
        for k, scalar in enumerate(made, len(self._reads)):
            if k in self._carried:
                kind, _, now, following = self._carried[k]
                how = self._accesses[k].reduction
                assert how is not None
                more = how.of(kind, now, scalar, " reassoc")
                self._text.line(f"{following} = {more}")
            else:
                self._store(k, pointers[k], scalar, group)

    def _store(self, k: int, pointer: str, scalar: str, group: str) -> None:
        text, each = self._text, self._accesses[k]
        if k in self._added:
            before = text.put(f"load {each.kind}, ptr {pointer}{group}")
            scalar = text.put(self._added[k].of(each.kind, before, scalar))
        elif each.view.memory.dtype == "bool":
            scalar = text.put(f"zext i1 {scalar} to i8")
        text.line(f"store {each.kind} {scalar}, ptr {pointer}{group}")


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
    kind = in_memory(view.memory.dtype)
    with text.loop(text.number(sizes.product(view.shape)), parallel=True) as index:
        place = text.along(pointer, kind, ONE, index)
        text.line(f"store {kind} {number}, ptr {place}, {PARALLEL}")


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


def _carried(text: Text, each: Access, how: Reduction) -> Carried:
    return Carried(each.kind, how.start, text.name("sum"), text.name("more"))


def _load(text: Text, pointer: str, each: Access, group: str) -> str:
    found = text.put(f"load {each.kind}, ptr {pointer}{group}", "x")
    if each.view.memory.dtype == "bool":
        return text.put(f"icmp ne i8 {found}, 0")
    return found
