"""Calls of a ``PyLayer``, handed to the listener."""

from __future__ import annotations

from typing import Any

from paddle.autograd import PyLayer
from paddle.autograd.py_layer import PyLayerBackward
from paddle.base import core

from ..listener import listener


class _Apply:
    """A replacement for ``PyLayer.apply``."""

    def __get__(self, layer: Any, kind: Any) -> Any:
        passing = vars(core.eager.PyLayer)["apply"].__get__(None, kind)

        def apply(*args: Any, **kwargs: Any) -> Any:
            who: Any = listener()
            if who is None:
                return passing(*args, **kwargs)
            return who.apply(kind, passing, args, kwargs)

        return apply


def _init(context: Any, *_: Any) -> None:
    """Tell the listener of a call that it was not handed."""
    who: Any = listener()
    if who is not None:
        who.missed(context._forward_cls)


def take() -> None:
    """Have calls of PyLayers go to the listener of their thread."""
    PyLayer.apply = _Apply()  # type: ignore[assignment]
    PyLayerBackward.__init__ = _init  # type: ignore[method-assign, assignment]


def give_back() -> None:
    """Have them go to Paddle again."""
    for owner, name in ((PyLayer, "apply"), (PyLayerBackward, "__init__")):
        if name in vars(owner):
            delattr(owner, name)
