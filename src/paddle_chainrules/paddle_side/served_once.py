"""Programs on graphs of the caller's, which serve one ``backward``.

Paddle lets go of what a node of Python needs when ``backward`` has been there, with
``retain_graph=True`` too, and ends the process when it comes again. Here hooks of the
node's outputs, which run before it, raise an error instead.
"""

from __future__ import annotations

from typing import Any
from weakref import ref

import paddle

_tensor: Any = paddle.Tensor
register = _tensor._register_grad_hook
"""Of a tensor and a hook, as long as nobody listens."""


class Once(ref[Any]):
    """A hook that lets a gradient pass while what its node needs is there.

    Made of the context that the ``forward`` of a ``PyLayer`` was given.
    """

    __slots__ = ()

    def __call__(self, *_: Any) -> None:
        if super().__call__() is None:
            raise RuntimeError(
                "backward has been through a program of this graph before, which "
                "Paddle's graphs serve but once, with retain_graph=True too. Call "
                "backward once, for the sum of the losses, or take the gradients by "
                "value_and_grad, or by paddle.grad(..., retain_graph=True)"
            )
