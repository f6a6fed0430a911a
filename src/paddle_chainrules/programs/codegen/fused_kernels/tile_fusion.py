"""Steps that go over the same rows, and run on some rows at a time.

A product of matrices may be larger than its factors, as the scores of attention are.
Later steps use it up: arithmetic and sums of each row, and products that make less of
it. All of them go over blocks of rows. Then the intermediate results are as large as a
block, which stays in the processor's cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import NamedTuple

from ..elements.scalars import Shape
from ..extents import ZERO, ShapeEnv, SymInt
from ..iteration_domains import IterationDomain
from ..lowering import Stage
from ..nest import NestAccess
from ..views import Buffer, BufferView
from .by_block import Dims, TiledChain
from .plan import planned

LARGE = 1 << 20
"""The fewest bytes of memory that blocks must save."""

LONG = 128
"""The fewest entries of a row."""


def in_blocks(
    steps: Sequence[Stage],
    kept: Collection[Buffer],
    placed: Mapping[Buffer, BufferView],
    shape_env: ShapeEnv,
) -> list[Stage]:
    """Return the same steps, with one for those that go block by block.

    Args:
        kept: memory that is no intermediate result.
        placed: memory that lies within other memory.
    """
    makers = Counter(memory for step in steps for memory in {*step.writes})
    parted = {memory for memory, count in makers.items() if count > 1}

    def root(memory: Buffer) -> Buffer:
        while memory in placed:
            memory = placed[memory].buffer
        return memory

    results: list[Stage] = []
    rest = [*steps]
    while rest:
        chain = _Chain(shape_env, parted, root)
        before, after = chain.taken(rest)
        if chain.inside:
            own = chain.own({*kept}.union(*(step.reads for step in after)))
            if chain.first in own:
                blocks = TiledChain(chain.axes, chain.inside, own, shape_env).step
                if chain.bytes_of(kept) - _bytes([blocks], kept, shape_env) >= LARGE:
                    results += [*before, blocks]
                    rest = after
                    continue
        results.append(rest.pop(0))
    return results


def _bytes(
    steps: Sequence[Stage], kept: Collection[Buffer], shape_env: ShapeEnv
) -> int:
    """Return the bytes of intermediate results that some steps write."""
    made = {memory for step in steps for memory in step.writes}
    read = {memory for step in steps for memory in step.reads}
    plan = planned(steps, {*kept} | (read - made), ())
    samples = shape_env.samples
    return sum(size.at(samples.size if samples else 0) for size in plan.bytes)


class AccessMap(NamedTuple):
    """The places that an access goes to.

    Attributes:
        along: the strides along many matrices, and their rows.
        within: the remaining dimensions: their sizes and strides.
    """

    offset: tuple[SymInt, ...]
    along: tuple[SymInt, ...]
    within: list[tuple[SymInt, int]]


class _StageAccesses:
    """The memory that some steps read and write, by the root that it lies in."""

    def __init__(self, root: Callable[[Buffer], Buffer]) -> None:
        self._root = root
        self.reads: set[Buffer] = set()
        self.writes: set[Buffer] = set()

    def add(self, step: Stage) -> None:
        self.reads.update(map(self._root, step.reads))
        self.writes.update(map(self._root, step.writes))

    def meets(self, step: Stage) -> bool:
        """Tell whether another step has to stay before or after them."""
        if not self.writes.isdisjoint(map(self._root, step.reads)):
            return True
        return not (self.reads | self.writes).isdisjoint(map(self._root, step.writes))


class _Chain:
    """The steps that go over the rows of a product.

    Args:
        parted: memory that several steps write.
        root: the memory in which other memory lies.

    Attributes:
        axes: how many matrices there are, along each dimension, and rows of each.
        inside: the steps, each with the dimensions that are the axes.
    """

    def __init__(
        self,
        shape_env: ShapeEnv,
        parted: Collection[Buffer],
        root: Callable[[Buffer], Buffer],
    ) -> None:
        self._shape_env, self._parted, self._root = shape_env, parted, root
        self.axes: Shape = ()
        self.inside: list[tuple[Stage, Dims]] = []
        self._made: dict[Buffer, AccessMap] = {}
        """The places of memory that is complete after each block."""
        self._touched = _StageAccesses(root)

    def taken(self, steps: Sequence[Stage]) -> tuple[list[Stage], list[Stage]]:
        """Take steps, beginning with that product. Return those before and after."""
        first = steps[0].domain
        if first is None or not self._grows(first):
            return [], []
        self.axes = first.shape[:-2]
        later = _StageAccesses(self._root)
        early: dict[int, Stage] = {}
        last = 0
        for i, step in enumerate(steps):
            if later.meets(step):
                later.add(step)
            elif self._takes(step):
                self._touched.add(step)
                last = i
            elif self._touched.meets(step):
                later.add(step)
            else:
                early[i] = step
        before = [step for i, step in early.items() if i < last]
        gone = {*before, *(step for step, _ in self.inside)}
        return before, [step for step in steps if step not in gone]

    def own(self, needed: Collection[Buffer]) -> list[Buffer]:
        """Return intermediate results of which nobody needs more than a block."""
        return [
            memory
            for memory, at in self._made.items()
            if memory not in needed and self._leads(memory, at)
        ]

    @property
    def first(self) -> Buffer:
        """The result of that product."""
        return self.inside[0][0].writes[0]

    def bytes_of(self, kept: Collection[Buffer]) -> int:
        """Return the bytes that intermediate results take without blocks."""
        return _bytes([step for step, _ in self.inside], kept, self._shape_env)

    def _grows(self, domain: IterationDomain) -> bool:
        """Tell whether matrices are larger than their factors."""
        if not domain.is_product or 0 in domain.shape:
            return False
        *_, rows, columns, terms = domain.shape
        grows = rows * columns > terms * (rows + columns)
        return grows and rows > 1 and columns >= LONG

    def _takes(self, step: Stage) -> bool:
        """Tell whether a step goes along; it is inside then."""
        space = step.domain
        if space is None or 0 in space.shape:
            return False
        dims = self._dims(space)
        if dims is None or not self._may_be_parted(space, dims):
            return False
        for each in space.reads:
            memory, at = each.view.buffer, self._places(space, each, dims)
            is_made = self._root(memory) in self._touched.writes
            if is_made and self._made.get(memory) != at:
                return False
        made = {}
        for each in space.writes:
            memory, at = each.view.buffer, self._places(space, each, dims)
            pairs = zip(self.axes, at.along, strict=True)
            *others, rows = (size == 1 or stride != ZERO for size, stride in pairs)
            if memory in self._parted or not all(others):
                return False
            if each.reduction and not self._leads(memory, at):
                return False
            if rows:
                made[memory] = at
            elif not space.is_product:
                return False
        self._made.update(made)
        self.inside.append((step, dims))
        return True

    def _dims(self, domain: IterationDomain) -> Dims | None:
        """Return which dimensions are the axes, None for those of size 1."""
        for each in domain.reads:
            if (at := self._made.get(each.view.buffer)) is None:
                continue
            there = [*zip(domain.shape, each.strides, strict=True)]
            requested = [*zip(self.axes, at.along, strict=True)]
            if any(size != 1 and (size, s) not in there for size, s in requested):
                return None
            return tuple(None if p[0] == 1 else there.index(p) for p in requested)
        if not self._grows(domain) or domain.shape[:-2] != self.axes:
            return None
        return tuple(None if n == 1 else k for k, n in enumerate(self.axes))

    def _may_be_parted(self, domain: IterationDomain, dims: Dims) -> bool:
        """Tell whether parts have fixed sizes, and one matrix of a product each."""
        *many, rows = dims
        left = [n for k, n in enumerate(domain.shape) if k not in many]
        if any(self._shape_env.extent(n).power for n in left):
            return False
        if not domain.is_product:
            return True
        *batch, of_rows, _, of_terms = range(len(domain.shape))
        large = {k for k in batch if domain.shape[k] != 1}
        return rows in (of_rows, of_terms) and large == {*many} - {None}

    def _places(
        self, domain: IterationDomain, each: NestAccess, dims: Dims
    ) -> AccessMap:
        along = tuple(ZERO if k is None else each.strides[k] for k in dims)
        pairs = zip(each.strides, domain.shape, strict=True)
        within = sorted(
            (stride, size)
            for k, (stride, size) in enumerate(pairs)
            if k not in dims and size != 1 and stride != ZERO
        )
        return AccessMap(each.view.offset, along, within)

    def _leads(self, memory: Buffer, at: AccessMap) -> bool:
        """Tell whether blocks lie one after another in memory, from its beginning."""
        step = SymInt(prod(size for _, size in at.within))
        for size, stride in zip(self.axes[::-1], at.along[::-1], strict=True):
            if size != 1 and stride != step:
                return False
            step = step.times(self._shape_env.extent(size))
        return not at.offset and step == memory.extent
