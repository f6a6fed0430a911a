"""Which tensors of a record share memory, and by which views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.autograd.grad_mode import grad_mode
from .operations import Operation, Value, with_values

_PLAIN = frozenset({"cast"})
"""Views of all elements in their order, which other numbers would not be."""


class Memory:
    """The tensors that a function has met, and the views among its values."""

    def __init__(self) -> None:
        self._met: dict[int, Tensor] = {}
        self._views: dict[Value, Operation] = {}

    def meet(self, tensor: Tensor) -> None:
        """Keep a tensor, so that its identity is no other's."""
        self._met[id(tensor)] = tensor

    def note(self, op: Operation, source: Any, parts: Sequence[Any]) -> None:
        """Results of an operation that may be views of its first argument."""
        for out, part in zip(op.outputs, parts, strict=True):
            if isinstance(source, Tensor) and part._is_shared_buffer_with(source):
                self._views[out] = op

    def sharing(self, x: Tensor) -> list[Tensor]:
        """All that were met and share its memory, itself among them."""
        return [
            t
            for t in self._met.values()
            if t._is_initialized() and t._is_shared_buffer_with(x)
        ]

    def chain(self, value: Value) -> list[Value]:
        """What it is a view of in the end, and all views on the way to it."""
        found = [value]
        while (op := self._views.get(found[-1])) is not None:
            found.append(op.args[0])
        return found[::-1]

    def places(self, chain: Sequence[Value], tensor: Callable[[Value], Any]) -> Tensor:
        """Where in its root the elements of a view are, counted in a row."""
        with grad_mode(False):
            root = tensor(chain[0])
            found = paddle.arange(root.size).reshape(root.shape)
            for value in chain[1:]:
                op = self._views[value]
                if not (op.operator.alias or op.operator.name in _PLAIN):
                    args = [with_values(arg, tensor) for arg in op.args[1:]]
                    made = op.operator.run(found, *args)
                    found = made[op.outputs.index(value)] if op.many else made
            return found

    def by(self, value: Value) -> Operation:
        """The view by which it came."""
        return self._views[value]
