"""Graphs that ``backward`` walks more than once, which programs on them don't survive.

Paddle's nodes of Python lose what they need at the first ``backward``, retained or not,
and the next one ends the process (docs/paddle-notes.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import paddle

from ..transforms.program_nodes import NODE_NAME

WHY = "backward(retain_graph=True) goes back through a graph more than once"


class Retained:
    """Sees to calls of ``Tensor.backward`` within a context.

    Args:
        tell: is called, with the reason, when a graph is to be retained.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._roots: deque[Any] = deque(maxlen=64)
        self._retains = False

    def backward(self, native: Callable[..., Any]) -> Callable[..., Any]:
        """``Tensor.backward``, with an error where there would be a crash."""

        def backward(
            tensor: paddle.Tensor,
            grad_tensor: Any = None,
            retain_graph: bool = False,
            **kwargs: Any,
        ) -> Any:
            if self._retains or self._roots:
                self._check(tensor.grad_fn)
            if retain_graph and not self._retains:
                self._retains = True
                self._tell(WHY)
            found = native(tensor, grad_tensor, retain_graph, **kwargs)
            self._roots.append(tensor.grad_fn)
            return found

        return backward

    def called(self) -> None:
        """A net has run, and what comes next is another graph."""
        if not self._retains:
            self._roots.clear()

    def _check(self, root: Any) -> None:
        gone = {node for before in self._roots for node in _nodes(before)}
        if gone & _nodes(root):
            raise RuntimeError(
                "backward was called for a graph with a net's program for the second "
                "time, and Paddle keeps such a graph for one alone; add the losses up "
                "and call backward once, use paddle.grad(..., retain_graph=True), or "
                "leave the context of taylor_mode"
            )


def _nodes(root: Any) -> set[int]:
    """The programs in a graph."""
    found: set[int] = set()
    seen: set[int] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if node is None or node.node_ptr() in seen:
            continue
        seen.add(node.node_ptr())
        if node.name() == NODE_NAME:
            found.add(node.node_ptr())
        else:
            pending += node.next_functions
    return found
