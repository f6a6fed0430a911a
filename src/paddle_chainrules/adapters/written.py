"""What a call of a net sets in its layers."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ..transforms.python_state import Place


class Written:
    """The attributes of a layer and those in it that a call sets, seen by two looks."""

    def __init__(self, layer: paddle.nn.Layer) -> None:
        parts = layer.sublayers(include_self=True)
        self._before = [(vars(part), dict(vars(part))) for part in parts]

    def places(self) -> set[Place]:
        """Those that hold tensors alone by now, and were others."""
        return {
            (id(held), name)
            for held, before in self._before
            for name, value in held.items()
            if value is not before.get(name) and _are_tensors(value)
        }


def _are_tensors(value: Any) -> bool:
    parts = value.values() if isinstance(value, dict) else value
    if isinstance(value, Tensor) or not isinstance(value, dict | list | tuple):
        return isinstance(value, Tensor)
    return len(value) > 0 and all(map(_are_tensors, parts))
