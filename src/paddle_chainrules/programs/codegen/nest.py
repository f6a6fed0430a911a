"""Loop nests over the elements of views, as LLVM text.

The innermost loop handles a vector of elements at a time, and the last few alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .elements.scalars import SUM, Reduction, Shape
from .extents import ONE, ZERO, ShapeEnv, SymInt
from .ir_builder import (
    BYTES,
    NO_VECTORIZE,
    FunctionBuilder,
    LoopCarried,
    broadcast_lanes,
    memory_type,
    splat,
    vector_type,
)
from .processor import full_lanes
from .views import BufferView


class NestAccess(NamedTuple):
    """The reads or writes of a loop nest to one view.

    Attributes:
        strides: elements from one iteration to the next, along each dimension.
        reduction: combines elements along the dimensions of stride 0.
    """

    view: BufferView
    strides: tuple[SymInt, ...]
    reduction: Reduction | None = None

    @property
    def kind(self) -> str:
        """LLVM's type of an element in memory."""
        return memory_type(self.view.buffer.dtype)


Body = Callable[[Sequence[str], int], Sequence[str]]
"""A function of the elements read that gives the elements to write.

The second argument is the number of lanes of vectors, 0 for one element of each.
"""

LANE_COUNTS = (2, 4, 8, 16, 32)
"""The numbers of elements that a vector may have."""

CHEAP_BODY_OPS, MEDIUM_BODY_OPS = 4, 40
"""Operations on an element, up to which four or two registers are filled at a time."""

LOOP_OVERHEAD_OPS = 2
"""Operations of a loop itself, for each of its iterations."""

MAX_DEINTERLEAVE_STRIDE = 4
"""Up to this stride, elements are shuffled out of vectors of contiguous elements."""

REMAINDER_LOOP_PENALTY = 1.6
"""How much faster vectors must be, if another loop has to do what is left over.

The other loop makes the code twice as long.
"""


