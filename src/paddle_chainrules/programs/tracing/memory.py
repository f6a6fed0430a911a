"""Aliases: traced tensors that share memory, and the views between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.shared_memory import share_memory
from .operations import Operation, Value, with_values

_ELEMENTWISE_VIEWS = frozenset({"cast"})
"""Views of all elements in their order. With other values they would not be views."""


class AliasMap:
    """The tensors that a traced function has used, and the views among its values."""

    def __init__(self) -> None:
        self._tensors: dict[int, Tensor] = {}
        self._views: dict[Value, Operation] = {}

    def add(self, tensor: Tensor) -> None:
        """Add a tensor, and hold it so that no other gets its identity."""
        self._tensors[id(tensor)] = tensor

    def record_views(self, op: Operation, source: Any, outputs: Sequence[Any]) -> None:
        """Record the outputs of an operation that are views of its first argument."""
        for value, output in zip(op.outputs, outputs, strict=True):
            if isinstance(source, Tensor) and share_memory(output, source):
                self._views[value] = op

    def aliases_of(self, x: Tensor) -> list[Tensor]:
        """Return all tensors that share the memory of x, itself among them."""
        return [t for t in self._tensors.values() if share_memory(t, x)]

    def view_chain(self, value: Value) -> list[Value]:
        """Return the root of a view, then the views from the root to the value."""
        results = [value]
        while (op := self._views.get(results[-1])) is not None:
            results.append(op.args[0])
        return results[::-1]

    def element_offsets(
        self, chain: Sequence[Value], tensor: Callable[[Value], Any]
    ) -> Tensor:
        """Return the offsets of a view's elements in its flattened root.

        Args:
            chain: as :meth:`view_chain` returns it.
            tensor: returns the tensor of a value.
        """
        with grad_mode(False):
            root = tensor(chain[0])
            result = paddle.arange(root.size).reshape(root.shape)
            for value in chain[1:]:
                op = self._views[value]
                if not (op.operator.alias or op.operator.name in _ELEMENTWISE_VIEWS):
                    args = [with_values(arg, tensor) for arg in op.args[1:]]
                    outputs = op.operator.run(result, *args)
                    result = outputs[op.outputs.index(value)] if op.many else outputs
            return result

    def is_view(self, value: Value) -> bool:
        """Tell whether a value is a view of another."""
        return value in self._views

    def view_operation(self, value: Value) -> Operation:
        """Return the operation whose output a view is."""
        return self._views[value]
