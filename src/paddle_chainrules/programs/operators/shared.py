"""What several families need."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
from paddle import Tensor

ops: Any = paddle._C_ops


def single(number: float) -> float:
    """As Paddle's kernels take it, which round it to float32 for any dtype."""
    return float(np.float32(number))


def summed_to(g: Tensor, like: Tensor) -> Tensor:
    """The sum of a gradient over what a tensor was repeated along, of its shape."""
    if g.shape == like.shape:
        return g
    return ops.add_grad(g, like, g, -1)[1]
