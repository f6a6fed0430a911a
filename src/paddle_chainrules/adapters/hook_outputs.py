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

AttributeDict = dict[str, Any]
AttributeKey = tuple[int, str]
"""A dict, by its identity, and a key of it."""


class HookOutputs:
    """The attributes of one net in which calls leave tensors."""

    def __init__(self) -> None:
        self._owners: dict[AttributeKey, AttributeDict] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def keys(self) -> set[AttributeKey]:
        return set(self._owners)

    def watch(self, layer: paddle.nn.Layer) -> Callable[[], None]:
        """Return a function that adds the attributes a call has written meanwhile."""
        sublayers = layer.sublayers(include_self=True)
        attribute_dicts: list[AttributeDict] = [
            attributes
            for sublayer in sublayers
            for attributes in (vars(sublayer), sublayer._buffers)
        ]
        before = [(attributes, dict(attributes)) for attributes in attribute_dicts]

        def add() -> None:
            for attributes, earlier in before:
                for name, value in attributes.items():
                    if value is not earlier.get(name) and are_tensors(value):
                        self._owners[id(attributes), name] = attributes

        return add

    def drop_stale(self) -> None:
        """Forget the attributes that hold no tensors any more."""
        self._owners = {
            key: attributes
            for key, attributes in self._owners.items()
            if are_tensors(attributes.get(key[1]))
        }

    def values(self) -> list[Any]:
        """Return the present values of the attributes."""
        return [attributes[name] for (_, name), attributes in self._owners.items()]

    def assign(self, values: Any) -> None:
        for ((_, name), attributes), value in zip(
            self._owners.items(), values, strict=True
        ):
            attributes[name] = value

    @contextmanager
    def replaced_by_nan(self) -> Iterator[list[Tensor]]:
        """Replace the tensors by NaN, and yield these, to see who reads them."""
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
    def preserved(self) -> Iterator[None]:
        """Restore the values afterwards, whatever is called within."""
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
