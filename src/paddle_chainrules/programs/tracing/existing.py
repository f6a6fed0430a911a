"""Tensors of an existing graph, for programs that serve one call alone.

A kept program would go on with the tensors of its first call. A program for a single
call may use the tensors that its function closes over, whatever graph they belong to.
It may not use what an unknown operator has computed inside from apparent constants.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.autograd.engine import gradients
from ...paddle_side.autograd.running import is_running
from ...paddle_side.listener import is_single_use, not_listening


def is_usable_from_outside(tensor: Tensor, own_tensors: Iterable[Any]) -> bool:
    """Tell whether a tensor of an existing graph may be used.

    No leaf among ``own_tensors``, which the function has created, is in its graph.
    """
    if not is_single_use() or is_running():
        return False
    with not_listening():
        leaves = {
            id(t): t
            for t in own_tensors
            if isinstance(t, Tensor) and t.is_leaf and not t.stop_gradient
        }
        if not leaves:
            return True
        seed = paddle.zeros_like(tensor)
        results = gradients([tensor], [*leaves.values()], [seed], False)
        return all(grad is None for grad in results)
