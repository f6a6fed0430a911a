"""Grouping of a program's operations into loops.

An elementwise operation waits from when its arguments exist until something else needs
its result. Then one loop computes it with all that it needs, and with other needed
operations that read the same. Cheap results are computed again in a later loop and not
stored: the time of a loop is that of its memory accesses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from ..tracing.operations import Operation, Value
from .elements import arithmetic, functions  # noqa: F401  # with their rules
from .elements.scalars import (
    COST,
    ElementBuilder,
    NotLowerable,
    Read,
    Reduction,
    Shape,
    emit_element,
    loop_shape,
    reduction_of,
)

MAX_LIVE_LEAVES = 4
"""The most tensors that a deferred operation may keep alive."""

MAX_READ_STREAMS = 16
"""The most tensors that a loop reads, where it has a choice."""

MAX_OPS_PER_RESULT = 128
"""The most operations of a result in a loop. With more, LLVM takes much longer."""

MAX_GROUP_OUTPUTS = 8
"""The most results of a loop that something needs."""

MAX_SIBLINGS = 3
"""The most results computed before they are needed, which take memory until then."""

MAX_RECOMPUTE_OPS = 6
"""The most operations that are recomputed rather than their result stored."""


class FusionGroup(NamedTuple):
    """Operations on elements of tensors of one shape, and sums or maxima of these.

    Attributes:
        reads: tensors from outside, each to be broadcast to that shape.
        outputs: the results that others need.
    """

    ops: tuple[Operation, ...]
    reads: tuple[Read, ...]
    outputs: tuple[Value, ...]

    @property
    def shape(self) -> Shape:
        return loop_shape(self.ops[0])

    @property
    def reductions(self) -> dict[Value, tuple[Operation, Reduction]]:
        """The outputs that are reductions, and how each reduces."""
        pairs = ((op, reduction_of(op)) for op in self.ops)
        return {op.outputs[0]: (op, reduction) for op, reduction in pairs if reduction}

    @property
    def inputs(self) -> tuple[Value, ...]:
        return tuple(dict.fromkeys(value for value, _ in self.reads))


def is_fusible(op: Operation) -> bool:
    """Tell whether an operation may be fused into a loop."""
    try:
        element_reads(op)
    except NotLowerable:
        return False
    return True


def may_fuse_producer(op: Operation, value: Value) -> bool:
    """Tell whether an operation may be fused with the producer of a value."""
    return is_fusible(op)


def element_reads(op: Operation) -> list[Read]:
    """Return what an operation reads.

    Raises:
        NotLowerable: it can't be fused into a loop.
    """
    results: list[Read] = []

    def record_read(read: Read) -> str:
        results.append(read)
        return "%x"

    emit_element(op, record_read, ElementBuilder())
    return results


def fuse_operations(
    ops: Sequence[Operation], inputs: Iterable[Value], outputs: Iterable[Value]
) -> list[Operation | FusionGroup]:
    """Return the operations in a valid order, fused into groups."""
    return _Schedule(ops, inputs, outputs).scheduled


class _Schedule:
    def __init__(
        self,
        ops: Sequence[Operation],
        inputs: Iterable[Value],
        outputs: Iterable[Value],
    ) -> None:
        self.scheduled: list[Operation | FusionGroup] = []
        self._inputs = {*inputs}
        self._deferred: dict[Value, Operation] = {}
        """Deferred operations by result, in topological order."""
        self._leaves: dict[Value, frozenset[Value]] = {}
        """The available values that each deferred operation is computed from."""
        self._costs: dict[Value, int] = {}
        self._op_masks: dict[Value, int] = {}
        """The operations of a result, one bit for each."""
        self._bits = {op: 1 << i for i, op in enumerate(ops)}
        self._reads: dict[Operation, list[Read]] = {}
        """The tensors read by operations that may be fused."""
        for op in ops:
            with suppress(NotLowerable):
                self._reads[op] = element_reads(op)
        fusible = self._reads.keys()
        self._materialized = {*outputs}
        """Results that an output, or an operation outside all loops, needs."""
        self._users: dict[Value, set[Operation]] = {}
        self._fusible_users: dict[Value, list[Operation]] = {}
        self._unavailable: dict[Operation, set[Value]] = {}
        produced = {v for op in ops for v in op.outputs}
        for op in ops:
            if op in fusible:
                self._unavailable[op] = produced.intersection(op.inputs)
            else:
                self._materialized.update(op.inputs)
            for v in dict.fromkeys(op.inputs):
                self._users.setdefault(v, set()).add(op)
                if op in fusible:
                    self._fusible_users.setdefault(v, []).append(op)
        ready = [op for op in ops if op in fusible and not self._unavailable[op]]
        for op in ready:
            self._defer(op)
        self._mark_available(op.outputs[0] for op in ready)
        for op in ops:
            if op not in fusible:
                self._flush([v for v in op.inputs if v in self._deferred])
                self.scheduled.append(op)
                self._release_inputs(op)
                self._mark_available(op.outputs)
        self._flush([v for v in self._deferred if v in self._materialized])

    def _release_inputs(self, op: Operation) -> None:
        for v in {*op.inputs}:
            self._users[v].discard(op)

    def _mark_available(self, values: Iterable[Value]) -> None:
        """Defer operations whose arguments all exist once these values do."""
        pending = deque(values)
        while pending:
            value = pending.popleft()
            for op in self._fusible_users.get(value, ()):
                unavailable = self._unavailable[op]
                if value in unavailable:
                    unavailable.discard(value)
                    if not unavailable:
                        self._defer(op)
                        pending.append(op.outputs[0])

    def _defer(self, op: Operation) -> None:
        (out,) = op.outputs
        leaves = frozenset[Value]()
        cost, op_mask = COST[op.operator.name], self._bits[op]
        for v in dict.fromkeys(op.inputs):
            if v in self._deferred:
                leaves |= self._leaves[v]
                cost += self._costs[v]
                op_mask |= self._op_masks[v]
            else:
                leaves |= {v}
        self._deferred[out], self._leaves[out] = op, leaves
        self._costs[out], self._op_masks[out] = cost, op_mask
        is_full = (
            len(leaves - self._inputs) > MAX_LIVE_LEAVES
            or len(leaves) > 2 * MAX_READ_STREAMS
        )
        if is_full or op_mask.bit_count() > MAX_OPS_PER_RESULT or reduction_of(op):
            self._flush([out])  # which frees its terms

    def _is_cheap_to_recompute(self, value: Value) -> bool:
        is_small = (
            self._costs[value] <= MAX_RECOMPUTE_OPS and len(self._leaves[value]) <= 2
        )
        return is_small and not reduction_of(self._deferred[value])

    def _flush(self, values: Sequence[Value]) -> None:
        """Schedule values and what they need, a few outputs at a time."""
        for i in range(0, len(values), MAX_GROUP_OUTPUTS):
            chunk = (
                v for v in values[i : i + MAX_GROUP_OUTPUTS] if v in self._deferred
            )
            if requested := [*dict.fromkeys(chunk)]:
                self._schedule_values(self._add_siblings(requested))

    def _schedule_values(self, requested: Sequence[Value]) -> None:
        ops = self._closure(requested)
        order = [v for v, op in self._deferred.items() if op in ops]
        level_of = self._loop_levels(order)
        materialized = {*requested}
        for v in order:
            users = self._users.get(v, set())
            crosses_loops = any(
                level_of[u.outputs[0]] != level_of[v] for u in users & ops
            )
            later_users = users - ops
            if (
                crosses_loops
                or v in self._materialized
                or (later_users and not self._is_cheap_to_recompute(v))
            ):
                materialized.add(v)
        clusters: dict[tuple[int, Shape], list[Operation]] = {}
        for v in order:
            clusters.setdefault(level_of[v], []).append(self._deferred[v])
        for key in sorted(clusters, key=lambda key: key[0]):
            for component in _connected_components(clusters[key]):
                self._emit_group(component, materialized)
        finished: set[Operation] = set()
        for v in reversed(order):
            if v in materialized or self._users.get(v, set()) <= finished:
                finished.add(self._deferred[v])
        for v in order:
            if self._deferred[v] in finished:
                self._release_inputs(self._deferred.pop(v))

    def _loop_levels(self, order: Sequence[Value]) -> dict[Value, tuple[int, Shape]]:
        """Return the loop that computes each value: the latest possible one."""
        shape = {v: loop_shape(self._deferred[v]) for v in order}
        inputs = {v: [x for x in self._deferred[v].inputs if x in shape] for v in order}

        def needs_other_loop(x: Value, v: Value) -> bool:
            return shape[x] != shape[v] or reduction_of(self._deferred[x]) is not None

        earliest: dict[Value, int] = {}
        for v in order:
            earliest[v] = max(
                (earliest[x] + needs_other_loop(x, v) for x in inputs[v]), default=0
            )
        latest: dict[Value, int] = {}
        for v in reversed(order):
            level = latest.setdefault(v, earliest[v])
            for x in inputs[v]:
                latest[x] = min(latest.get(x, level), level - needs_other_loop(x, v))
        return {v: (latest[v], shape[v]) for v in order}

    def _add_siblings(self, values: list[Value]) -> list[Value]:
        """Add deferred values of the same shape that share reads (siblings)."""
        shapes = {loop_shape(self._deferred[v]) for v in values}
        leaves = frozenset().union(*(self._leaves[v] for v in values))
        limit = len(values) + MAX_SIBLINGS
        for v in self._deferred:
            if len(values) == limit:
                break
            shape = loop_shape(self._deferred[v])
            if v in self._materialized and shape in shapes and v not in values:
                combined = leaves | self._leaves[v]
                common = leaves & self._leaves[v]
                if (
                    any(x.shape == shape for x in common)
                    and len(combined) <= MAX_READ_STREAMS
                ):
                    values.append(v)
                    leaves = combined
        return values

    def _closure(self, values: Iterable[Value]) -> set[Operation]:
        results: set[Operation] = set()
        stack = [*values]
        while stack:
            op = self._deferred.get(stack.pop())
            if op is not None and op not in results:
                results.add(op)
                stack += op.inputs
        return results

    def _emit_group(self, ops: list[Operation], materialized: set[Value]) -> None:
        produced = [op.outputs[0] for op in ops]
        outputs = tuple(v for v in produced if v in materialized)
        needed = {*outputs}
        used = []
        for op in reversed(ops):
            if op.outputs[0] in needed:
                used.append(op)
                needed.update(op.inputs)
        used.reverse()
        reads = (
            read for op in used for read in self._reads[op] if read[0] not in produced
        )
        self.scheduled.append(
            FusionGroup(tuple(used), tuple(dict.fromkeys(reads)), outputs)
        )


def _connected_components(ops: Sequence[Operation]) -> list[list[Operation]]:
    root: dict[Value, Value] = {}

    def find(x: Value) -> Value:
        while root.setdefault(x, x) is not x:
            x = root[x]
        return x

    for op in ops:
        for v in op.inputs:
            root[find(v)] = find(op.outputs[0])
    components: dict[Value, list[Operation]] = {}
    for op in ops:
        components.setdefault(find(op.outputs[0]), []).append(op)
    return [*components.values()]
