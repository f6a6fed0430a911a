"""Results written into memory that nobody needs any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..tracing.operations import Operation, Value


def alias_roots(ops: Sequence[Operation]) -> dict[Value, Value]:
    """Return for each value that may be a view the value whose memory it may share.

    A copy that takes more memory than its source is not a view.
    """
    roots: dict[Value, Value] = {}
    for op in ops:
        if op.operator.view:
            source, copies = op.inputs[0], op.operator.name in COPYING_VIEWS
            for out in op.outputs:
                if not copies or out.bytes <= source.bytes:
                    roots[out] = roots.get(source, source)
    return roots


class BufferReuse:
    """The arguments that operations may overwrite with their results.

    They are intermediate values, with the result's shape and dtype. They and everything
    that may share their memory are used for the last time.

    Args:
        protected: inputs, constants and outputs, which are not overwritten.
    """

    def __init__(self, ops: Sequence[Operation], protected: Sequence[Value]) -> None:
        self._ops, self._alias_roots = ops, alias_roots(ops)
        self._last_use: dict[Value, Operation] = {}
        for op in ops:
            for value in op.inputs:
                self._last_use[self._root(value)] = op
        overlapping = [op.inputs[0] for op in ops if op.operator.name in OVERLAPPING]
        self._protected_roots = {self._root(v) for v in (*protected, *overlapping)}

    def _root(self, value: Value) -> Value:
        return self._alias_roots.get(value, value)

    def _is_free(self, op: Operation, arg_index: int) -> bool:
        roots = [self._root(v) for v in op.args if isinstance(v, Value)]
        root = self._root(op.args[arg_index])
        is_last_use = self._last_use[root] is op and roots.count(root) == 1
        return is_last_use and root not in self._protected_roots

    def overwritten_args(self) -> dict[Operation, int]:
        """Return by operation the index of the argument that its result overwrites."""
        results = {}
        for op in self._ops:
            for arg_index in op.operator.in_place:
                value = op.args[arg_index]
                if not isinstance(value, Value) or not self._is_free(op, arg_index):
                    continue
                (out,) = op.outputs
                same = all(v.dtype == out.dtype for v in op.inputs)
                if same and value.shape == out.shape:
                    results[op] = arg_index
                    break
        return results


ORDERED_VIEWS = frozenset(
    {"reshape", "flatten", "squeeze", "unsqueeze", "Tensor.detach"}
)
"""Views of all elements in their order. They copy a tensor that has gaps."""

COPYING_VIEWS = frozenset(
    {
        *("split", "split_with_num", "unstack", "expand", "tile", "cast"),
        *("real", "imag"),
    }
)
"""Operators that may share memory according to Paddle, but whose kernels copy."""

OVERLAPPING = frozenset({"as_strided", "tensor_unfold"})
"""Views in which elements may share memory, so that a write changes several."""


def peak_memory(
    ops: Sequence[Operation],
    live_ins: Sequence[Value],
    outputs: Sequence[Value],
    reused: Mapping[Operation, int],
) -> int:
    """Return the most bytes of results that are live at a time.

    Args:
        live_ins: inputs and constants, which exist before.
        outputs: the values that stay live.
        reused: by operation, the index of the argument that the result overwrites.
    """
    root: dict[Value, Value] = {}  # for each view or reuse, the value it lies in
    has_gaps: set[Value] = set()
    for op in ops:
        source_buffer = op.args[reused[op]] if op in reused else None
        if (
            source_buffer is None
            and op.operator.view
            and op.operator.name not in COPYING_VIEWS
        ):
            source = op.inputs[0]
            if op.operator.name not in ORDERED_VIEWS:
                source_buffer = source
                has_gaps.update(op.outputs)
            elif source not in has_gaps:
                source_buffer = source
        if source_buffer is not None:
            root.update(
                dict.fromkeys(op.outputs, root.get(source_buffer, source_buffer))
            )
    last_use: dict[Value, Operation] = {}
    for op in ops:
        last_use.update((root.get(v, v), op) for v in (*op.inputs, *op.outputs))
    persistent = {root.get(v, v) for v in (*live_ins, *outputs)}
    live_bytes = retained_bytes = peak = 0
    for op in ops:
        live_bytes += sum(v.bytes for v in op.outputs if v not in root)
        retained_bytes = max(retained_bytes, op.operator.left_bytes)
        peak = max(peak, live_bytes + max(retained_bytes, op.operator.work_bytes))
        touched = {root.get(v, v) for v in (*op.inputs, *op.outputs)} - persistent
        live_bytes -= sum(v.bytes for v in touched if last_use[v] is op)
    return peak