class LoopNest:
    """Loops over a shape, around a body for the elements of each access.

    Neighbouring dimensions are one loop where all accesses continue from one to the
    next as within one. Sums and maxima along the innermost loop are carried from one
    iteration to the next, in any order. If the innermost loop is a single vector, this
    holds for the loop around it, too. Along other loops they are reduced in memory, in
    order.

    Args:
        address: gives the name of a pointer to the first element of a view.
        parallel_depth: the loop that threads share, if any. Then the caller emits the
            prologue.
        work: about how many operations the body has.
    """

    def __init__(
        self,
        ir: FunctionBuilder,
        shape: Shape,
        reads: Sequence[NestAccess],
        writes: Sequence[NestAccess],
        shape_env: ShapeEnv,
        address: Callable[[BufferView], str],
        parallel_depth: int | None = None,
        work: int = 1,
    ) -> None:
        self._ir, self._reads, self._writes = ir, reads, writes
        self._accesses = [*reads, *writes]
        self._loops = _merge_loops(shape, self._accesses, shape_env)
        self._shape_env, self._address, self._parallel_depth = (
            shape_env,
            address,
            parallel_depth,
        )
        self._work = work
        self._register_reductions: dict[int, Reduction] = {}
        """Reductions along the innermost loop, by the index of the access."""
        self._memory_reductions: dict[int, Reduction] = {}
        """Reductions in memory."""
        for k, access in enumerate(self._accesses):
            loop_strides = [loop.strides[k] for loop in self._loops]
            if access.reduction and loop_strides and loop_strides[-1] == ZERO:
                self._register_reductions[k] = access.reduction
                loop_strides.pop()
            if access.reduction and ZERO in loop_strides:
                self._memory_reductions[k] = access.reduction

    def emit(self, body: Body) -> None:
        """Emit the loops."""
        if self._parallel_depth is None:
            self.emit_prologue()
        pointers = [self._address(access.view) for access in self._accesses]
        self._emit_loops(0, pointers, body)

    def emit_prologue(self) -> None:
        """Fill buffers with the initial values of reductions in memory."""
        for k, reduction in self._memory_reductions.items():
            view = self._accesses[k].view
            emit_fill(
                self._ir, view, self._address(view), self._shape_env, reduction.start
            )

    def _emit_loops(self, depth: int, pointers: Sequence[str], body: Body) -> None:
        ir = self._ir
        if not self._loops:
            self._emit_body(_BodyAddresses(pointers, (ONE,) * len(pointers), {}), body)
            return
        loop = self._loops[depth]
        start, stop = "0", ir.size_value(loop.extent)
        if depth == self._parallel_depth:
            start, stop = ir.thread_range(stop)
        if depth == len(self._loops) - 1:
            self._emit_innermost(loop, pointers, body, start, stop)
            return
        if depth == len(self._loops) - 2 and (lanes := self._single_vector_lanes()):
            self._emit_vector_rows(loop, pointers, body, (start, stop), lanes)
            return
        with ir.loop(stop, metadata=NO_VECTORIZE, start=start) as index:
            advanced = self._advance_pointers(pointers, loop, index)
            self._emit_loops(depth + 1, advanced, body)

    def _advance_pointers(
        self, pointers: Sequence[str], loop: _Loop, index: str
    ) -> list[str]:
        operands = zip(pointers, self._accesses, loop.strides, strict=True)
        return [
            self._ir.indexed_address(p, access.kind, stride, index)
            for p, access, stride in operands
        ]

    def _emit_innermost(
        self, loop: _Loop, pointers: Sequence[str], body: Body, start: str, stop: str
    ) -> None:
        """Emit the loop over vectors, the remainder loop, and the stores of sums."""
        ir = self._ir
        lanes, is_exact = self._choose_lanes(
            loop, len(self._loops) - 1 == self._parallel_depth
        )
        sums = {
            k: reduction.start for k, reduction in self._register_reductions.items()
        }
        if lanes:
            vector_stop = stop if is_exact else ir.vector_loop_end(start, stop, lanes)
            starts = {
                k: splat(self._accesses[k].kind, initial, lanes)
                for k, initial in sums.items()
            }
            results = self._emit_element_loop(
                loop, pointers, body, (start, vector_stop), starts, lanes
            )
            sums = {
                k: self._reduce_lanes(k, vector_sum, lanes)
                for k, vector_sum in results.items()
            }
            start = vector_stop
        if not (lanes and is_exact):
            sums = self._emit_element_loop(loop, pointers, body, (start, stop), sums)
        for k, total in sums.items():
            self._store(k, pointers[k], total)

    def _single_vector_lanes(self) -> int:
        """Return the lanes of a vector that is all of the innermost loop, or 0."""
        inner, innermost_depth = self._loops[-1], len(self._loops) - 1
        lanes, _ = self._choose_lanes(inner, False)
        return (
            lanes
            if inner.extent == SymInt(lanes) and innermost_depth != self._parallel_depth
            else 0
        )

    def _emit_vector_rows(
        self,
        loop: _Loop,
        pointers: Sequence[str],
        body: Body,
        bounds: tuple[str, str],
        lanes: int,
    ) -> None:
        """Emit a loop over rows of one vector each; sums of rows stay in registers.

        Args:
            bounds: start and stop of the loop.
        """
        ir, (start, stop), strides = self._ir, bounds, self._loops[-1].strides
        starts = {
            k: splat(each.kind, each.reduction.start, lanes)
            for k, each in enumerate(self._accesses)
            if each.reduction
        }
        across_rows = {k: s for k, s in starts.items() if loop.strides[k] == ZERO}
        carried = self._make_carried(across_rows, lanes)
        phis = {k: each.phi for k, each in carried.items()}
        accumulators = {k: starts[k] for k in self._register_reductions} | phis
        with ir.loop(stop, [*carried.values()], NO_VECTORIZE, start) as index:
            advanced = self._advance_pointers(pointers, loop, index)
            results = self._emit_body(
                _BodyAddresses(advanced, strides, accumulators, lanes), body
            )
            _set_next_carried(ir, carried, results)
            self._store_sums(
                {k: v for k, v in results.items() if k not in phis}, advanced, lanes
            )
        self._store_sums(phis, pointers, lanes)

    def _make_carried(
        self, starts: Mapping[int, str], lanes: int
    ) -> dict[int, LoopCarried]:
        """Return the loop-carried values with these initial values."""
        ir = self._ir
        return {
            k: LoopCarried(
                vector_type(self._accesses[k].kind, lanes),
                *(start, ir.fresh_name("sum"), ir.fresh_name("more")),
            )
            for k, start in starts.items()
        }

    def _store_sums(
        self, sums: Mapping[int, str], pointers: Sequence[str], lanes: int
    ) -> None:
        """Store sums, each a vector."""
        for k, result in sums.items():
            if k in self._register_reductions:
                self._store(k, pointers[k], self._reduce_lanes(k, result, lanes))
            else:
                stride = self._loops[-1].strides[k]
                self._store(k, pointers[k], result, lanes, stride)

    def _emit_element_loop(
        self,
        loop: _Loop,
        pointers: Sequence[str],
        body: Body,
        bounds: tuple[str, str],
        starts: dict[int, str],
        lanes: int = 0,
    ) -> dict[int, str]:
        """Emit an innermost loop, over vectors or single elements.

        Args:
            bounds: start and stop of the loop.
            starts: initial values of carried sums, by the index of the access.

        Returns:
            The sums after the loop.
        """
        ir, (start, stop) = self._ir, bounds
        if lanes and (start, stop) == ("0", str(lanes)):
            advanced = self._advance_pointers(pointers, loop, "0")
            return self._emit_body(
                _BodyAddresses(advanced, loop.strides, starts, lanes), body
            )
        carried = self._make_carried(starts, lanes)
        phis = {k: carry.phi for k, carry in carried.items()}
        with ir.loop(
            stop, [*carried.values()], NO_VECTORIZE, start, lanes or 1
        ) as index:
            advanced = self._advance_pointers(pointers, loop, index)
            addresses = _BodyAddresses(advanced, loop.strides, phis, lanes)
            _set_next_carried(ir, carried, self._emit_body(addresses, body))
        return phis

    def _emit_body(self, addresses: _BodyAddresses, body: Body) -> dict[int, str]:
        """Emit loads, the body, and stores; return the carried sums."""
        results: dict[int, str] = {}
        loads = zip(addresses.pointers, addresses.strides, self._reads, strict=False)
        values = body(
            [self._load(*load, addresses.lanes) for load in loads], addresses.lanes
        )
        for k, value in enumerate(values, len(self._reads)):
            reduction, kind = self._accesses[k].reduction, self._accesses[k].kind
            if reduction and k in addresses.carried_in:
                combined = reduction.combine(
                    kind, addresses.carried_in[k], value, " reassoc", addresses.lanes
                )
                results[k] = self._ir.emit(combined)
            else:
                self._store(
                    k,
                    addresses.pointers[k],
                    value,
                    addresses.lanes,
                    addresses.strides[k],
                )
        return results

    def _reduce_lanes(self, k: int, result: str, lanes: int) -> str:
        """Emit the reduction of a vector's lanes, one half with the other."""
        ir, reduction, kind = (
            self._ir,
            self._register_reductions[k],
            self._accesses[k].kind,
        )
        while lanes > 1:
            wide, lanes = vector_type(kind, lanes), lanes // 2
            halves = []
            for first in (0, lanes):
                lane_indices = ", ".join(f"i32 {first + i}" for i in range(lanes))
                operands = (
                    f"{wide} {result}, {wide} poison, <{lanes} x i32> <{lane_indices}>"
                )
                halves.append(ir.emit(f"shufflevector {operands}"))
            result = ir.emit(
                reduction.combine(kind, halves[0], halves[1], " reassoc", lanes)
            )
        return ir.emit(f"extractelement {vector_type(kind, 1)} {result}, i64 0")

    def _choose_lanes(self, loop: _Loop, is_parallel: bool) -> tuple[int, bool]:
        """Return the number of lanes, and whether there is no remainder loop."""
        sizes = [BYTES[access.view.buffer.dtype] for access in self._accesses]
        full = full_lanes(max(sizes))
        strided_count = sum(stride not in (ZERO, ONE) for stride in loop.strides)
        has_dependence = any(
            stride == ZERO
            and k >= len(self._reads)
            and k not in self._register_reductions
            for k, stride in enumerate(loop.strides)
        )
        if has_dependence or self._element_cost(loop, full) >= self._element_cost(
            loop, 0
        ):
            return 0, False
        max_lanes = full
        if not strided_count and self._work <= MEDIUM_BODY_OPS:
            max_lanes *= 4 if self._work <= CHEAP_BODY_OPS else 2
        widths = [n for n in LANE_COUNTS if n <= max_lanes]
        factor, power = loop.extent
        if is_parallel or power:
            dividing = [n for n in widths if n >= full and factor % n == 0]
            return (
                (dividing[-1], True) if dividing and not is_parallel else (full, False)
            )
        result, best_time = (0, False), float(factor)
        for n in widths:
            vectors, remainder = divmod(factor, n)
            time = float(vectors * max(1, n // full) + remainder)
            if remainder:
                time *= REMAINDER_LOOP_PENALTY
            if vectors and (time, remainder > 0) <= (best_time, False):
                result, best_time = (n, not remainder), time
        return result

    def _element_cost(self, loop: _Loop, lanes: int) -> float:
        """Return about how many operations an element takes, in vectors or alone."""
        result = self._work + LOOP_OVERHEAD_OPS
        for k, stride in enumerate(loop.strides):
            is_read = k < len(self._reads)
            if not lanes or stride in (ZERO, ONE):
                result += 1
            else:
                is_near = is_read and _is_small_stride(stride)
                result += 2 * (stride.factor if is_near else lanes)
        return result / max(lanes, 1)

    def _load(
        self, pointer: str, stride: SymInt, access: NestAccess, lanes: int
    ) -> str:
        """Emit the load of an element or a vector of them."""
        ir, kind, dtype = self._ir, access.kind, access.view.buffer.dtype
        count = 0 if stride == ZERO else lanes
        if count and _is_small_stride(stride):
            result = self._load_deinterleaved(pointer, access, stride.factor, lanes)
        elif count and stride != ONE:
            result = "poison"
            for lane, address in enumerate(
                self._lane_pointers(pointer, kind, stride, lanes)
            ):
                element = ir.emit(f"load {kind}, ptr {address}", "x")
                insertion = (
                    f"insertelement {vector_type(kind, lanes)} {result}, "
                    f"{kind} {element}"
                )
                result = ir.emit(f"{insertion}, i64 {lane}")
        else:
            source = f"{vector_type(kind, count)}, ptr {pointer}, align {BYTES[dtype]}"
            result = ir.emit(f"load {source}", "x")
        if dtype == "bool":
            zero = splat(kind, "0", count)
            result = ir.emit(f"icmp ne {vector_type(kind, count)} {result}, {zero}")
            kind = "i1"
        return result if count == lanes else broadcast_lanes(ir, kind, result, lanes)

    def _store(
        self, k: int, pointer: str, value: str, lanes: int = 0, stride: SymInt = ONE
    ) -> None:
        ir, access = self._ir, self._accesses[k]
        kind, dtype = vector_type(access.kind, lanes), access.view.buffer.dtype
        if k in self._memory_reductions:
            old = self._load(pointer, stride, access, lanes)
            value = ir.emit(
                self._memory_reductions[k].combine(access.kind, old, value, lanes=lanes)
            )
        elif dtype == "bool":
            value = ir.emit(f"zext {vector_type('i1', lanes)} {value} to {kind}")
        if not lanes or stride == ONE:
            ir.line(f"store {kind} {value}, ptr {pointer}, align {BYTES[dtype]}")
            return
        for lane, address in enumerate(
            self._lane_pointers(pointer, access.kind, stride, lanes)
        ):
            element = ir.emit(f"extractelement {kind} {value}, i64 {lane}")
            ir.line(f"store {access.kind} {element}, ptr {address}")

    def _load_deinterleaved(
        self, pointer: str, access: NestAccess, stride: int, lanes: int
    ) -> str:
        """Emit loads of contiguous vectors, and shuffles that pick strided elements."""
        ir, kind = self._ir, vector_type(access.kind, lanes)
        # No vector reaches beyond the last element that is picked.
        max_first = (lanes - 1) * (stride - 1)
        firsts = [
            min(vector_index * lanes, max_first) for vector_index in range(stride)
        ]
        result = "poison"
        for vector_index, first in enumerate(firsts):
            address = ir.offset_address(pointer, access.kind, first)
            size = BYTES[access.view.buffer.dtype]
            loaded = ir.emit(f"load {kind}, ptr {address}, align {size}", "x")
            lane_indices = []
            for lane in range(lanes):
                owner = min(lane * stride // lanes, stride - 1)
                loaded_lane = lanes + lane * stride - first
                lane_indices.append(
                    f"i32 {loaded_lane if owner == vector_index else lane}"
                )
            operands = (
                f"{kind} {result}, {kind} {loaded}, "
                f"<{lanes} x i32> <{', '.join(lane_indices)}>"
            )
            result = ir.emit(f"shufflevector {operands}")
        return result

    def _lane_pointers(
        self, pointer: str, kind: str, stride: SymInt, lanes: int
    ) -> list[str]:
        """Emit the address of each lane of a strided vector."""
        pointers, ir = [pointer], self._ir
        for _ in range(lanes - 1):
            operands = f"ptr {pointers[-1]}, i64 {ir.size_value(stride)}"
            pointers.append(ir.emit(f"getelementptr inbounds {kind}, {operands}", "p"))
        return pointers


def _set_next_carried(
    ir: FunctionBuilder, carried: Mapping[int, LoopCarried], results: Mapping[int, str]
) -> None:
    """Emit the values that loops carry to the next iteration."""
    for k, carry in carried.items():
        ir.line(f"{carry.next} = bitcast {carry.kind} {results[k]} to {carry.kind}")


def _is_small_stride(stride: SymInt) -> bool:
    return not stride.power and 1 < stride.factor <= MAX_DEINTERLEAVE_STRIDE


class _BodyAddresses(NamedTuple):
    """The addresses of elements, or of vectors, that a body reads and writes."""

    pointers: Sequence[str]
    strides: Sequence[SymInt]
    carried_in: Mapping[int, str]
    lanes: int = 0


def emit_clear(
    ir: FunctionBuilder, view: BufferView, pointer: str, shape_env: ShapeEnv
) -> None:
    """Emit a fill of a dense view with zeros."""
    count = shape_env.product(view.shape).times(SymInt(BYTES[view.buffer.dtype]))
    args = f"ptr {pointer}, i8 0, i64 {ir.size_value(count)}, i1 false"
    ir.line(f"call void @llvm.memset.p0.i64({args})")


def emit_fill(
    ir: FunctionBuilder, view: BufferView, pointer: str, shape_env: ShapeEnv, value: str
) -> None:
    """Emit a fill of a dense view with a constant."""
    if value == SUM.start:
        emit_clear(ir, view, pointer, shape_env)
        return
    write = NestAccess(view, shape_env.strides(view.shape))
    kind = write.kind
    nest = LoopNest(ir, view.shape, [], [write], shape_env, lambda view: pointer)
    nest.emit(lambda loaded, lanes: [splat(kind, value, lanes)])


def parallel_loop_depth(
    shape: Shape,
    reads: Sequence[NestAccess],
    writes: Sequence[NestAccess],
    shape_env: ShapeEnv,
) -> int | None:
    """Return the outermost loop whose iterations write distinct elements, if any."""
    if {access.view.buffer for access in reads} & {
        access.view.buffer for access in writes
    }:
        return None
    for depth, loop in enumerate(_merge_loops(shape, [*reads, *writes], shape_env)):
        if ZERO not in loop.strides[len(reads) :]:
            return depth
    return None


class _Loop(NamedTuple):
    extent: SymInt
    strides: tuple[SymInt, ...]


def _merge_loops(
    shape: Shape, accesses: Sequence[NestAccess], shape_env: ShapeEnv
) -> list[_Loop]:
    results: list[_Loop] = []
    for k, size in enumerate(shape):
        if size == 1:
            continue
        extent = shape_env.extent(size)
        strides = tuple(access.strides[k] for access in accesses)
        continued = [stride.times(extent) for stride in strides]
        if results and [*results[-1].strides] == continued:
            results[-1] = _Loop(results[-1].extent.times(extent), strides)
        else:
            results.append(_Loop(extent, strides))
    return results
