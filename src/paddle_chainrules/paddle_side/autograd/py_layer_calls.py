"""Calls of a ``PyLayer``, handed to the listener, or made safe for the tape."""

from __future__ import annotations

from functools import cache
from typing import Any

from paddle.autograd import PyLayer
from paddle.autograd.py_layer import PyLayerBackward
from paddle.base import core

from ..listener import listener
from ..watch import watched
from .guarded_layers import guarded


def native_apply(layer: Any) -> Any:
    """Return Paddle's own ``apply`` of a layer."""
    return vars(core.eager.PyLayer)["apply"].__get__(None, layer)


class _ApplyReplacement:
    """A replacement for ``PyLayer.apply``."""

    def __get__(self, layer: Any, kind: Any) -> Any:
        def apply(*args: Any, **kwargs: Any) -> Any:
            receiver: Any = listener()
            if receiver is not None:
                return receiver.apply(kind, native_apply(kind), args, kwargs)
            return native_apply(guarded(kind) if watched() else kind)(*args, **kwargs)

        return apply


def _report_missed_call(context: Any, *_: Any) -> None:
    """Tell the listener of a call that it was not handed."""
    receiver: Any = listener()
    if receiver is not None:
        receiver.missed_layer(context._forward_cls)


@cache
def install() -> None:
    """Have calls of PyLayers come here, for good."""
    PyLayer.apply = _ApplyReplacement()  # type: ignore[assignment]


def watch_contexts() -> None:
    """Have listeners learn of contexts that a stored ``apply`` makes.

    Not for good, since C makes them, where an interrupt becomes another error.
    """
    PyLayerBackward.__init__ = _report_missed_call  # type: ignore[method-assign, assignment]


def leave_contexts() -> None:
    """Have contexts made as Paddle does."""
    if "__init__" in vars(PyLayerBackward):
        del PyLayerBackward.__init__
