"""Elements of a tensor by their index in the flattened tensor."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ..shared import ops


def flat_indices(x: Tensor, dtype: Any = "int64") -> Tensor:
    """Return the index of every element, in the tensor's shape."""
    return ops.reshape(paddle.arange(x.size, dtype=dtype), x.shape)


def flat_gather_gradient(x: Tensor, indices: Tensor, g: Tensor) -> Tensor:
    """Return the gradient of a tensor from which others were taken by these indices."""
    zeros = ops.reshape(paddle.zeros_like(x), [-1])
    row = [ops.reshape(indices, [-1])], ops.reshape(g, [-1])
    return ops.reshape(ops.index_put(zeros, *row, True), x.shape)
