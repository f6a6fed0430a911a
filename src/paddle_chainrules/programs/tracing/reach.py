"""Dependencies among operations, and the inputs that gradients reach."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .operations import Operation, Value


def ancestors_of(ops: Sequence[Operation], outputs: Iterable[Value]) -> set[Value]:
    """Return the outputs and all values that they depend on."""
    results = {*outputs}
    for op in reversed(ops):
        if not results.isdisjoint(op.outputs):
            results.update(op.inputs)
    return results


def inputs_reached(
    ops: Sequence[Operation], inputs: Sequence[Value], outputs: Sequence[Value]
) -> list[set[int]]:
    """Return for each output which inputs its gradient may reach, by position."""
    results: dict[Value, set[int]] = {v: {i} for i, v in enumerate(inputs)}
    for op in ops:
        reached = set[int]()
        if op.operator.differentiable != ():
            reached = reached.union(*(results.get(v, ()) for v in op.inputs))
        for v in op.outputs:
            is_real = v.dtype.startswith(("float", "bfloat", "complex"))
            results[v] = reached if is_real else set()
    return [results.get(v, set()) for v in outputs]
