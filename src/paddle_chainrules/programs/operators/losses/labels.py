"""Classes by their numbers."""

from __future__ import annotations

import paddle
from paddle import Tensor

from ..manipulation.putting import masked
from ..shared import ops, shaped_as


def classes(label: Tensor, there: Tensor, count: int) -> Tensor:
    """Labels below a number of classes, 0 where there is none.

    They are looked up, so that one that is no class is out of range, for derivatives
    too, which would do without; below zero it would count from the end otherwise.
    """
    label = ops.cast(masked(label, there), paddle.int64)
    label = ops.where(label < 0, paddle.full_like(label, count), label)
    every = paddle.arange(count, dtype="int64")
    return shaped_as(ops.gather(every, ops.reshape(label, [-1]), 0), label)
