"""Tensors that each call of a net leaves in its attributes, such as by a hook.

The weight of ``weight_norm`` is one: a hook computes it before each call. Programs give
these tensors with the call's results, and they are put where the call leaves them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paddle
from paddle import Tensor

from ..paddle_side.dtypes import is_differentiable
from ..transforms.containers.tree import flatten_tree

Held = dict[str, Any]
Place = tuple[int, str]
"""A dict, by its identity, and a key of it."""


class HookOutputs:
    """The places of one net at which calls leave tensors."""

    def __init__(self) -> None:
        self._places: dict[Place, Held] = {}

    def __len__(self) -> int:
        return len(self._places)

    def keys(self) -> set[Place]:
        return set(self._places)

    def watch(self, layer: paddle.nn.Layer) -> Callable[[], None]:
        """Return a function that adds the places a call has written meanwhile."""
        parts = layer.sublayers(include_self=True)
        every: list[Held] = [held for p in parts for held in (vars(p), p._buffers)]
        before = [(held, dict(held)) for held in every]

        def add() -> None:
            for held, then in before:
                for name, value in held.items():
                    if value is not then.get(name) and are_tensors(value):
                        self._places[id(held), name] = held

        return add

    def look(self) -> None:
        """Forget the places that hold no tensors any more."""
        self._places = {
            place: held
            for place, held in self._places.items()
            if are_tensors(held.get(place[1]))
        }

    def values(self) -> list[Any]:
        """Return what stands there."""
        return [held[name] for (_, name), held in self._places.items()]

    def assign(self, values: Any) -> None:
        for ((_, name), held), value in zip(self._places.items(), values, strict=True):
            held[name] = value

    @contextmanager
    def marked(self) -> Iterator[list[Tensor]]:
        """Have other tensors there meanwhile, and yield them, to see who reads them."""
        before = self.values()
        leaves, spec = flatten_tree(before)
        marks = [
            paddle.full_like(leaf, float("nan")) if isinstance(leaf, Tensor) else leaf
            for leaf in leaves
        ]
        with paddle.no_grad():
            self.assign(spec.unflatten(marks))
        try:
            yield [mark for mark in marks if isinstance(mark, Tensor)]
        finally:
            self.assign(before)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Leave everything as it is, whatever is called within."""
        before = self.values()
        try:
            yield
        finally:
            self.assign(before)


def are_tensors(value: Any) -> bool:
    """Tell whether it is a tensor of floats, or a container of one or more of them."""
    if isinstance(value, Tensor):
        return is_differentiable(value)
    if not isinstance(value, dict | list | tuple) or not value:
        return False
    return all(map(are_tensors, value.values() if isinstance(value, dict) else value))
