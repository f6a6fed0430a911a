"""Kernels of Paddle that fail with part of their gradients, read from the graph.

Some of them fail, crash or give wrong values if not all of their inputs are
differentiated; docs/paddle-notes.md has the list. :mod:`..rules` mends most of it where
the operators are called. This module handles what only the graph tells.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from .grad_mode import grad_mode

PROGRAM = "GradNodePyLayer__Node"
"""Paddle's name for one of our programs in a graph."""

DIVISIBLE = {PROGRAM} | frozenset(
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

FATAL = {"DivideDoubleGradNode"} | frozenset(
    f"{name}GradNode"
    for name in (
        *("BroadcastTensors", "CholeskySolve", "Cross", "DeformableConv", "GridSample"),
        *(
            "HsigmoidLoss",
            "LuUnpack",
            "Meshgrid",
            "MultiDot",
            "Qr",
            "Rnn",
            "SendUeRecv",
        ),
        *("SendUv", "Solve", "Unstack"),
    )
)
"""Operations that end the process if part of their gradients is not computed."""


class Graph(NamedTuple):
    """Facts about the graph between some outputs and the leaves they depend on."""

    divisible: bool
    """True if gradients of only some leaves are right."""
    nodes: int
    """Number of its nodes, without the leaves."""


def survey(outputs: Iterable[Tensor], leaves: Sequence[Tensor]) -> Graph:
    """Walk the graph from the outputs down to the leaves once."""
    divisible = True
    starts = [node_of(leaf).node_ptr() for leaf in leaves]
    seen: dict[int, list[Any]] = {start: [] for start in starts}
    stack: list[Any] = [node_of(output) for output in outputs]
    while stack:
        node = stack.pop()
        if node is None or (address := node.node_ptr()) in seen:
            continue
        seen[address] = edges = node.next_functions
        if node.name() not in DIVISIBLE and sum(edge is not None for edge in edges) > 1:
            divisible = False
        stack += edges
    return Graph(divisible, len(seen) - len(starts))


def leaves_behind(tensors: Iterable[Tensor], stop: Iterable[Tensor] = ()) -> set[int]:
    """Return addresses of the leaves behind the tensors, without those to stop at."""
    seen = {node_of(leaf).node_ptr() for leaf in stop}
    stack: list[Any] = [node_of(t) for t in tensors if not t.stop_gradient]
    leaves: set[int] = set()
    while stack:
        node = stack.pop()
        address = node.node_ptr()
        if address in seen:
            continue
        seen.add(address)
        edges = [edge for edge in node.next_functions if edge is not None]
        if not edges and node.name() == "GradNodeAccumulation":
            leaves.add(address)
        stack += edges
    return leaves


def ends_the_process(outputs: Iterable[Tensor], leaves: Iterable[Tensor]) -> bool:
    """Tell whether gradients by these leaves alone end the process.

    Paddle leaves out what leads to none of them, and some of its kernels write it
    nevertheless.
    """
    graph_nodes = [*nodes(node_of(output) for output in outputs)]
    fatal = [node for node in graph_nodes if node.name() in FATAL]
    if not fatal:
        return False
    uses: dict[int, list[int]] = {}
    for node in graph_nodes:
        for edge in _edge_addresses(node):
            uses.setdefault(edge, []).append(node.node_ptr())
    leading: set[int] = set()
    pending = [node_of(leaf).node_ptr() for leaf in leaves]
    while pending:
        address = pending.pop()
        if address not in leading:
            leading.add(address)
            pending += uses.get(address, ())
    return any(not leading.issuperset(_edge_addresses(node)) for node in fatal)


def _edge_addresses(node: Any) -> list[int]:
    return [edge.node_ptr() for edge in node.next_functions if edge is not None]


def nodes(
    roots: Iterable[Any], is_end: Callable[[Any], bool] = lambda node: False
) -> Iterator[Any]:
    """Yield each node once, and nothing behind the nodes that are ends."""
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


_decrement_reference = ctypes.PYFUNCTYPE(None, ctypes.py_object)(
    ("Py_DecRef", ctypes.pythonapi)
)


def node_of(tensor: Tensor) -> Any:
    """Return ``tensor.grad_fn``, which keeps its graph only as long as it is used."""
    leaks = _grad_fn_leaks()
    node = tensor.grad_fn
    if leaks and node is not None:
        _decrement_reference(node)
    return node


@cache
def _grad_fn_leaks() -> bool:
    """Tell whether reading ``grad_fn`` leaves a reference behind.

    In Paddle 3.3.1 it does.
    """
    with grad_mode(True):
        leaf = paddle.zeros([1])
        leaf.stop_gradient = False
        node, fresh_object = paddle.tanh(leaf).grad_fn, object()
    return sys.getrefcount(node) > sys.getrefcount(fresh_object)
