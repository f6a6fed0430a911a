"""Results written into memory that nobody needs any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..tracing.operations import Operation, Value


def memory_of(ops: Sequence[Operation]) -> dict[Value, Value]:
    """Return for each value that may be a view the value whose memory it may share.

    A value that takes more memory than its source is not a view.
    """
    results: dict[Value, Value] = {}
    for op in ops:
        if op.operator.view:
            source = op.inputs[0]
            for out in op.outputs:
                if out.bytes <= source.bytes:
                    results[out] = results.get(source, source)
    return results


class BufferReuse:
    """The arguments that operations may overwrite with their results.

    They are the program's own, with the result's shape and dtype. They and everything
    that may share their memory are used for the last time.

    Args:
        kept: inputs, constants and outputs.
    """

    def __init__(self, ops: Sequence[Operation], kept: Sequence[Value]) -> None:
        self._ops, self._memory = ops, memory_of(ops)
        self._last: dict[Value, Operation] = {}
        for op in ops:
            for value in op.inputs:
                self._last[self._root(value)] = op
        self._never = {self._root(value) for value in kept}

    def _root(self, value: Value) -> Value:
        return self._memory.get(value, value)

    def _is_free(self, op: Operation, place: int) -> bool:
        roots = [self._root(v) for v in op.args if isinstance(v, Value)]
        root = self._root(op.args[place])
        ends_here = self._last[root] is op and roots.count(root) == 1
        return ends_here and root not in self._never

    def of_operators(self) -> dict[Operation, int]:
        """Return the argument, by place, that an operator's result is written into."""
        results = {}
        for op in self._ops:
            for place in op.operator.in_place:
                value = op.args[place]
                if not isinstance(value, Value) or not self._is_free(op, place):
                    continue
                (out,) = op.outputs
                same = all(v.dtype == out.dtype for v in op.inputs)
                if same and value.shape == out.shape:
                    results[op] = place
                    break
        return results


IN_ORDER = frozenset({"reshape", "flatten", "squeeze", "unsqueeze", "Tensor.detach"})
"""Views of all elements in their order. They copy a tensor that has gaps."""

COPIES = frozenset(
    {
        *("split", "split_with_num", "unstack", "expand", "tile", "cast"),
        *("real", "imag"),
    }
)
"""Operators that may share memory according to Paddle, but whose kernels copy."""


def most_bytes(
    ops: Sequence[Operation],
    given: Sequence[Value],
    outputs: Sequence[Value],
    reused: Mapping[Operation, int],
) -> int:
    """Return the most bytes that operations have made at a time, one after another.

    Args:
        given: inputs and constants, which exist before.
        outputs: the values that stay.
        reused: by operation, the place of the argument that the result is written into.
    """
    root: dict[Value, Value] = {}  # of each value, in whose memory it is
    has_gaps: set[Value] = set()
    for op in ops:
        into = op.args[reused[op]] if op in reused else None
        if into is None and op.operator.view and op.operator.name not in COPIES:
            source = op.inputs[0]
            if op.operator.name not in IN_ORDER:
                into = source
                has_gaps.update(op.outputs)
            elif source not in has_gaps:
                into = source
        if into is not None:
            root.update(dict.fromkeys(op.outputs, root.get(into, into)))
    last: dict[Value, Operation] = {}
    for op in ops:
        last.update((root.get(v, v), op) for v in (*op.inputs, *op.outputs))
    stays = {root.get(v, v) for v in (*given, *outputs)}
    now = left = most = 0
    for op in ops:
        now += sum(v.bytes for v in op.outputs if v not in root)
        left = max(left, op.operator.left_bytes)
        most = max(most, now + max(left, op.operator.work_bytes))
        ends = {root.get(v, v) for v in (*op.inputs, *op.outputs)} - stays
        now -= sum(v.bytes for v in ends if last[v] is op)
    return most
