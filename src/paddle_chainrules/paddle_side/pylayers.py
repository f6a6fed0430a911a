"""What the backward of a ``PyLayer`` does that Paddle's engine does not tell.

It may leave Paddle, by numpy or by ``detach``: such gradients are right and have no
graph, so that a derivative of a derivative would lose them without a word. Here they
refuse to be differentiated. And it may fail, of which Paddle makes a text: what this
package says there is noted, to come out as it is.
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

from .kernel_errors import note, refused_later
from .watch import is_traced

_here = threading.local()


@contextmanager
def leaving_noticed() -> Iterator[None]:
    """Notice it on this thread, while gradients are made that have a graph."""
    install()
    before = getattr(_here, "on", False)
    try:
        _here.on = True
        yield
    finally:
        _here.on = before


@cache
def install() -> None:
    """Have both noticed from now on, which costs others nothing."""
    original = py_layer.PyLayerBackward.backward

    def backward(self: Any, *cotangents: Any) -> Any:
        try:
            found = original(self, *cotangents)
        except BaseException as error:
            if _is_own(self._forward_cls.__module__) or _is_own(_raised_in(error)):
                note(error)
            raise
        if not getattr(_here, "on", False) or not paddle.is_grad_enabled():
            return found
        single = isinstance(found, Tensor)
        parts = [found] if single else [*found] if found is not None else []
        lost = [part if _is_lost(part) else None for part in parts]
        traced = [*filter(is_traced, cotangents)]
        if not traced or all(part is None for part in lost):
            return found
        refusing = refused_later(
            f"the backward of the PyLayer {self._forward_cls.__name__} leaves Paddle, "
            "so that its gradient can't be differentiated once more: write it in "
            "tensor operations",
            *(lost, traced),
        )
        parts = [
            part if refusal is None else refusal
            for part, refusal in zip(parts, refusing, strict=True)
        ]
        return parts[0] if single else tuple(parts)

    py_layer.PyLayerBackward.backward = backward  # type: ignore[method-assign]


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == "paddle_chainrules"


def _raised_in(error: BaseException) -> str:
    """The module whose code has raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return str(trace.tb_frame.f_globals.get("__name__")) if trace is not None else ""


def _is_lost(part: Any) -> bool:
    """Whether it is a gradient without a graph."""
    if not isinstance(part, Tensor) or not part.stop_gradient:
        return False
    return bool(part.is_floating_point() or part.is_complex())
