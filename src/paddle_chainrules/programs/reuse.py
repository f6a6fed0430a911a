"""Results written into memory that nobody needs any more."""

from __future__ import annotations

from collections.abc import Sequence

from .operations import Operation, Value


def memory_of(ops: Sequence[Operation]) -> dict[Value, Value]:
    """Of each value that may be a view, whose memory it may have.

    What takes more memory than its source is none.
    """
    found: dict[Value, Value] = {}
    for op in ops:
        if op.operator.view:
            source = op.inputs[0]
            for out in op.outputs:
                if out.bytes <= source.bytes:
                    found[out] = found.get(source, source)
    return found


def reusable(ops: Sequence[Operation], kept: Sequence[Value]) -> dict[Operation, int]:
    """Which of its arguments an operation may overwrite by its result.

    It is one of the program's own, of the result's shape and dtype, and it and all that
    may share its memory are used for the last time.

    Args:
        kept: inputs, constants and outputs.
    """
    memory = memory_of(ops)
    last: dict[Value, int] = {}
    for i, op in enumerate(ops):
        for value in op.inputs:
            last[memory.get(value, value)] = i
    never = {memory.get(value, value) for value in kept}
    found = {}
    for i, op in enumerate(ops):
        for place in op.operator.in_place:
            value = op.args[place]
            if not isinstance(value, Value):
                continue
            root = memory.get(value, value)
            others = [
                memory.get(v, v)
                for k, v in enumerate(op.args)
                if k != place and isinstance(v, Value)
            ]
            if root in never or last[root] != i or root in others:
                continue
            (out,) = op.outputs
            same = all(v.dtype == out.dtype for v in op.inputs)
            if same and value.shape == out.shape:
                found[op] = place
                break
    return found
