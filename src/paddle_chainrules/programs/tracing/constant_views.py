"""Views of constants. A write may turn them into views of values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from paddle import Tensor

from ...paddle_side.shared_memory import share_memory
from ..operators.entry import Operator, UnknownArgument
from ..operators.table import TABLE


class ConstantView(NamedTuple):
    """A view: the operator and arguments that took it, and the result."""

    entry: Operator
    args: tuple[Any, ...]
    outputs: list[Tensor]
    many: bool


class ConstantViews:
    """The views that a function has taken of constants of its own."""

    def __init__(self) -> None:
        self._views: list[ConstantView] = []

    def record_view(self, name: str, args: Any, kwargs: Any, result: Any) -> None:
        """Store the result of an operator if it is a view of its first argument."""
        entry = TABLE.get(name)
        if entry is None or not entry.view:
            return
        many = isinstance(result, list | tuple)
        outputs = [*result] if many else [result]
        try:
            canonical_args = entry.canonical(args, kwargs)
        except UnknownArgument:
            return
        if all(share_memory(output, canonical_args[0]) for output in outputs):
            self._views.append(ConstantView(entry, canonical_args, outputs, many))

    def pop_sharing(self, x: Tensor) -> Iterator[ConstantView]:
        """Remove and yield the views that share memory with a tensor, oldest first."""
        popped = [v for v in self._views if share_memory(v.outputs[0], x)]
        self._views = [
            v
            for v in self._views
            if all(v is not popped_view for popped_view in popped)
        ]
        yield from popped
