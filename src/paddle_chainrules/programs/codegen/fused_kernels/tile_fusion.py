"""Fusion of stages over the same rows, which then run tile by tile.

A product of matrices may be larger than its factors, as the scores of attention are.
Later stages consume it: arithmetic and sums of each row, and products that make less of
it. All of them run on tiles of rows. Then the intermediate results are as large as a
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
from .plan import assign_buffers

MIN_SAVED_BYTES = 1 << 20
"""The fewest bytes of memory that tiling must save."""

MIN_ROW_ENTRIES = 128
"""The fewest entries of a row."""


def tile_chains(
    stages: Sequence[Stage],
    external: Collection[Buffer],
    aliases: Mapping[Buffer, BufferView],
    shape_env: ShapeEnv,
) -> list[Stage]:
    """Return the same stages, with chains that run tile by tile as one stage each.

    Args:
        external: buffers that are no intermediate results.
        aliases: buffers that are views of other buffers.
    """
    writers = Counter(buffer for stage in stages for buffer in {*stage.writes})
    multi_writer_buffers = {buffer for buffer, count in writers.items() if count > 1}

    def root(buffer: Buffer) -> Buffer:
        while buffer in aliases:
            buffer = aliases[buffer].buffer
        return buffer

    results: list[Stage] = []
    remaining = [*stages]
    while remaining:
        chain = _Chain(shape_env, multi_writer_buffers, root)
        before, after = chain.take_stages(remaining)
        if chain.stages:
            tile_local = chain.tile_local_buffers(
                {*external}.union(*(stage.reads for stage in after))
            )
            if chain.first_result in tile_local:
                tiled = TiledChain(
                    chain.axes, chain.stages, tile_local, shape_env
                ).stage
                if (
                    chain.untiled_bytes(external)
                    - _intermediate_bytes([tiled], external, shape_env)
                    >= MIN_SAVED_BYTES
                ):
                    results += [*before, tiled]
                    remaining = after
                    continue
        results.append(remaining.pop(0))
    return results


def _intermediate_bytes(
    stages: Sequence[Stage], external: Collection[Buffer], shape_env: ShapeEnv
) -> int:
    """Return the bytes of intermediate results that some stages write."""
    written = {buffer for stage in stages for buffer in stage.writes}
    read = {buffer for stage in stages for buffer in stage.reads}
    plan = assign_buffers(stages, {*external} | (read - written), ())
    samples = shape_env.samples
    return sum(size.at(samples.size if samples else 0) for size in plan.bytes)


class AccessMap(NamedTuple):
    """The offset and strides of an access, split into tile axes and inner dimensions.

    Attributes:
        tile_strides: the strides along the batch axes and the rows.
        inner: the strides and sizes of the remaining dimensions.
    """

    offset: tuple[SymInt, ...]
    tile_strides: tuple[SymInt, ...]
    inner: list[tuple[SymInt, int]]


class _StageAccesses:
    """The root buffers that some stages read and write."""

    def __init__(self, root: Callable[[Buffer], Buffer]) -> None:
        self._root = root
        self.reads: set[Buffer] = set()
        self.writes: set[Buffer] = set()

    def add(self, stage: Stage) -> None:
        self.reads.update(map(self._root, stage.reads))
        self.writes.update(map(self._root, stage.writes))

    def conflicts_with(self, stage: Stage) -> bool:
        """Tell whether a stage depends on them, or they on it."""
        if not self.writes.isdisjoint(map(self._root, stage.reads)):
            return True
        return not (self.reads | self.writes).isdisjoint(map(self._root, stage.writes))


class _Chain:
    """A chain of stages that iterate over the rows of a product.

    Args:
        multi_writer_buffers: buffers that several stages write.
        root: gives the buffer that holds another one.

    Attributes:
        axes: how many matrices there are, along each dimension, and rows of each.
        stages: the stages, each with the dimensions that are the axes.
    """

    def __init__(
        self,
        shape_env: ShapeEnv,
        multi_writer_buffers: Collection[Buffer],
        root: Callable[[Buffer], Buffer],
    ) -> None:
        self._shape_env, self._multi_writer_buffers, self._root = (
            shape_env,
            multi_writer_buffers,
            root,
        )
        self.axes: Shape = ()
        self.stages: list[tuple[Stage, Dims]] = []
        self._tiled_accesses: dict[Buffer, AccessMap] = {}
        """The accesses of buffers whose rows each tile completes."""
        self._touched = _StageAccesses(root)

    def take_stages(self, stages: Sequence[Stage]) -> tuple[list[Stage], list[Stage]]:
        """Take a chain from the first stage on; return the stages before and after."""
        first = stages[0].domain
        if first is None or not self._outgrows_operands(first):
            return [], []
        self.axes = first.shape[:-2]
        later = _StageAccesses(self._root)
        early: dict[int, Stage] = {}
        last = 0
        for i, stage in enumerate(stages):
            if later.conflicts_with(stage):
                later.add(stage)
            elif self._try_add(stage):
                self._touched.add(stage)
                last = i
            elif self._touched.conflicts_with(stage):
                later.add(stage)
            else:
                early[i] = stage
        before = [stage for i, stage in early.items() if i < last]
        taken = {*before, *(stage for stage, _ in self.stages)}
        return before, [stage for stage in stages if stage not in taken]

    def tile_local_buffers(self, needed: Collection[Buffer]) -> list[Buffer]:
        """Return intermediate results of which no stage outside needs any rows."""
        return [
            buffer
            for buffer, access_map in self._tiled_accesses.items()
            if buffer not in needed and self._is_contiguous(buffer, access_map)
        ]

    @property
    def first_result(self) -> Buffer:
        """The result of the product that begins the chain."""
        return self.stages[0][0].writes[0]

    def untiled_bytes(self, external: Collection[Buffer]) -> int:
        """Return the bytes of intermediate results without tiling."""
        return _intermediate_bytes(
            [stage for stage, _ in self.stages], external, self._shape_env
        )

    def _outgrows_operands(self, domain: IterationDomain) -> bool:
        """Tell whether products are larger than their operands."""
        if not domain.is_product or 0 in domain.shape:
            return False
        *_, rows, columns, terms = domain.shape
        grows = rows * columns > terms * (rows + columns)
        return grows and rows > 1 and columns >= MIN_ROW_ENTRIES

    def _try_add(self, stage: Stage) -> bool:
        """Add a stage if it may be tiled with the chain; tell whether it was added."""
        domain = stage.domain
        if domain is None or 0 in domain.shape:
            return False
        dims = self._axis_dims(domain)
        if dims is None or not self._is_tileable(domain, dims):
            return False
        for access in domain.reads:
            buffer, access_map = (
                access.view.buffer,
                self._access_map(domain, access, dims),
            )
            is_written = self._root(buffer) in self._touched.writes
            if is_written and self._tiled_accesses.get(buffer) != access_map:
                return False
        row_maps = {}
        for access in domain.writes:
            buffer, access_map = (
                access.view.buffer,
                self._access_map(domain, access, dims),
            )
            pairs = zip(self.axes, access_map.tile_strides, strict=True)
            *covers_batch, covers_rows = (
                size == 1 or stride != ZERO for size, stride in pairs
            )
            if buffer in self._multi_writer_buffers or not all(covers_batch):
                return False
            if access.reduction and not self._is_contiguous(buffer, access_map):
                return False
            if covers_rows:
                row_maps[buffer] = access_map
            elif not domain.is_product:
                return False
        self._tiled_accesses.update(row_maps)
        self.stages.append((stage, dims))
        return True

    def _axis_dims(self, domain: IterationDomain) -> Dims | None:
        """Return the dimensions that are the tile axes, None for those of size 1."""
        for access in domain.reads:
            if (access_map := self._tiled_accesses.get(access.view.buffer)) is None:
                continue
            domain_dims = [*zip(domain.shape, access.strides, strict=True)]
            requested = [*zip(self.axes, access_map.tile_strides, strict=True)]
            if any(size != 1 and (size, s) not in domain_dims for size, s in requested):
                return None
            return tuple(None if p[0] == 1 else domain_dims.index(p) for p in requested)
        if not self._outgrows_operands(domain) or domain.shape[:-2] != self.axes:
            return None
        return tuple(None if n == 1 else k for k, n in enumerate(self.axes))

    def _is_tileable(self, domain: IterationDomain, dims: Dims) -> bool:
        """Tell whether tiles have fixed sizes, and one matrix of a product each."""
        *batch_dims, rows = dims
        tile_sizes = [n for k, n in enumerate(domain.shape) if k not in batch_dims]
        if any(self._shape_env.extent(n).power for n in tile_sizes):
            return False
        if not domain.is_product:
            return True
        *batch, of_rows, _, of_terms = range(len(domain.shape))
        large = {k for k in batch if domain.shape[k] != 1}
        return rows in (of_rows, of_terms) and large == {*batch_dims} - {None}

    def _access_map(
        self, domain: IterationDomain, access: NestAccess, dims: Dims
    ) -> AccessMap:
        tile_strides = tuple(ZERO if k is None else access.strides[k] for k in dims)
        pairs = zip(access.strides, domain.shape, strict=True)
        inner = sorted(
            (stride, size)
            for k, (stride, size) in enumerate(pairs)
            if k not in dims and size != 1 and stride != ZERO
        )
        return AccessMap(access.view.offset, tile_strides, inner)

    def _is_contiguous(self, buffer: Buffer, access_map: AccessMap) -> bool:
        """Tell whether tiles are contiguous in a buffer, from its beginning."""
        expected_stride = SymInt(prod(size for _, size in access_map.inner))
        for size, stride in zip(
            self.axes[::-1], access_map.tile_strides[::-1], strict=True
        ):
            if size != 1 and stride != expected_stride:
                return False
            expected_stride = expected_stride.times(self._shape_env.extent(size))
        return not access_map.offset and expected_stride == buffer.extent
