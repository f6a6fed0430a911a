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
from ...paddle_side.listener import local, not_listening, thread_mode


class single_use_captures(thread_mode):
    """A context in which captures make programs that serve one call alone."""

    name = "single_use"

    def __init__(self, flag: bool = True) -> None:
        self.value = flag


def is_single_use() -> bool:
    """Tell whether captures of this thread serve one call alone."""
    return local.single_use


class undecomposed_operators(thread_mode):
    """A context in which captures keep Paddle's operators whole."""

    name, value = "whole", True


def keeps_operators_whole() -> bool:
    """Tell whether captures of this thread keep operators whole."""
    return local.whole


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
