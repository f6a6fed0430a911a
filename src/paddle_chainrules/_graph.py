"""What Paddle's kernels can't do with part of their gradients, read from the graph.

Some of them fail, crash or give wrong numbers where not all of their inputs are
differentiated; docs/paddle-notes.md has the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from paddle import Tensor

DIVISIBLE = frozenset(
    f"{name}GradNode{kind}"
    for kind in ("", "Final")
    for name in (
        *("Add", "AddN", "Subtract", "Multiply", "Divide", "Remainder", "Lerp"),
        *("ElementwisePow", "Maximum", "Minimum", "Fmax", "Atan2", "Where"),
        *("Matmul", "Bmm", "Mv", "Dot", "Einsum", "MultiDot", "Kron", "Bilinear"),
        *("Conv2d", "Conv3d", "DepthwiseConv2d", "Conv2dTranspose", "GroupNorm"),
        *("Concat", "Stack", "IndexAdd", "IndexPut", "PutAlongAxis", "Scatter"),
        *("Dist", "HuberLoss"),
    )
)
"""Operations of several inputs of which any part may be differentiated. All others are
differentiated whole."""

LAYER_NORM = "LayerNormGradNode"


class Graph(NamedTuple):
    """What was found behind some outputs."""

    divisible: bool
    """Whether gradients of only some leaves are right."""
    scales: frozenset[int | None]
    """Leaves that are a LayerNorm's scale, by address; None for a constant one."""


def survey(outputs: Iterable[Tensor]) -> Graph:
    """Walk the graph behind the outputs once."""
    divisible = True
    scales: set[int | None] = set()
    seen: set[int] = set()
    stack: list[Any] = [output.grad_fn for output in outputs]
    while stack:
        node = stack.pop()
        if node is None or (address := node.node_ptr()) in seen:
            continue
        seen.add(address)
        edges, name = node.next_functions, node.name()
        if name not in DIVISIBLE and sum(edge is not None for edge in edges) > 1:
            divisible = False
        if name == LAYER_NORM and len(edges) > 1:
            scale = edges[1]
            if scale is None:
                scales.add(None)
            elif not scale.next_functions or scale.name() == "GradNodeAccumulation":
                scales.add(scale.node_ptr())
        stack += edges
    return Graph(divisible, frozenset(scales))


def check_scales(graph: Graph, leaves: Sequence[Any]) -> None:
    """Refuse a LayerNorm whose scale is none of the leaves.

    Raises:
        NotImplementedError: there is one.
    """
    if graph.scales <= {leaf.grad_fn.node_ptr() for leaf in leaves}:
        return
    raise NotImplementedError(
        "Paddle gives wrong gradients through a LayerNorm (layer_norm_grad, on the "
        "CPU) where its scale is not differentiated too. Make the scale an argument of "
        "the function; stateless(layer) does so for all parameters of a layer"
    )
