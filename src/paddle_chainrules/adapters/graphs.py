"""The nodes of graphs that Paddle records."""

from __future__ import annotations

from collections.abc import Sequence

from paddle import Tensor

from ..paddle_side.autograd.partial_gradients import node_of, nodes


def depend(tensors: Sequence[Tensor]) -> bool:
    """Tell whether one of the tensors is computed from another."""
    tensor_nodes = [node_of(t) for t in tensors if not t.stop_gradient]
    addresses = {node.node_ptr() for node in tensor_nodes}
    return any(
        ancestor.node_ptr() in addresses
        for node in tensor_nodes
        for ancestor in nodes(node.next_functions)
    )


def is_behind(tensors: Sequence[Tensor], y: Tensor) -> bool:
    """Tell whether one of the tensors is in the graph of ``y``, or is ``y`` itself."""
    if y.stop_gradient:
        return False
    addresses = {node_of(t).node_ptr() for t in tensors if not t.stop_gradient}
    return any(node.node_ptr() in addresses for node in nodes([node_of(y)]))
