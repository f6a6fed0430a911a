"""Nested arguments of a net, whose leaves cross to Julia as a flat list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle import Tensor

from ..transforms.containers.tree import flatten_tree
from .layers.stateless import RESERVED


class Nesting:
    """A map from leaves in a row to arguments and keyword arguments, and back.

    Attributes:
        seed: the place in the row of the seed of random numbers, or None.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._leaf_positions, self._spec = flatten_tree((args, kwargs))
        differentiated = {n: v for n, v in kwargs.items() if n not in RESERVED}
        self._grad_positions, _ = flatten_tree((args, differentiated))
        self.seed: int | None = kwargs.get("seed")

    @property
    def count(self) -> int:
        """The number of leaves that have gradients."""
        return len(self._grad_positions)

    def arguments(
        self, leaves: Sequence[Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        tree: Any = self._spec.unflatten([leaves[i] for i in self._leaf_positions])
        args, kwargs = tree
        return args, kwargs

    def flatten_gradients(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Return a gradient per leaf in crossing order, None for buffers and seed."""
        grads_by_position: list[Tensor | None] = [None] * len(self._leaf_positions)
        for i, grad in zip(self._grad_positions, grads, strict=True):
            grads_by_position[i] = grad
        return grads_by_position
