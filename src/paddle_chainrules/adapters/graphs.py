"""The nodes of graphs that Paddle records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from paddle import Tensor

from ..paddle_side.partial_gradients import node_of


def nodes(
    roots: Iterable[Any], is_end: Callable[[Any], bool] = lambda node: False
) -> Iterator[Any]:
    """Each node once; nothing behind those that are ends."""
    seen: set[int] = set()
    pending = [*roots]
    while pending:
        node = pending.pop()
        if node is None or (address := node.node_ptr()) in seen:
            continue
        seen.add(address)
        yield node
        if not is_end(node):
            pending += node.next_functions


def depend(tensors: Sequence[Tensor]) -> bool:
    """Whether one of them is computed of another."""
    own = [node_of(t) for t in tensors if not t.stop_gradient]
    addresses = {node.node_ptr() for node in own}
    return any(
        behind.node_ptr() in addresses
        for node in own
        for behind in nodes(node.next_functions)
    )


def is_behind(tensors: Sequence[Tensor], y: Tensor) -> bool:
    """Whether one of them is in the graph of another, or is itself."""
    if y.stop_gradient:
        return False
    own = {node_of(t).node_ptr() for t in tensors if not t.stop_gradient}
    return any(node.node_ptr() in own for node in nodes([node_of(y)]))
