"""Programs on a graph that Paddle records, for whoever differentiates from outside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from ..paddle_side.engine import gradients, is_running
from ..paddle_side.grad_mode import grad_mode
from ..programs.capture import PLACE, Captured, capture
from ..programs.split import There, split
from .effects import versions
from .programs_of import ProgramsOf, Value, run


def call(programs: ProgramsOf, leaves: Sequence[Any], key: Any) -> tuple[list[Any], Any]:
    """``fn(leaves)`` and its structure, on the caller's graph where fn's results are.

    Raises:
        CaptureError: there is no program.
    """
    flags: Any = None
    if paddle.is_grad_enabled():
        flags = [leaf.stop_gradient for leaf in leaves if isinstance(leaf, Tensor)]
        flags = tuple(flags)
    found: Value = programs.found("value", leaves, programs.value_of, (key, flags))
    captured = found.captured
    if flags is None or True not in captured.requires:
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        return captured.filled(run(captured.program.function, tensors)), found.structure
    node: Node = programs.found(
        "node", leaves, lambda leaves: node_of(programs, leaves, captured), (key, flags)
    )
    inputs = [leaves[i] for i in node.wanted] + captured.beyond
    outputs = [*captured.tensors]
    on_graph = _Node.apply(_Call(node, leaves, outputs, inputs), _packed(inputs))
    on_graph = on_graph if isinstance(on_graph, tuple) else (on_graph,)
    for i, output in zip(node.places, on_graph, strict=True):
        outputs[i] = output
    return captured.filled(outputs), found.structure


class Node(NamedTuple):
    """What it takes to differentiate a program from outside."""

    there: There
    places: list[int]
    """Which of the outputs are on the graph."""
    wanted: list[int]
    """Which of the leaves require gradients."""
    reverse: ProgramsOf
    """From leaves and cotangents to gradients."""
    flags: tuple[bool, ...]


def node_of(programs: ProgramsOf, leaves: Sequence[Any], captured: Captured) -> Node:
    """Captured with gradients by all that requires them."""
    places = [i for i, flag in enumerate(captured.requires) if flag]
    wanted = [
        i
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, Tensor) and not leaf.stop_gradient
    ]
    beyond, count = captured.beyond, len(leaves)

    def both(every: list[Any], create_graph: bool) -> tuple[list[Any], list[Any]]:
        with grad_mode(True):
            values = [*programs.plain(every[:count])]
            tensors = [v for v in values if isinstance(v, Tensor)]
            ends = [tensors[i] for i in places]
            starts = [every[i] for i in wanted] + beyond
            return values, gradients(ends, starts, every[count:], create_graph)

    def joint(every: list[Any]) -> list[Any]:
        values, grads = both(every, False)
        return [*values, *grads]

    def reverse(every: list[Any]) -> tuple[list[Any], Any]:
        return both(every, True)[1], None

    with grad_mode(False):
        cotangents = [captured.tensors[i] * 0.5 + 1.0 for i in places]
    whole = capture(joint, [*leaves, *cotangents], check=not is_running())
    tail = whole.outputs[len(captured.outputs) :]
    number = len(captured.tensors)
    ends = iter(whole.program.outputs[number:])
    grads = [next(ends) if part is PLACE else None for part in tail]
    inputs = sum(isinstance(leaf, Tensor) for leaf in leaves)
    there = split(whole.program, inputs, number, grads)
    return Node(there, places, wanted, ProgramsOf(reverse), (True,) * len(grads))


class _Call(NamedTuple):
    node: Node
    leaves: Sequence[Any]
    outputs: list[Any]
    inputs: list[Tensor]


def _packed(tensors: Sequence[Tensor]) -> Tensor:
    """All of them in one, since Paddle takes layers of one input (paddle-notes.md)."""
    if len(tensors) == 1:
        return tensors[0]
    kinds = {t.dtype for t in tensors}
    if len(kinds) > 1:
        tensors = [t.astype("float64") for t in tensors]
    return paddle.concat([t.reshape([-1]) for t in tensors])


class _Node(PyLayer):  # type: ignore[misc]
    """A program among the operators that Paddle records."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *_: Tensor) -> Any:
        there = call.node.there
        tensors = [leaf for leaf in call.leaves if isinstance(leaf, Tensor)]
        made = run(there.forward.function, tensors)
        call.outputs[:] = made[: there.count]
        ctx.call, ctx.kept = call, made[there.count :]
        ctx.versions = versions(ctx.kept)
        return tuple(call.outputs[i] for i in call.node.places)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Tensor:
        node, inputs = ctx.call.node, ctx.call.inputs
        if paddle.is_grad_enabled():
            grads, _ = call(node.reverse, [*ctx.call.leaves, *cotangents], None)
        else:
            if versions(ctx.kept) != ctx.versions:
                raise RuntimeError(
                    "a result, a parameter or the argument has been modified by an "
                    "inplace operation since the forward of this pullback, which needs "
                    "it as it was; take the gradient before the update, or update "
                    "copies"
                )
            back = node.there.back(node.flags).function
            found = iter(run(back, [*ctx.kept, *cotangents]))
            has = node.there.has(node.flags)
            grads = [next(found) if there else None for there in has]
        return _packed(
            [
                paddle.zeros_like(x) if grad is None else grad
                for x, grad in zip(inputs, grads, strict=True)
            ]
        )
