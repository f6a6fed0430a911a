"""Chains of stages run tile by tile, as one stage."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ....settings import wanted_blas
from ...tracing.operations import Value
from ..elements.scalars import Shape
from ..extents import ZERO, ShapeEnv, SymInt
from ..ir_builder import NO_VECTORIZE, FunctionBuilder, memory_type
from ..iteration_domains import DomainTile, IterationDomain
from ..lowering import Address, Stage
from ..nest import NestAccess
from ..views import Buffer, BufferView
from .packing import PackedMatrix, packed_operands, padded_row
from .plan import assign_buffers

MAX_TILE_BYTES = 1 << 20
"""The most bytes of intermediate results of a tile."""

MIN_TILE_ROWS = 32
"""The fewest rows of a tile. With fewer, products are slow."""

TILE_ROWS_MULTIPLE = 8
"""The rows of tiles are a multiple of this."""

Dims = tuple[int | None, ...]
"""A stage's dimensions that are the axes of tiles, None for those of size 1."""


class TileAccess(NamedTuple):
    """A tiled access of a stage to a view.

    Attributes:
        view: the view that the first tile begins.
        strides: along its dimensions.
        tile_dims: the dimensions along which the address moves from tile to tile.
    """

    view: BufferView
    strides: tuple[SymInt, ...]
    tile_dims: Dims


class TiledStage(NamedTuple):
    """A stage's domain, and its accesses by tiles."""

    domain: IterationDomain
    dims: Dims
    reads: list[TileAccess]
    writes: list[TileAccess]


