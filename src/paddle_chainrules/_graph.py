"""What Paddle's kernels can't do with part of their gradients, read from the graph.

Some of them fail, crash or give wrong numbers where not all of their inputs are
differentiated; docs/paddle-notes.md has the list.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ._grad_mode import grad_mode

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


class Needs(NamedTuple):
    """What a kernel needs of its inputs, told by which of them are differentiated."""

    rule: str
    first: Callable[[Sequence[bool]], bool]
    second: Callable[[Sequence[bool]], bool]
    """The same where gradients are to be differentiated once more."""
    fault: str = "gives wrong gradients through"


NORM = Needs(
    "only one of its scale and shift is an argument, or, for second derivatives, "
    "these are and its input does not depend on an argument",
    first=lambda given: given[1] == given[2],
    second=lambda given: given[1] == given[2] and given[0],
)
FIRST_INPUT = Needs(
    "its first input does not depend on an argument",
    first=lambda given: given[0],
    second=lambda given: given[0],
    fault="crashes in",
)
ALL_INPUTS = Needs(
    "one of its inputs does not depend on an argument",
    first=all,
    second=all,
    fault="crashes in",
)
NEEDS = {
    "CrossGradNode": ALL_INPUTS,
    "SolveGradNode": ALL_INPUTS,
    "GridSampleGradNode": FIRST_INPUT,
    "PreluGradNode": FIRST_INPUT,
    "LayerNormGradNode": Needs(
        "its scale is not an argument",
        first=lambda given: len(given) < 2 or given[1],
        second=lambda given: True,  # it has no kernel for them
    ),
    "BatchNormGradNode": NORM,
    "InstanceNormGradNode": NORM,
    "Conv2dGradNodeFinal": Needs(
        "its input does not depend on an argument, and derivatives are second ones",
        first=lambda given: True,
        second=lambda given: given[0],
    ),
}
"""Kernels that give wrong numbers, or none, without a word, or crash."""


class Graph(NamedTuple):
    """What was found between some outputs and the leaves they are differentiated by."""

    divisible: bool
    """Whether gradients of only some leaves are right."""
    first: str | None
    """A kernel whose gradients are wrong whatever is asked for."""
    second: str | None
    """One that is so where gradients are to be differentiated once more."""
    nodes: int
    """How many operators it has."""


def survey(outputs: Iterable[Tensor], leaves: Sequence[Tensor], held: int = 0) -> Graph:
    """Walk the graph behind the outputs once.

    The last ``held`` leaves are constants to whoever differentiates once more.
    """
    divisible = True
    delicate: list[tuple[str, list[int | None]]] = []
    seen: dict[int, list[Any]] = {}
    stack: list[Any] = [_node_of(output) for output in outputs]
    while stack:
        node = stack.pop()
        if node is None or (address := node.node_ptr()) in seen:
            continue
        seen[address] = edges = node.next_functions
        name = node.name()
        if name not in DIVISIBLE and sum(edge is not None for edge in edges) > 1:
            divisible = False
        if name in NEEDS:
            delicate.append((name, [edge and edge.node_ptr() for edge in edges]))
        stack += edges
    if not delicate:
        return Graph(divisible, None, None, len(seen))
    starts = [_node_of(leaf).node_ptr() for leaf in leaves]
    reached = _reached_from(starts, seen)
    again = _reached_from(starts[: len(starts) - held], seen) if held else reached
    first = second = None
    for name, inputs in delicate:
        if not NEEDS[name].first([address in reached for address in inputs]):
            first = name
        if not NEEDS[name].second([address in again for address in inputs]):
            second = name
    return Graph(divisible, first, second, len(seen))


_let_go = ctypes.PYFUNCTYPE(None, ctypes.py_object)(("Py_DecRef", ctypes.pythonapi))


def _node_of(tensor: Tensor) -> Any:
    """``tensor.grad_fn``, which keeps its graph no longer than it is used itself."""
    leaks = _grad_fn_leaks()
    node = tensor.grad_fn
    if leaks and node is not None:
        _let_go(node)
    return node


@cache
def _grad_fn_leaks() -> bool:
    """Whether reading ``grad_fn`` leaves a reference behind, as in Paddle 3.3.1."""
    with grad_mode(True):
        start = paddle.zeros([1])
        start.stop_gradient = False
        node, other = paddle.tanh(start).grad_fn, object()
    return sys.getrefcount(node) > sys.getrefcount(other)


def _reached_from(leaves: Iterable[int], seen: dict[int, list[Any]]) -> set[int]:
    """Addresses of the nodes that depend on a leaf."""
    users: dict[int, list[int]] = {}
    for address, edges in seen.items():
        for edge in edges:
            if edge is not None:
                users.setdefault(edge.node_ptr(), []).append(address)
    reached: set[int] = set()
    stack = [*leaves]
    while stack:
        address = stack.pop()
        if address not in reached:
            reached.add(address)
            stack += users.get(address, ())
    return reached


def refuse(kernel: str | None) -> None:
    """Refuse a graph with such a kernel.

    Raises:
        NotImplementedError: there is one.
    """
    if kernel is None:
        return
    name = kernel.removesuffix("Final").removesuffix("GradNode")
    raise NotImplementedError(
        f"Paddle {NEEDS[kernel].fault} {name} where {NEEDS[kernel].rule}. Make all of "
        "its inputs arguments of the function; net.pullback does so for a net's "
        "parameters and inputs"
    )
