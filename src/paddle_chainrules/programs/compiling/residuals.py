"""Residuals packed into few tensors, where there are many small ones.

A tensor of Paddle's costs more than the elements of a small one. Machine code computes
what ``concat`` puts together and ``split`` takes apart in its final place.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from typing import Any

from ..codegen.extents import ShapeEnv
from ..codegen.ir_builder import TYPES
from ..operators.table import TABLE
from ..sizes.samples import Samples
from ..tracing.operations import Operation, Value, fresh_numbers, with_values
from .split import ForwardBackward

MAX_PACKED_BYTES = 1 << 15
"""Tensors of this many bytes or more are not packed."""

MIN_PACKED = 3
"""The fewest tensors that are packed together."""


def pack_small_residuals(forward_backward: ForwardBackward) -> ForwardBackward:
    """Return the same, with small residuals packed together."""
    groups, samples = _groups(forward_backward)
    if not groups:
        return forward_backward
    forward, (saved, rest) = (
        forward_backward.forward,
        forward_backward.residuals_and_backward,
    )
    together = _PackedResiduals([*forward.inputs], [*forward.ops, *rest])
    made = {v for op in forward.ops for v in op.outputs}
    for group in groups:
        together.pack(group)
    left = [v for v in saved if v not in together.renamed]
    kept = (*left, *together.blocks)
    held = {saved[i] for i in forward_backward.reachable}
    ops = (*forward.ops, *together.before)
    outputs = (*forward.outputs[: forward_backward.count], *kept)
    return forward_backward.holding(
        replace(forward, ops=ops, outputs=outputs, samples=samples),
        tuple(i for i, v in enumerate(kept) if v in held),
        (*together.after, *together.on_the_way_back(rest, made)),
        kept,
        together.named,
    )


class _PackedResiduals:
    """Groups of values packed into one tensor each.

    Args:
        given: values that exist before.
        ops: all operations.

    Attributes:
        before: operations that put them together.
        after: operations that take them apart.
        blocks: the packed values.
        renamed: by value, what it is in the backward pass.
    """

    def __init__(self, given: Sequence[Value], ops: Sequence[Operation]) -> None:
        self._fresh = fresh_numbers(given, ops)
        self.before: list[Operation] = []
        self.after: list[Operation] = []
        self.blocks: list[Value] = []
        self.renamed: dict[Value, Value] = {}

    def pack(self, group: Sequence[Value]) -> None:
        """Pack one more group."""
        sizes = [math.prod(v.shape) for v in group]
        rows, parts = ([self._row(v) for v in group] for _ in range(2))
        for v, row in zip(group, rows, strict=True):
            self.before.append(_operation("reshape", (v, [*row.shape]), row))
        dtype, size = group[0].dtype, sum(v.bytes for v in group)
        block = Value(next(self._fresh), (sum(sizes),), dtype, size)
        self.before.append(_operation("concat", (rows, 0), block))
        self.blocks.append(block)
        args = TABLE["split"], (block, sizes, 0), tuple(parts)
        self.after.append(Operation(*args, True, ""))
        for v, part in zip(group, parts, strict=True):
            self.renamed[v] = own = self._like(v)
            self.after.append(_operation("reshape", (part, [*v.shape]), own))

    def _row(self, value: Value) -> Value:
        shape = (math.prod(value.shape),)
        return Value(next(self._fresh), shape, value.dtype, value.bytes)

    def _like(self, value: Value) -> Value:
        return Value(next(self._fresh), value.shape, value.dtype, value.bytes)

    def named(self, value: Value) -> Value:
        """Return what a value is in the backward pass."""
        return self.renamed.get(value, value)

    def on_the_way_back(
        self, rest: Iterable[Operation], made: Set[Value]
    ) -> Iterator[Operation]:
        """Give the operations of the backward pass, on the values that exist there.

        Args:
            made: the values of the forward pass, some of which are made again.
        """
        for op in rest:
            again = not made.isdisjoint(op.outputs)
            args = tuple(with_values(arg, self.named) for arg in op.args)
            if again:
                self.renamed.update((v, self._like(v)) for v in op.outputs)
            outputs = tuple(map(self.named, op.outputs)) if again else op.outputs
            yield replace(op, args=args, outputs=outputs)


def _groups(
    forward_backward: ForwardBackward,
) -> tuple[list[list[Value]], Samples | None]:
    """Return what goes together, and which sizes vary with the number of samples then.

    All of a group has one dtype, and either the same number of samples or any number.
    """
    samples = forward_backward.forward.samples
    sizes = ShapeEnv(samples)
    saved, rest = forward_backward.residuals_and_backward
    every = (*forward_backward.forward.ops, *rest)
    made = {
        v for op in forward_backward.forward.ops if _is_plain(op) for v in op.outputs
    }
    made -= {*forward_backward.forward.outputs[: forward_backward.count]}
    held = {*forward_backward.reachable}
    results: dict[Any, list[Value]] = {}
    for i, value in enumerate(saved):
        extent = sizes.product(value.shape)
        if i in held or value not in made or value.dtype not in TYPES:
            continue
        if 0 < value.bytes <= MAX_PACKED_BYTES and extent.power < 2:
            results.setdefault((extent.power, value.dtype), []).append(value)
    groups = [group for group in results.values() if len(group) >= MIN_PACKED]
    if samples is None:
        return groups, None
    values = {v for op in every for v in (*op.inputs, *op.outputs)}
    fixed = {n for v in values for n in v.shape} - samples.varying
    more: set[int] = set()
    fitting = []
    for group in groups:
        own = {math.prod(v.shape) for v in group}
        own.add(sum(math.prod(v.shape) for v in group))
        varies = bool(sizes.product(group[0].shape).power)
        if own.isdisjoint(fixed if varies else samples.varying | more):
            fitting.append(group)
            more |= own if varies else set()
            fixed |= own if not varies else set()
    return fitting, samples._replace(varying=samples.varying | more)


def _is_plain(op: Operation) -> bool:
    return not op.operator.view and not op.operator.random


def _operation(name: str, args: tuple[Any, ...], out: Value) -> Operation:
    return Operation(TABLE[name], args, (out,), False, "")
