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
    """Pack small residuals into few tensors."""
    groups, samples = _packable_groups(forward_backward)
    if not groups:
        return forward_backward
    forward, (residuals, backward_ops) = (
        forward_backward.forward,
        forward_backward.residuals_and_backward,
    )
    packer = _PackedResiduals([*forward.inputs], [*forward.ops, *backward_ops])
    forward_values = {v for op in forward.ops for v in op.outputs}
    for group in groups:
        packer.pack(group)
    unpacked = [v for v in residuals if v not in packer.backward_values]
    new_residuals = (*unpacked, *packer.packed)
    shared = {residuals[i] for i in forward_backward.reachable}
    ops = (*forward.ops, *packer.packing_ops)
    outputs = (*forward.outputs[: forward_backward.count], *new_residuals)
    return forward_backward.with_residuals(
        replace(forward, ops=ops, outputs=outputs, samples=samples),
        tuple(i for i, v in enumerate(new_residuals) if v in shared),
        (*packer.unpacking_ops, *packer.backward_ops(backward_ops, forward_values)),
        new_residuals,
        packer.backward_value,
    )


class _PackedResiduals:
    """Groups of values packed into one tensor each.

    Args:
        live_ins: values defined before the operations.
        ops: all operations.

    Attributes:
        packing_ops: operations that concatenate the values of a group.
        unpacking_ops: operations that split them again.
        packed: the packed values.
        backward_values: by value, the value that replaces it in the backward pass.
    """

    def __init__(self, live_ins: Sequence[Value], ops: Sequence[Operation]) -> None:
        self._fresh = fresh_numbers(live_ins, ops)
        self.packing_ops: list[Operation] = []
        self.unpacking_ops: list[Operation] = []
        self.packed: list[Value] = []
        self.backward_values: dict[Value, Value] = {}

    def pack(self, group: Sequence[Value]) -> None:
        """Pack one more group."""
        sizes = [math.prod(v.shape) for v in group]
        flat_values, pieces = ([self._flat_value(v) for v in group] for _ in range(2))
        for v, flat_value in zip(group, flat_values, strict=True):
            self.packing_ops.append(
                _single_output_op("reshape", (v, [*flat_value.shape]), flat_value)
            )
        dtype, byte_count = group[0].dtype, sum(v.bytes for v in group)
        packed = Value(next(self._fresh), (sum(sizes),), dtype, byte_count)
        self.packing_ops.append(_single_output_op("concat", (flat_values, 0), packed))
        self.packed.append(packed)
        args = TABLE["split"], (packed, sizes, 0), tuple(pieces)
        self.unpacking_ops.append(Operation(*args, True, ""))
        for v, piece in zip(group, pieces, strict=True):
            self.backward_values[v] = restored = self._copy_value(v)
            self.unpacking_ops.append(
                _single_output_op("reshape", (piece, [*v.shape]), restored)
            )

    def _flat_value(self, value: Value) -> Value:
        shape = (math.prod(value.shape),)
        return Value(next(self._fresh), shape, value.dtype, value.bytes)

    def _copy_value(self, value: Value) -> Value:
        return Value(next(self._fresh), value.shape, value.dtype, value.bytes)

    def backward_value(self, value: Value) -> Value:
        """Return the value that replaces a value in the backward pass."""
        return self.backward_values.get(value, value)

    def backward_ops(
        self, ops: Iterable[Operation], forward_values: Set[Value]
    ) -> Iterator[Operation]:
        """Yield the operations of the backward pass, on the values that exist in it.

        Args:
            forward_values: values of the forward pass, some of which are recomputed.
        """
        for op in ops:
            is_recomputed = not forward_values.isdisjoint(op.outputs)
            args = tuple(with_values(arg, self.backward_value) for arg in op.args)
            if is_recomputed:
                self.backward_values.update(
                    (v, self._copy_value(v)) for v in op.outputs
                )
            outputs = (
                tuple(map(self.backward_value, op.outputs))
                if is_recomputed
                else op.outputs
            )
            yield replace(op, args=args, outputs=outputs)


def _packable_groups(
    forward_backward: ForwardBackward,
) -> tuple[list[list[Value]], Samples | None]:
    """Return groups of residuals to pack, and the sizes that vary with the samples.

    A group has one dtype, and either all of its sizes vary with the number of samples
    or none.
    """
    samples = forward_backward.forward.samples
    shape_env = ShapeEnv(samples)
    residuals, backward_ops = forward_backward.residuals_and_backward
    all_ops = (*forward_backward.forward.ops, *backward_ops)
    computed = {
        v for op in forward_backward.forward.ops if _is_plain(op) for v in op.outputs
    }
    computed -= {*forward_backward.forward.outputs[: forward_backward.count]}
    shared = {*forward_backward.reachable}
    by_kind: dict[Any, list[Value]] = {}
    for i, value in enumerate(residuals):
        extent = shape_env.product(value.shape)
        if i in shared or value not in computed or value.dtype not in TYPES:
            continue
        if 0 < value.bytes <= MAX_PACKED_BYTES and extent.power < 2:
            by_kind.setdefault((extent.power, value.dtype), []).append(value)
    groups = [group for group in by_kind.values() if len(group) >= MIN_PACKED]
    if samples is None:
        return groups, None
    values = {v for op in all_ops for v in (*op.inputs, *op.outputs)}
    fixed = {n for v in values for n in v.shape} - samples.varying
    new_varying: set[int] = set()
    accepted = []
    for group in groups:
        group_sizes = {math.prod(v.shape) for v in group}
        group_sizes.add(sum(math.prod(v.shape) for v in group))
        varies = bool(shape_env.product(group[0].shape).power)
        if group_sizes.isdisjoint(fixed if varies else samples.varying | new_varying):
            accepted.append(group)
            new_varying |= group_sizes if varies else set()
            fixed |= group_sizes if not varies else set()
    return accepted, samples._replace(varying=samples.varying | new_varying)


def _is_plain(op: Operation) -> bool:
    return not op.operator.view and not op.operator.random


def _single_output_op(name: str, args: tuple[Any, ...], out: Value) -> Operation:
    return Operation(TABLE[name], args, (out,), False, "")
