"""Tensors of a record that share memory, and the views between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.shared_memory import share_memory
from .operations import Operation, Value, with_values

_PLAIN = frozenset({"cast"})
"""Views of all elements in their order. With other values they would not be views."""


class AliasMap:
    """The tensors that a function has met, and the views among its values."""

    def __init__(self) -> None:
        self._met: dict[int, Tensor] = {}
        self._views: dict[Value, Operation] = {}

    def meet(self, tensor: Tensor) -> None:
        """Keep a tensor, so that no other gets its identity."""
        self._met[id(tensor)] = tensor

    def note(self, op: Operation, source: Any, parts: Sequence[Any]) -> None:
        """Note the results of an operation that may be views of its first argument."""
        for out, part in zip(op.outputs, parts, strict=True):
            if isinstance(source, Tensor) and share_memory(part, source):
                self._views[out] = op

    def sharing(self, x: Tensor) -> list[Tensor]:
        """Return all tensors met that share its memory, itself among them."""
        return [t for t in self._met.values() if share_memory(t, x)]

    def chain(self, value: Value) -> list[Value]:
        """Return the value at the root of a view, and all views from there to it."""
        results = [value]
        while (op := self._views.get(results[-1])) is not None:
            results.append(op.args[0])
        return results[::-1]

    def places(self, chain: Sequence[Value], tensor: Callable[[Value], Any]) -> Tensor:
        """Return the places of a view's elements in its root, counted in a row."""
        with grad_mode(False):
            root = tensor(chain[0])
            result = paddle.arange(root.size).reshape(root.shape)
            for value in chain[1:]:
                op = self._views[value]
                if not (op.operator.alias or op.operator.name in _PLAIN):
                    args = [with_values(arg, tensor) for arg in op.args[1:]]
                    made = op.operator.run(result, *args)
                    result = made[op.outputs.index(value)] if op.many else made
            return result

    def by(self, value: Value) -> Operation:
        """Return the operation that took a value as a view."""
        return self._views[value]
