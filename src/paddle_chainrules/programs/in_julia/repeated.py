"""Results that are written again wherever they are taken, within loops of Julia's."""

from __future__ import annotations

from ..compiling.program import Program
from ..compiling.repeated import MOST, is_arithmetic, takers_of
from ..tracing.operations import Operation, Value
from .operators.call import ELEMENTWISE


def goes_into(taker: Operation, value: Value) -> bool:
    """Whether an operation's expression has place for one of a value."""
    inner = taker.operator.name in ELEMENTWISE
    return inner and taker.outputs[0].shape == value.shape


class Repeated:
    """Which results of a program are written again wherever they are taken.

    Those are not its outputs, and what takes them has place for an expression.
    """

    def __init__(self, program: Program) -> None:
        self._takers = takers_of(program.ops)
        self._outputs = {*program.outputs}
        self._steps: dict[Value, int] = {}

    def __contains__(self, op: Operation) -> bool:
        """To be asked for each operation in its turn."""
        out = op.outputs[0]
        steps = 1 + sum(self._steps.get(v, 0) for v in op.inputs)
        if not is_arithmetic(op) or steps > MOST:
            return False
        takers = self._takers.get(out, ())
        if out in self._outputs or not takers:
            return False
        if not all(goes_into(taker, out) for taker in takers):
            return False
        self._steps[out] = steps
        return True
