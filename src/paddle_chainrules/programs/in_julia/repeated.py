"""Results inlined into each use, within Julia's loops."""

from __future__ import annotations

from ..compiling.program import Program
from ..compiling.rematerialize import MAX_REPEATED_OPS, is_arithmetic, users_of
from ..tracing.operations import Operation, Value
from .operators.call import ELEMENTWISE


def can_inline(taker: Operation, value: Value) -> bool:
    """Tell whether a value's expression can be inlined into that of an operation."""
    inner = taker.operator.name in ELEMENTWISE
    return inner and taker.outputs[0].shape == value.shape


class InlinedResults:
    """The results of a program that are inlined into each use.

    They are not its outputs, and the operations that use them have room for an
    expression.
    """

    def __init__(self, program: Program) -> None:
        self._takers = users_of(program.ops)
        self._outputs = {*program.outputs}
        self._num_operations: dict[Value, int] = {}

    def __contains__(self, op: Operation) -> bool:
        """Tell whether an operation is one of them. Ask for each operation in order."""
        out = op.outputs[0]
        steps = 1 + sum(self._num_operations.get(v, 0) for v in op.inputs)
        if not is_arithmetic(op) or steps > MAX_REPEATED_OPS:
            return False
        takers = self._takers.get(out, ())
        if out in self._outputs or not takers:
            return False
        if not all(can_inline(taker, out) for taker in takers):
            return False
        self._num_operations[out] = steps
        return True
