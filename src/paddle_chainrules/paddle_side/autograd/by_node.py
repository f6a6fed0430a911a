"""Objects that belong to a node of Paddle's graph, found by the node's address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class NodeMap(Generic[T]):
    """Objects that nodes keep alive themselves, by the addresses of these nodes.

    An object that is gone is not found, since its node may be gone too and another one
    have the address. The references are weak and have no callbacks: Paddle may let go
    of nodes without Python's lock.
    """

    def __init__(self) -> None:
        self._references: dict[int, ref[T]] = {}
        self._sweep_size = (
            16  # how many there may be before those that are gone are left out
        )

    def add(self, node: Any, value: T) -> None:
        """Set what belongs to a node."""
        self._references[node.node_ptr()] = ref(value)
        if len(self._references) > self._sweep_size:
            for address, result in [*self._references.items()]:
                if result() is None:
                    self._references.pop(address, None)
            self._sweep_size = max(16, 2 * len(self._references))

    def get(self, node: Any) -> T | None:
        """Return what belongs to a node."""
        result = self._references.get(node.node_ptr())
        return None if result is None else result()

    def items(self) -> Iterator[tuple[int, T]]:
        """Return addresses and what belongs to their nodes."""
        results = [(address, value()) for address, value in [*self._references.items()]]
        return iter([(a, value) for a, value in results if value is not None])
