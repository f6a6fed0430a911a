"""Layers of a program's own, and the repair of what Paddle makes of their gradients.

Gradients of a backward that leaves Paddle, by numpy or by ``detach``, are right and
have no graph. A derivative of a derivative would lose them without a word, so they
refuse to be differentiated. If somebody keeps a tensor that a backward gives, Paddle
would write into it when it adds other gradients, so copies are given. If the backward
fails, Paddle makes a text of the error. An error of this package is noted, to come out
as it is.
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

from ..watch import is_traced
from .kernel_errors import note_error, refused_later

_thread = threading.local()


@contextmanager
def layers_watched(create_graph: bool) -> Iterator[None]:
    """Watch layers while Paddle's engine runs on this thread.

    Args:
        create_graph: whether the gradients are to have a graph.
    """
    _install()
    before = getattr(_thread, "protect", None)
    try:
        _thread.protect = (
            _differentiable_or_refusing if create_graph else _copies_of_gradients
        )
        yield
    finally:
        try:
            _thread.protect = before
        except BaseException:  # an interrupt
            _thread.protect = before
            raise


@cache
def _install() -> None:
    original = py_layer.PyLayerBackward.backward

    def backward(self: Any, *cotangents: Any) -> Any:
        layer = self._forward_cls
        try:
            results = original(self, *cotangents)
        except BaseException as error:
            if _is_own(layer.__module__) or _is_own(_raising_module(error)):
                note_error(error)
            raise
        protect = getattr(_thread, "protect", None)
        if results is None or protect is None or _is_own(layer.__module__):
            return results
        single = isinstance(results, Tensor)
        grads = protect(layer, [results] if single else [*results], cotangents)
        if single:
            return grads[0]
        return grads if isinstance(results, list) else tuple(grads)  # as Paddle tells

    py_layer.PyLayerBackward.backward = backward  # type: ignore[method-assign]


def _is_own(module: str) -> bool:
    return module.partition(".")[0] == "paddle_chainrules"


def _raising_module(error: BaseException) -> str:
    """Return the module whose code has raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return str(trace.tb_frame.f_globals.get("__name__")) if trace is not None else ""


def _copies_of_gradients(layer: Any, grads: list[Any], cotangents: Any) -> list[Any]:
    """Return gradients in memory of their own."""
    return [grad.clone() if isinstance(grad, Tensor) else grad for grad in grads]


def _differentiable_or_refusing(
    layer: Any, grads: list[Any], cotangents: Any
) -> list[Any]:
    """Return gradients that are differentiable, or refuse to be."""
    lost = [grad if _is_lost(grad, cotangents) else None for grad in grads]
    traced = [*filter(is_traced, cotangents)] if paddle.is_grad_enabled() else []
    if not traced or all(grad is None for grad in lost):
        return grads
    refusing = refused_later(
        f"the backward of the PyLayer {layer.__name__} leaves Paddle, so that its "
        "gradient can't be differentiated once more: write it in tensor operations",
        *(lost, traced),
    )
    pairs = zip(grads, refusing, strict=True)
    return [grad if refusal is None else refusal for grad, refusal in pairs]


def _is_lost(grad: Any, cotangents: Any) -> bool:
    """Tell whether it is a gradient without a graph, such as what ``x.grad`` holds."""
    if not isinstance(grad, Tensor):
        return False
    is_on_graph = not grad.is_leaf or any(grad is cotangent for cotangent in cotangents)
    if is_on_graph and not grad.stop_gradient:
        return False
    return bool(grad.is_floating_point() or grad.is_complex())
