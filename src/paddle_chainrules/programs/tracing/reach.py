"""Dependencies among operations, and the inputs that gradients reach."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .operations import Operation, Value


def computed_of(ops: Sequence[Operation], ends: Iterable[Value]) -> set[Value]:
    """Return the ends and everything that they are computed of."""
    found = {*ends}
    for op in reversed(ops):
        if not found.isdisjoint(op.outputs):
            found.update(op.inputs)
    return found


def inputs_reached(
    ops: Sequence[Operation], inputs: Sequence[Value], outputs: Sequence[Value]
) -> list[set[int]]:
    """Return for each output which inputs its gradient may reach, by position."""
    found: dict[Value, set[int]] = {v: {i} for i, v in enumerate(inputs)}
    for op in ops:
        below = set[int]()
        if op.operator.differentiable != ():
            below = below.union(*(found.get(v, ()) for v in op.inputs))
        for v in op.outputs:
            is_real = v.dtype.startswith(("float", "bfloat", "complex"))
            found[v] = below if is_real else set()
    return [found.get(v, set()) for v in outputs]
