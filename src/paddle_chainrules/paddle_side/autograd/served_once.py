"""Programs on graphs of the caller's, which serve one ``backward``.

Paddle frees what a node of Python needs after a ``backward``, with
``retain_graph=True`` too. A second ``backward``, or a ``paddle.grad``, then ends the
process. Here hooks of the node's outputs, which run before it, raise an error instead,
and ``paddle.grad`` looks for such nodes first.

While a recording is under way, ``paddle.grad`` also differentiates by what the kernels
of operators in it need (:meth:`.RuleContext.ask`).
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, NoReturn
from weakref import ref

import paddle
from paddle import Tensor

from ..listener import listener
from ..patching.places import PatchSet, by_itself
from ..watch import recordings
from .by_node import NodeMap
from .kernel_errors import kernels_named
from .partial_gradients import node_of, nodes
from .running import refuse_within

_tensor: Any = paddle.Tensor
_register = _tensor._register_grad_hook
"""Paddle's method that registers a hook, used as long as nobody listens."""


def _refuse(who: str) -> NoReturn:
    raise RuntimeError(
        f"{who} has been through a program of this graph before, which Paddle's graphs "
        "serve but once, with retain_graph=True too. Call backward once, for the sum "
        "of the losses, or take the gradients by value_and_grad, or by "
        "paddle.grad(..., retain_graph=True) before backward"
    )


class SingleUseHook(ref[Any]):
    """A hook that lets a gradient pass while what its node needs is there.

    Made of the context that the ``forward`` of a ``PyLayer`` was given. The node keeps
    it alive.

    Attributes:
        several: whether the node has several results.
    """

    __slots__ = ("__weakref__", "several")
    several: bool

    def __call__(self, *_: Any) -> None:
        if super().__call__() is None:
            _refuse("backward")

    def of(self) -> Any:
        """Return the computed result; None if it is spent."""
        context = super().__call__()
        return None if context is None else context.of

    @property
    def is_spent(self) -> bool:
        return super().__call__() is None


_nodes: NodeMap[SingleUseHook] = NodeMap()


def watch(outputs: Sequence[Tensor], once: SingleUseHook) -> None:
    """Have an error raised where the node of these outputs can serve no more."""
    guard()
    once.several = len(outputs) > 1
    for output in outputs:
        _register(output, once)
    _nodes.add(node_of(outputs[0]), once)


def check(outputs: Any) -> None:
    """Refuse a graph that can't be gone through any more.

    Raises:
        RuntimeError: ``backward`` has been through a program in it.
    """
    spent = {address for address, once in _nodes.items() if once.is_spent}
    if not spent:
        return
    given = outputs if isinstance(outputs, list | tuple) else [outputs]
    roots = [node_of(t) for t in given if isinstance(t, Tensor)]
    if any(node.node_ptr() in spent for node in nodes(roots)):
        _refuse("paddle.grad: a backward")


def _one_of_several(x: Any) -> SingleUseHook | None:
    """Return what belongs to the node of a tensor, if that has other results too."""
    if not isinstance(x, Tensor) or x.is_leaf or (node := node_of(x)) is None:
        return None
    once = _nodes.get(node)
    return once if once is not None and once.several else None


def _behind(x: Any) -> Any:
    """Return what programs have computed it of, a leaf if there is one."""
    while (once := _one_of_several(x)) is not None and (of := once.of()) is not None:
        x = next((t for t in of.inputs if t.is_leaf), of.inputs[0])
    return x


def _passes(inputs: Sequence[Any]) -> list[dict[int, Any]]:
    """Return inputs by their places, no two results of one node together.

    Paddle gives those the same gradient.
    """
    results, seen = list[dict[int, Any]](), Counter[int]()
    for i, x in enumerate(inputs):
        once = _one_of_several(x)
        number = seen[id(once)] if once is not None else 0
        seen[id(once)] += 1
        if number == len(results):
            results.append({})
        results[number][i] = x
    return results


def _needed_with(outputs: Any) -> list[Tensor]:
    """Return tensors of a graph that recordings ask for, for the sake of others."""
    requested = [t for watch in recordings() for t in watch.asked.values()]
    if not requested:
        return []
    given = outputs if isinstance(outputs, list | tuple) else [outputs]
    roots = [node_of(t) for t in given if isinstance(t, Tensor)]
    behind = {node.node_ptr() for node in nodes(roots)}
    results = {id(t): t for t in requested if node_of(t).node_ptr() in behind}
    return [*results.values()]


@cache
def guard() -> None:
    """Have ``paddle.grad`` look at the graph first, from now on."""
    native = by_itself(paddle.grad)

    def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if listener() is None:
            refuse_within()
        check(outputs)
        if recordings():  # which rules take over where Paddle has no kernel
            with kernels_named():
                return checked(outputs, inputs, *args, **kwargs)
        return checked(outputs, inputs, *args, **kwargs)

    def checked(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        given = [*inputs] if isinstance(inputs, list | tuple) else [inputs]
        needed = _needed_with(outputs)
        if not needed and not any(map(_one_of_several, given)):
            return native(outputs, inputs, *args, **kwargs)
        call = _signature.bind(outputs, inputs, *args, **kwargs)
        if call.arguments.get("retain_graph") is None:
            call.arguments["retain_graph"] = True  # for what nobody has asked for yet
        result = [None] * len(given)
        for part in _passes(given):
            # Paddle fails at a node of several results if nothing behind it is asked.
            requested = {id(x) for x in part.values()}
            behind = *map(_behind, part.values()), *needed
            more = {id(t): t for t in behind if id(t) not in requested}
            call.arguments["inputs"] = [*part.values(), *more.values()]
            for i, g in zip(part, native(*call.args, **call.kwargs), strict=False):
                result[i] = g
        return result

    PatchSet({"grad": (paddle.grad, grad)}).put(1)


_signature = inspect.signature(paddle.grad)
