"""Layers of a program's own whose backward leaves Paddle, by numpy or by ``detach``.

Their gradients are right and have no graph, so that a derivative of a derivative would
lose them without a word. Here they refuse to be differentiated.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import paddle
from paddle import Tensor
from paddle.autograd import py_layer

from ._kernels import refused_later

_here = threading.local()


@contextmanager
def leaving_noticed() -> Iterator[None]:
    """Notice it on this thread, while gradients are made that have a graph."""
    _install()
    before = getattr(_here, "on", False)
    try:
        _here.on = True
        yield
    finally:
        _here.on = before


@cache
def _install() -> None:
    original = py_layer.PyLayerBackward.backward

    def backward(self: Any, *cotangents: Any) -> Any:
        found = original(self, *cotangents)
        if not getattr(_here, "on", False) or not paddle.is_grad_enabled():
            return found
        traced = [
            c for c in cotangents if isinstance(c, Tensor) and not c.stop_gradient
        ]
        single = isinstance(found, Tensor)
        parts = [found] if single else [*found] if found is not None else []
        lost = [
            isinstance(part, Tensor) and part.is_floating_point() and part.stop_gradient
            for part in parts
        ]
        if not traced or not any(lost):
            return found
        name = self._forward_cls.__name__
        rest = iter(
            refused_later(
                f"the backward of the PyLayer {name} leaves Paddle, so that its "
                "gradient can't be differentiated once more: write it in tensor "
                "operations",
                [part for part, is_lost in zip(parts, lost, strict=True) if is_lost],
                traced,
            )
        )
        parts = [
            next(rest) if is_lost else part
            for part, is_lost in zip(parts, lost, strict=True)
        ]
        return parts[0] if single else tuple(parts)

    py_layer.PyLayerBackward.backward = backward
