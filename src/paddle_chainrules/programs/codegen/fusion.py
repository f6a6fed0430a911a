"""Grouping of a program's operations into loops.

An elementwise operation waits from when its arguments exist until something else needs
its result. Then it goes into one loop with all that it needs, and with other needed
operations that read the same. Cheap results are computed again in a later loop and not
kept: the time of a loop is that of its memory accesses.
"""

from __future__ import annotations

import math
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

LEAVES = 4
"""The most tensors that a waiting operation may keep from being freed."""

STREAMS = 16
"""The most tensors that a loop reads, where it has a choice."""

SIZE = 128
"""The most operations of a result in a loop. With more, LLVM takes much longer."""

OUTPUTS = 8
"""The most results of a loop that something needs."""

JOINED = 3
"""The most results that are made before they are needed, and take memory until then."""

STEPS = 6
"""The most operations that are repeated so that their result is not kept."""

LONG = 16384
"""The number of elements below which calls cost more than memory."""


class FusionGroup(NamedTuple):
    """Operations on elements of tensors of one shape, and sums or maxima of these.

    Attributes:
        reads: tensors from elsewhere, each to be broadcast to that shape.
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
        return {op.outputs[0]: (op, attrs) for op, attrs in pairs if attrs}

    @property
    def inputs(self) -> tuple[Value, ...]:
        return tuple(dict.fromkeys(value for value, _ in self.reads))


def may_loop(op: Operation) -> bool:
    """Tell whether an operation may be part of a loop."""
    try:
        reads_of(op)
    except NotLowerable:
        return False
    return True


def is_long(op: Operation) -> bool:
    """Tell whether an operation is faster in a loop than in a larger operator."""
    return may_loop(op) and math.prod(loop_shape(op)) >= LONG


def goes_into(op: Operation, value: Value) -> bool:
    """Tell whether an operation may share a loop with the one that gives it a value."""
    return may_loop(op)


def reads_of(op: Operation) -> list[Read]:
    """Return what an operation reads.

    Raises:
        NotLowerable: it can't be part of a loop.
    """
    results: list[Read] = []

    def name(read: Read) -> str:
        results.append(read)
        return "%x"

    emit_element(op, name, ElementBuilder())
    return results


def grouped(
    ops: Sequence[Operation], given: Iterable[Value], outputs: Iterable[Value]
) -> list[Operation | FusionGroup]:
    """Return the operations in an order that can run, grouped where they wait."""
    return _Schedule(ops, given, outputs).found


class _Schedule:
    def __init__(
        self,
        ops: Sequence[Operation],
        given: Iterable[Value],
        outputs: Iterable[Value],
    ) -> None:
        self.found: list[Operation | FusionGroup] = []
        self._given = {*given}
        self._waiting: dict[Value, Operation] = {}
        """Waiting operations by result, each after those that it needs."""
        self._leaves: dict[Value, frozenset[Value]] = {}
        """The values that each waiting operation is computed from."""
        self._steps: dict[Value, int] = {}
        self._parts: dict[Value, int] = {}
        """The operations of a result, one bit for each."""
        self._bits = {op: 1 << i for i, op in enumerate(ops)}
        self._reads: dict[Operation, list[Read]] = {}
        """The tensors read by operations that may be part of a loop."""
        for op in ops:
            with suppress(NotLowerable):
                self._reads[op] = reads_of(op)
        looped = self._reads.keys()
        self._kept = {*outputs}
        """Results that something outside all loops needs."""
        self._users: dict[Value, set[Operation]] = {}
        self._takers: dict[Value, list[Operation]] = {}
        self._missing: dict[Operation, set[Value]] = {}
        made = {v for op in ops for v in op.outputs}
        for op in ops:
            if op in looped:
                self._missing[op] = made.intersection(op.inputs)
            else:
                self._kept.update(op.inputs)
            for v in dict.fromkeys(op.inputs):
                self._users.setdefault(v, set()).add(op)
                if op in looped:
                    self._takers.setdefault(v, []).append(op)
        ready = [op for op in ops if op in looped and not self._missing[op]]
        for op in ready:
            self._wait(op)
        self._arrived(op.outputs[0] for op in ready)
        for op in ops:
            if op not in looped:
                self._flush([v for v in op.inputs if v in self._waiting])
                self.found.append(op)
                self._done(op)
                self._arrived(op.outputs)
        self._flush([v for v in self._waiting if v in self._kept])

    def _done(self, op: Operation) -> None:
        for v in {*op.inputs}:
            self._users[v].discard(op)

    def _arrived(self, values: Iterable[Value]) -> None:
        """Let operations wait whose arguments all exist now, these among them."""
        new = deque(values)
        while new:
            value = new.popleft()
            for op in self._takers.get(value, ()):
                missing = self._missing[op]
                if value in missing:
                    missing.discard(value)
                    if not missing:
                        self._wait(op)
                        new.append(op.outputs[0])

    def _wait(self, op: Operation) -> None:
        (out,) = op.outputs
        leaves = frozenset[Value]()
        steps, parts = COST[op.operator.name], self._bits[op]
        for v in dict.fromkeys(op.inputs):
            if v in self._waiting:
                leaves |= self._leaves[v]
                steps += self._steps[v]
                parts |= self._parts[v]
            else:
                leaves |= {v}
        self._waiting[out], self._leaves[out] = op, leaves
        self._steps[out], self._parts[out] = steps, parts
        is_full = len(leaves - self._given) > LEAVES or len(leaves) > 2 * STREAMS
        if is_full or parts.bit_count() > SIZE or reduction_of(op):
            self._flush([out])  # which frees its terms

    def _is_cheap(self, value: Value) -> bool:
        few = self._steps[value] <= STEPS and len(self._leaves[value]) <= 2
        return few and not reduction_of(self._waiting[value])

    def _flush(self, values: Sequence[Value]) -> None:
        """Compute these and what they need, some at a time."""
        for i in range(0, len(values), OUTPUTS):
            some = (v for v in values[i : i + OUTPUTS] if v in self._waiting)
            if wanted := [*dict.fromkeys(some)]:
                self._compute(self._with_others(wanted))

    def _compute(self, wanted: Sequence[Value]) -> None:
        ops = self._closure(wanted)
        order = [v for v, op in self._waiting.items() if op in ops]
        place = self._places(order)
        kept = {*wanted}
        for v in order:
            users = self._users.get(v, set())
            across = any(place[u.outputs[0]] != place[v] for u in users & ops)
            later = users - ops
            if across or v in self._kept or (later and not self._is_cheap(v)):
                kept.add(v)
        clusters: dict[tuple[int, Shape], list[Operation]] = {}
        for v in order:
            clusters.setdefault(place[v], []).append(self._waiting[v])
        for key in sorted(clusters, key=lambda key: key[0]):
            for part in _connected(clusters[key]):
                self._emit(part, kept)
        gone: set[Operation] = set()
        for v in reversed(order):
            if v in kept or self._users.get(v, set()) <= gone:
                gone.add(self._waiting[v])
        for v in order:
            if self._waiting[v] in gone:
                self._done(self._waiting.pop(v))

    def _places(self, order: Sequence[Value]) -> dict[Value, tuple[int, Shape]]:
        """Return the loop in which each is computed: the last possible one."""
        shape = {v: loop_shape(self._waiting[v]) for v in order}
        inputs = {v: [x for x in self._waiting[v].inputs if x in shape] for v in order}

        def apart(x: Value, v: Value) -> bool:
            return shape[x] != shape[v] or reduction_of(self._waiting[x]) is not None

        stage: dict[Value, int] = {}
        for v in order:
            stage[v] = max((stage[x] + apart(x, v) for x in inputs[v]), default=0)
        last: dict[Value, int] = {}
        for v in reversed(order):
            here = last.setdefault(v, stage[v])
            for x in inputs[v]:
                last[x] = min(last.get(x, here), here - apart(x, v))
        return {v: (last[v], shape[v]) for v in order}

    def _with_others(self, values: list[Value]) -> list[Value]:
        """Add other needed values that have their shape and read the same."""
        shapes = {loop_shape(self._waiting[v]) for v in values}
        leaves = frozenset().union(*(self._leaves[v] for v in values))
        most = len(values) + JOINED
        for v in self._waiting:
            if len(values) == most:
                break
            shape = loop_shape(self._waiting[v])
            if v in self._kept and shape in shapes and v not in values:
                both = leaves | self._leaves[v]
                shared = leaves & self._leaves[v]
                if any(x.shape == shape for x in shared) and len(both) <= STREAMS:
                    values.append(v)
                    leaves = both
        return values

    def _closure(self, values: Iterable[Value]) -> set[Operation]:
        results: set[Operation] = set()
        stack = [*values]
        while stack:
            op = self._waiting.get(stack.pop())
            if op is not None and op not in results:
                results.add(op)
                stack += op.inputs
        return results

    def _emit(self, ops: list[Operation], kept: set[Value]) -> None:
        made = [op.outputs[0] for op in ops]
        outputs = tuple(v for v in made if v in kept)
        needed = {*outputs}
        used = []
        for op in reversed(ops):
            if op.outputs[0] in needed:
                used.append(op)
                needed.update(op.inputs)
        used.reverse()
        reads = (read for op in used for read in self._reads[op] if read[0] not in made)
        self.found.append(
            FusionGroup(tuple(used), tuple(dict.fromkeys(reads)), outputs)
        )


def _connected(ops: Sequence[Operation]) -> list[list[Operation]]:
    """Return parts that have no value in common."""
    root: dict[Value, Value] = {}

    def find(x: Value) -> Value:
        while root.setdefault(x, x) is not x:
            x = root[x]
        return x

    for op in ops:
        for v in op.inputs:
            root[find(v)] = find(op.outputs[0])
    parts: dict[Value, list[Operation]] = {}
    for op in ops:
        parts.setdefault(find(op.outputs[0]), []).append(op)
    return [*parts.values()]