class TiledChain:
    """Stages that all run on one tile before the next tile begins.

    Args:
        axes: how many matrices there are, along each dimension, and rows of each.
        stages: the stages, each with the dimensions that are the axes.
        tile_local_buffers: intermediate results, of one tile at a time.
    """

    def __init__(
        self,
        axes: Shape,
        stages: Sequence[tuple[Stage, Dims]],
        tile_local_buffers: Collection[Buffer],
        shape_env: ShapeEnv,
    ) -> None:
        self._batch_shape, self._row_count = axes[:-1], axes[-1]
        self._stages, self._shape_env = [stage for stage, _ in stages], shape_env
        row_count = shape_env.product(axes).factor
        self._row_strides = {
            m: padded_row(m.extent.factor // row_count, m.dtype)
            for m in tile_local_buffers
        }
        """The row strides of tile-local buffers."""
        _, full_sizes = self._assign_slots(self._row_count)
        row_bytes = sum(size.factor for size in full_sizes) // self._row_count
        max_rows = MAX_TILE_BYTES // max(row_bytes, 1)
        # A library that the user names gets each product untiled.
        may_tile = wanted_blas() in ("on", "own")
        self._tile_rows = _tile_rows(
            self._row_count, max_rows if may_tile else self._row_count
        )
        slots, slot_sizes = self._assign_slots(self._tile_rows)
        self._workspaces = [
            Buffer(Value(-1, (), "uint8", 0), size) for size in slot_sizes
        ]
        self._tile_views = {
            m: BufferView(self._workspaces[k], (), (), ()) for m, k in slots.items()
        }
        self._written = dict.fromkeys(m for stage in self._stages for m in stage.writes)
        self._packed: dict[object, tuple[PackedMatrix, Dims]] = {}
        self._tiled_stages = [
            self._tiled_stage(stage.domain, dims)
            for stage, dims in stages
            if stage.domain
        ]
        self._workspaces += [
            packed.target.buffer for packed, _ in self._packed.values()
        ]

    @property
    def stage(self) -> Stage:
        """The chain as one stage."""
        read = dict.fromkeys(m for stage in self._stages for m in stage.reads)
        reads, writes = (
            tuple(m for m in buffers if m not in self._tile_views)
            for buffers in (read, self._written)
        )
        return Stage(reads, (*writes, *self._workspaces), {}, self._emit, is_long=True)

    def _assign_slots(self, rows: int) -> tuple[dict[Buffer, int], list[SymInt]]:
        """Assign slots to tile-local buffers of some rows; return slots and bytes."""
        tile_buffers = {
            m: Buffer(m.value, SymInt(row * rows))
            for m, row in self._row_strides.items()
        }

        def replace_buffers(buffers: Iterable[Buffer]) -> tuple[Buffer, ...]:
            return tuple(tile_buffers.get(m, m) for m in buffers)

        stages = [
            replace(
                stage,
                reads=replace_buffers(stage.reads),
                writes=replace_buffers(stage.writes),
                may_overwrite={
                    tile_buffers.get(m, m): [*replace_buffers(stage.may_overwrite[m])]
                    for m in stage.may_overwrite
                },
            )
            for stage in self._stages
        ]
        accessed = {m for stage in stages for m in (*stage.reads, *stage.writes)}
        plan = assign_buffers(stages, accessed - {*tile_buffers.values()}, ())
        return {
            m: plan.slots[tile_buffer] for m, tile_buffer in tile_buffers.items()
        }, plan.bytes

    def _tiled_stage(self, domain: IterationDomain, dims: Dims) -> TiledStage:
        """Return a stage with its tiled accesses."""
        copies = packed_operands(domain, self._written)
        pairs = zip(domain.reads, copies, strict=True)
        reads = [self._tile_access(access, dims, copy) for access, copy in pairs]
        return TiledStage(
            domain,
            dims,
            reads,
            [self._tile_access(write, dims) for write in domain.writes],
        )

    def _tile_access(
        self, access: NestAccess, dims: Dims, copy: PackedMatrix | None = None
    ) -> TileAccess:
        *batch_dims, row_dim = dims
        assert row_dim is not None
        if copy is not None:
            batch_strides = tuple(
                ZERO if k is None else access.strides[k] for k in batch_dims
            )
            key = (
                access.view.buffer,
                access.view.offset,
                batch_strides,
                copy.row_stride,
                copy.shape,
            )
            existing, _ = self._packed.setdefault(key, (copy, dims))
            copy = copy._replace(target=existing.target)
            tile_dim = row_dim if row_dim in (copy.outer, copy.inner) else None
            return TileAccess(
                copy.target, copy.strides, (*[None] * len(batch_dims), tile_dim)
            )
        if (buffer := access.view.buffer) in self._tile_views:
            strides = [*access.strides]
            strides[row_dim] = SymInt(self._row_strides[buffer])
            return TileAccess(
                self._tile_views[buffer], tuple(strides), (None,) * len(dims)
            )
        return TileAccess(access.view, access.strides, dims)

    def _emit(self, ir: FunctionBuilder, address: Address) -> None:
        self._emit_batch_loops(ir, address, ())

    def _emit_batch_loops(
        self, ir: FunctionBuilder, address: Address, indices: tuple[str, ...]
    ) -> None:
        """Emit loops over the remaining batch axes, then over tiles of rows."""
        depth = len(indices)
        if depth < len(self._batch_shape):
            with ir.loop(
                ir.size_value(self._shape_env.extent(self._batch_shape[depth])),
                metadata=NO_VECTORIZE,
            ) as index:
                self._emit_batch_loops(ir, address, (*indices, index))
            return
        for copy, dims in self._packed.values():
            source = TileAccess(
                copy.source.view, copy.source.strides, (*dims[:-1], None)
            )
            copy.write(ir, self._tile_address(ir, address, source, indices), address)
        count, remainder = divmod(self._row_count, self._tile_rows)
        with ir.loop(str(count), metadata=NO_VECTORIZE) as index:
            has_previous = ir.emit(f"icmp ne i64 {index}, 0")
            self._emit_tile(
                ir, address, (*indices, index), self._tile_rows, has_previous
            )
        if remainder:
            self._emit_tile(ir, address, (*indices, str(count)), remainder, "true")

    def _emit_tile(
        self,
        ir: FunctionBuilder,
        address: Address,
        indices: Sequence[str],
        rows: int,
        has_previous: str,
    ) -> None:
        """Emit all stages for one tile.

        Args:
            indices: the indices of the matrix and the tile.
            has_previous: whether there were tiles before.
        """
        ir.poll_cancel()
        for stage in self._tiled_stages:
            self._emit_stage_tile(ir, address, stage, indices, rows, has_previous)

    def _emit_stage_tile(
        self,
        ir: FunctionBuilder,
        address: Address,
        stage: TiledStage,
        indices: Sequence[str],
        rows: int,
        has_previous: str,
    ) -> None:
        domain, (*batch_dims, row_dim) = stage.domain, stage.dims
        assert row_dim is not None
        tile_dims = [k for k in range(len(domain.shape)) if k not in batch_dims]
        shape = tuple(rows if k == row_dim else domain.shape[k] for k in tile_dims)
        addresses: dict[int, str] = {}

        def access_of_tile(access: NestAccess, tile_access: TileAccess) -> NestAccess:
            strides = tuple(tile_access.strides[k] for k in tile_dims)
            pairs = zip(shape, strides, strict=True)
            view_shape = tuple(n for n, stride in pairs if stride != ZERO)
            if access.reduction and access.view.buffer in self._row_strides:
                view_shape = (
                    rows,
                    self._row_strides[access.view.buffer],
                )  # with the padding between rows
            view = BufferView(access.view.buffer, (), view_shape, ())
            addresses[id(view)] = self._tile_address(ir, address, tile_access, indices)
            return NestAccess(view, strides, access.reduction)

        reads = [*map(access_of_tile, domain.reads, stage.reads)]
        writes = [*map(access_of_tile, domain.writes, stage.writes)]
        is_summed = domain.is_product and domain.writes[0].strides[row_dim] == ZERO
        tile = DomainTile(shape, reads, writes, has_previous if is_summed else "false")
        domain.emit_tile(ir, tile, lambda view: addresses[id(view)])

    def _tile_address(
        self,
        ir: FunctionBuilder,
        address: Address,
        access: TileAccess,
        indices: Sequence[str],
    ) -> str:
        """Emit the address of the first element of a tile."""
        result = address(access.view)
        kind = memory_type(access.view.buffer.dtype)
        for axis, (k, index) in enumerate(zip(access.tile_dims, indices, strict=False)):
            if k is not None:
                is_row = axis == len(access.tile_dims) - 1
                size = SymInt(self._tile_rows if is_row else 1)
                result = ir.indexed_address(
                    result, kind, access.strides[k].times(size), index
                )
        return result


def _tile_rows(row_count: int, max_rows: int) -> int:
    """Return the rows of a tile, so that tiles have about the same size."""
    count = -(-row_count // max(max_rows, MIN_TILE_ROWS))
    rows = -(-row_count // count)
    return (
        row_count
        if count == 1
        else min(row_count, -(-rows // TILE_ROWS_MULTIPLE) * TILE_ROWS_MULTIPLE)
    )
