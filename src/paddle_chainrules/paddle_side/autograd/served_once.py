"""Programs on graphs of the caller's, which serve one ``backward``.

Paddle frees what a node of Python needs after a ``backward``, with
``retain_graph=True`` too. A second ``backward``, or a ``paddle.grad``, then ends the
process. Here hooks of the node's outputs, which run before it, raise an error instead,
and ``paddle.grad`` looks for such nodes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NoReturn
from weakref import ref

import paddle
from paddle import Tensor

from ..patching.places import Places, by_itself
from .by_node import ByNode
from .partial_gradients import node_of, nodes

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


class Once(ref[Any]):
    """A hook that lets a gradient pass while what its node needs is there.

    Made of the context that the ``forward`` of a ``PyLayer`` was given. The node keeps
    it alive.
    """

    __slots__ = ("__weakref__",)

    def __call__(self, *_: Any) -> None:
        if super().__call__() is None:
            _refuse("backward")

    @property
    def is_spent(self) -> bool:
        return super().__call__() is None


_nodes: ByNode[Once] = ByNode()


def watch(outputs: Sequence[Tensor], once: Once) -> None:
    """Have an error raised where the node of these outputs can serve no more."""
    _guard()
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


@cache
def _guard() -> None:
    """Have ``paddle.grad`` check first, from now on."""
    native = by_itself(paddle.grad)

    def grad(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        check(outputs)
        return native(outputs, *args, **kwargs)

    Places({"grad": (paddle.grad, grad)}).put(1)
