"""Programs on graphs of the caller's, which serve one ``backward``.

Paddle frees what a node of Python needs after a ``backward``, with
``retain_graph=True`` too. A second ``backward``, or a ``paddle.grad``, then ends the
process. Here hooks of the node's outputs, which run before it, raise an error instead,
and ``paddle.grad`` looks for such nodes first.

While a recording is under way, ``paddle.grad`` also differentiates by what the kernels
of operators in it need (:meth:`.RuleContext.request`).
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
from ..patching.patch_sites import PatchSet, without_listener
from ..watch import recordings
from .by_node import NodeMap
from .kernel_errors import kernels_named
from .partial_gradients import node_of, nodes
from .running import refuse_within

_tensor: Any = paddle.Tensor
_register = _tensor._register_grad_hook
"""Paddle's method that registers a hook, used as long as nobody listens."""


def _refuse(caller: str) -> NoReturn:
    raise RuntimeError(
        f"{caller} has been through a program of this graph before, which Paddle's "
        "graphs serve but once, with retain_graph=True too. Call backward once, for "
        "the sum of the losses, or take the gradients by value_and_grad, or by "
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
        return None if context is None else context.differentiable

    @property
    def is_spent(self) -> bool:
        return super().__call__() is None


_nodes: NodeMap[SingleUseHook] = NodeMap()


def guard_single_use(outputs: Sequence[Tensor], once: SingleUseHook) -> None:
    """Have an error raised where the node of these outputs can serve no more."""
    patch_grad()
    once.several = len(outputs) > 1
    for output in outputs:
        _register(output, once)
    _nodes.add(node_of(outputs[0]), once)


def refuse_spent(outputs: Any) -> None:
    """Refuse a graph that can't be gone through any more.

    Raises:
        RuntimeError: ``backward`` has been through a program in it.
    """
    spent = {address for address, once in _nodes.items() if once.is_spent}
    if not spent:
        return
    tensors = outputs if isinstance(outputs, list | tuple) else [outputs]
    roots = [node_of(t) for t in tensors if isinstance(t, Tensor)]
    if any(node.node_ptr() in spent for node in nodes(roots)):
        _refuse("paddle.grad: a backward")


def _shared_node_hook(x: Any) -> SingleUseHook | None:
    """Return the hook of a tensor's node, if that has other results too."""
    if not isinstance(x, Tensor) or x.is_leaf or (node := node_of(x)) is None:
        return None
    once = _nodes.get(node)
    return once if once is not None and once.several else None


def _program_input(x: Any) -> Any:
    """Return an input of the programs that computed it, a leaf if there is one."""
    while (once := _shared_node_hook(x)) is not None and (
        outcome := once.of()
    ) is not None:
        x = next((t for t in outcome.inputs if t.is_leaf), outcome.inputs[0])
    return x


def _separate_passes(inputs: Sequence[Any]) -> list[dict[int, Any]]:
    """Group inputs by index, no two results of one node in a group.

    Paddle gives those the same gradient.
    """
    results, seen = list[dict[int, Any]](), Counter[int]()
    for i, x in enumerate(inputs):
        once = _shared_node_hook(x)
        number = seen[id(once)] if once is not None else 0
        seen[id(once)] += 1
        if number == len(results):
            results.append({})
        results[number][i] = x
    return results


def _requested_by_recordings(outputs: Any) -> list[Tensor]:
    """Return tensors of a graph whose gradients recordings request as well."""
    requested = [t for watch in recordings() for t in watch.requested_tensors.values()]
    if not requested:
        return []
    tensors = outputs if isinstance(outputs, list | tuple) else [outputs]
    roots = [node_of(t) for t in tensors if isinstance(t, Tensor)]
    ancestors = {node.node_ptr() for node in nodes(roots)}
    results = {id(t): t for t in requested if node_of(t).node_ptr() in ancestors}
    return [*results.values()]


@cache
def patch_grad() -> None:
    """Have ``paddle.grad`` look at the graph first, from now on."""
    native = without_listener(paddle.grad)

    def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if listener() is None:
            refuse_within()
        refuse_spent(outputs)
        if recordings():  # which rules take over where Paddle has no kernel
            with kernels_named():
                return differentiate(outputs, inputs, *args, **kwargs)
        return differentiate(outputs, inputs, *args, **kwargs)

    def differentiate(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        inputs_list = [*inputs] if isinstance(inputs, list | tuple) else [inputs]
        needed = _requested_by_recordings(outputs)
        if not needed and not any(map(_shared_node_hook, inputs_list)):
            return native(outputs, inputs, *args, **kwargs)
        call = _signature.bind(outputs, inputs, *args, **kwargs)
        if call.arguments.get("retain_graph") is None:
            call.arguments["retain_graph"] = True  # for what nobody has asked for yet
        result = [None] * len(inputs_list)
        for batch in _separate_passes(inputs_list):
            # Paddle fails at a node of several results if nothing behind it is asked.
            requested = {id(x) for x in batch.values()}
            sources = *map(_program_input, batch.values()), *needed
            extra = {id(t): t for t in sources if id(t) not in requested}
            call.arguments["inputs"] = [*batch.values(), *extra.values()]
            for i, g in zip(batch, native(*call.args, **call.kwargs), strict=False):
                result[i] = g
        return result

    PatchSet({"grad": (paddle.grad, grad)}).switch(1)


_signature = inspect.signature(paddle.grad)
