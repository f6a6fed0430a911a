"""Whether operations hold for any number of samples.

What counts along an axis, has windows or factorizes there may be bounded by a size that
is not the number of samples, and two numbers may both be below that. So an operator is
let through only where its entry says what it does along axes.
"""

from __future__ import annotations

from collections.abc import Callable

from ..tracing.operations import Operation


def holds(op: Operation, varies: Callable[[int], bool]) -> bool:
    """Whether an operation does the same for any number of samples.

    Args:
        varies: whether a size goes along with the number of samples.
    """
    sizes = [
        [axis for axis, size in enumerate(value.shape) if varies(size)]
        for value in (*op.inputs, *op.outputs)
    ]
    return not any(sizes) or op.operator.axes.serves(op, sizes, varies)
