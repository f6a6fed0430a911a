"""Classes as integers."""

from __future__ import annotations

import paddle
from paddle import Tensor

from ..manipulation.scattering import masked
from ..shared import ops, shaped_as


def checked_classes(label: Tensor, is_valid: Tensor, count: int) -> Tensor:
    """Return labels below a number of classes, 0 where they are not valid.

    The labels are looked up, so that an invalid class is out of range. Derivatives
    would not notice it otherwise, and one below zero would count from the end.
    """
    label = ops.cast(masked(label, is_valid), paddle.int64)
    label = ops.where(label < 0, paddle.full_like(label, count), label)
    all_classes = paddle.arange(count, dtype="int64")
    return shaped_as(ops.gather(all_classes, ops.reshape(label, [-1]), 0), label)
