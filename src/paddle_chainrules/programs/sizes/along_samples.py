"""Tests whether operations hold for any number of samples.

Counts, windows and factorizations along an axis may be bounded by a size that is not
the number of samples. Two numbers of samples may both be below that bound. So we accept
an operator only where its entry says what it does along axes.
"""

from __future__ import annotations

from collections.abc import Callable

from ..tracing.operations import Operation


def holds_for_any_count(op: Operation, varies: Callable[[int], bool]) -> bool:
    """Tell whether an operation is valid for any number of samples.

    Args:
        varies: tells whether a size varies with the number of samples.
    """
    sizes = [
        [axis for axis, size in enumerate(value.shape) if varies(size)]
        for value in (*op.inputs, *op.outputs)
    ]
    return not any(sizes) or op.operator.axes.is_size_independent(op, sizes, varies)
