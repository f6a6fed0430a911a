"""Which inputs of operations gradients come to."""

from __future__ import annotations

from collections.abc import Sequence

from .operations import Operation, Value


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
