"""Steps done for some rows at a time, one after another, as one step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...switch import wanted_blas
from ...tracing.operations import Value
from ..elements.scalars import Shape
from ..extents import ZERO, ShapeEnv, SymInt
from ..ir_builder import NO_VECTORIZE, FunctionBuilder, memory_type
from ..iteration_domains import DomainTile, IterationDomain
from ..lowering import Address, Stage
from ..nest import NestAccess
from ..views import Buffer, BufferView
from .packing import PackedMatrix, packed, padded
from .plan import planned

AT_ONCE = 1 << 20
"""Bytes of the intermediate results in a block."""

MIN_TILE_ROWS = 32
"""The fewest rows of a block. With fewer, products are slow."""

MULTIPLE = 8
"""The rows of blocks are a multiple of this."""

Dims = tuple[int | None, ...]
"""The dimensions of a step that blocks go along, None for those of size 1."""


class TileAccess(NamedTuple):
    """The place where a step finds what it reads or writes.

    Attributes:
        view: the view that begins there.
        strides: along its dimensions.
        goes: the dimensions, among those that blocks go along, along which it goes on.
    """

    view: BufferView
    strides: tuple[SymInt, ...]
    goes: Dims


class TiledStage(NamedTuple):
    """A step, and where it finds what it reads and writes."""

    domain: IterationDomain
    dims: Dims
    reads: list[TileAccess]
    writes: list[TileAccess]


class TiledChain:
    """Steps, each of which does a block before the next block begins.

    Args:
        axes: how many matrices there are, along each dimension, and rows of each.
        steps: the steps, each with the dimensions that are the axes.
        own: intermediate results, one block at a time.
    """

    def __init__(
        self,
        axes: Shape,
        steps: Sequence[tuple[Stage, Dims]],
        own: Collection[Buffer],
        shape_env: ShapeEnv,
    ) -> None:
        self._many, self._every = axes[:-1], axes[-1]
        self._steps, self._shape_env = [step for step, _ in steps], shape_env
        each = shape_env.product(axes).factor
        self._row = {m: padded(m.extent.factor // each, m.dtype) for m in own}
        """The distance from a row of these to the next."""
        _, whole = self._planned(self._every)
        of_row = sum(size.factor for size in whole) // self._every
        at_once = AT_ONCE // max(of_row, 1)
        # A library that is asked for by its name has each product as a whole.
        is_free = wanted_blas() in ("on", "own")
        self._rows = _tile_rows(self._every, at_once if is_free else self._every)
        slots, count = self._planned(self._rows)
        self._work = [Buffer(Value(-1, (), "uint8", 0), size) for size in count]
        self._own = {m: BufferView(self._work[k], (), (), ()) for m, k in slots.items()}
        self._made = dict.fromkeys(m for step in self._steps for m in step.writes)
        self._packed: dict[object, tuple[PackedMatrix, Dims]] = {}
        self._inside = [
            self._of(step.domain, dims) for step, dims in steps if step.domain
        ]
        self._work += [it.to.buffer for it, _ in self._packed.values()]

    @property
    def step(self) -> Stage:
        """All of them as one step."""
        read = dict.fromkeys(m for step in self._steps for m in step.reads)
        reads, writes = (
            tuple(m for m in part if m not in self._own) for part in (read, self._made)
        )
        return Stage(reads, (*writes, *self._work), {}, self._write, is_long=True)

    def _planned(self, rows: int) -> tuple[dict[Buffer, int], list[SymInt]]:
        """Return the slots of intermediate results, and their bytes, for some rows."""
        part = {m: Buffer(m.value, SymInt(row * rows)) for m, row in self._row.items()}

        def parts(memories: Iterable[Buffer]) -> tuple[Buffer, ...]:
            return tuple(part.get(m, m) for m in memories)

        steps = [
            replace(
                step,
                reads=parts(step.reads),
                writes=parts(step.writes),
                may_overwrite={
                    part.get(m, m): [*parts(step.may_overwrite[m])]
                    for m in step.may_overwrite
                },
            )
            for step in self._steps
        ]
        touched = {m for step in steps for m in (*step.reads, *step.writes)}
        plan = planned(steps, touched - {*part.values()}, ())
        return {m: plan.slots[own] for m, own in part.items()}, plan.bytes

    def _of(self, domain: IterationDomain, dims: Dims) -> TiledStage:
        """Return a step on existing memory."""
        copies = packed(domain, self._made)
        pairs = zip(domain.reads, copies, strict=True)
        reads = [self._lies(each, dims, copy) for each, copy in pairs]
        return TiledStage(
            domain, dims, reads, [self._lies(e, dims) for e in domain.writes]
        )

    def _lies(
        self, each: NestAccess, dims: Dims, copy: PackedMatrix | None = None
    ) -> TileAccess:
        *many, of_rows = dims
        assert of_rows is not None
        if copy is not None:
            place = tuple(ZERO if k is None else each.strides[k] for k in many)
            key = each.view.buffer, each.view.offset, place, copy.row, copy.shape
            first, _ = self._packed.setdefault(key, (copy, dims))
            copy = copy._replace(to=first.to)
            goes = of_rows if of_rows in (copy.outer, copy.inner) else None
            return TileAccess(copy.to, copy.strides, (*[None] * len(many), goes))
        if (memory := each.view.buffer) in self._own:
            strides = [*each.strides]
            strides[of_rows] = SymInt(self._row[memory])
            return TileAccess(self._own[memory], tuple(strides), (None,) * len(dims))
        return TileAccess(each.view, each.strides, dims)

    def _write(self, ir: FunctionBuilder, address: Address) -> None:
        self._level(ir, address, ())

    def _level(
        self, ir: FunctionBuilder, address: Address, at: tuple[str, ...]
    ) -> None:
        """Write loops over the remaining matrices, then over blocks of rows."""
        depth = len(at)
        if depth < len(self._many):
            with ir.loop(
                ir.size_value(self._shape_env.extent(self._many[depth])),
                metadata=NO_VECTORIZE,
            ) as index:
                self._level(ir, address, (*at, index))
            return
        for copy, dims in self._packed.values():
            source = TileAccess(
                copy.source.view, copy.source.strides, (*dims[:-1], None)
            )
            copy.write(ir, self._place(ir, address, source, at), address)
        count, rest = divmod(self._every, self._rows)
        with ir.loop(str(count), metadata=NO_VECTORIZE) as index:
            more = ir.emit(f"icmp ne i64 {index}, 0")
            self._block(ir, address, (*at, index), self._rows, more)
        if rest:
            self._block(ir, address, (*at, str(count)), rest, "true")

    def _block(
        self,
        ir: FunctionBuilder,
        address: Address,
        at: Sequence[str],
        rows: int,
        more: str,
    ) -> None:
        """Write all steps for some rows.

        Args:
            at: the indices of the matrix and the block.
            more: whether there were other rows before.
        """
        ir.poll_cancel()
        for step in self._inside:
            self._part(ir, address, step, at, rows, more)

    def _part(
        self,
        ir: FunctionBuilder,
        address: Address,
        step: TiledStage,
        at: Sequence[str],
        rows: int,
        more: str,
    ) -> None:
        space, (*many, of_rows) = step.domain, step.dims
        assert of_rows is not None
        left = [k for k in range(len(space.shape)) if k not in many]
        shape = tuple(rows if k == of_rows else space.shape[k] for k in left)
        places: dict[int, str] = {}

        def part(each: NestAccess, lies: TileAccess) -> NestAccess:
            strides = tuple(lies.strides[k] for k in left)
            pairs = zip(shape, strides, strict=True)
            kept = tuple(n for n, stride in pairs if stride != ZERO)
            if each.reduction and each.view.buffer in self._row:
                kept = rows, self._row[each.view.buffer]  # with what is between rows
            view = BufferView(each.view.buffer, (), kept, ())
            places[id(view)] = self._place(ir, address, lies, at)
            return NestAccess(view, strides, each.reduction)

        reads = [*map(part, space.reads, step.reads)]
        writes = [*map(part, space.writes, step.writes)]
        is_summed = space.is_product and space.writes[0].strides[of_rows] == ZERO
        here = DomainTile(shape, reads, writes, more if is_summed else "false")
        space.emit_tile(ir, here, lambda view: places[id(view)])

    def _place(
        self,
        ir: FunctionBuilder,
        address: Address,
        lies: TileAccess,
        at: Sequence[str],
    ) -> str:
        """Return the address of the first element of a block."""
        result = address(lies.view)
        kind = memory_type(lies.view.buffer.dtype)
        for axis, (k, index) in enumerate(zip(lies.goes, at, strict=False)):
            if k is not None:
                is_row = axis == len(lies.goes) - 1
                size = SymInt(self._rows if is_row else 1)
                result = ir.indexed_address(
                    result, kind, lies.strides[k].times(size), index
                )
        return result


def _tile_rows(every: int, at_once: int) -> int:
    """Return the rows of a block, so that blocks have about the same size."""
    count = -(-every // max(at_once, MIN_TILE_ROWS))
    rows = -(-every // count)
    return every if count == 1 else min(every, -(-rows // MULTIPLE) * MULTIPLE)
