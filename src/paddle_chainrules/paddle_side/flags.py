"""Flags of tensors that a function sets, put back before it runs again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from paddle import Tensor

Noted = dict[int, tuple[Tensor, bool]]
"""Tensors by their identity, each with the flag that it had at first."""


class StopGradientFlags(NamedTuple):
    """``stop_gradient`` of tensors, before a function has set it and afterwards."""

    tensors: list[Tensor]
    before: list[bool]
    after: list[bool]

    def set(self, flags: Iterable[bool]) -> None:
        for tensor, flag in zip(self.tensors, flags, strict=True):
            tensor.stop_gradient = flag


def flags_of(noted: Noted) -> StopGradientFlags:
    """Return the noted flags of leaves; those of others may not be set back."""
    leaves = [(tensor, flag) for tensor, flag in noted.values() if tensor.is_leaf]
    tensors = [tensor for tensor, _ in leaves]
    return StopGradientFlags(
        tensors, [flag for _, flag in leaves], [t.stop_gradient for t in tensors]
    )


def stand_in(leaf: Any) -> Any:
    """Return a tensor like this one, whose flags the function may change."""
    if not isinstance(leaf, Tensor):
        return leaf
    result = leaf.detach()
    result.stop_gradient = leaf.stop_gradient
    return result
