"""Functions of Paddle's, replaced wherever Paddle finds them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

Pair = tuple[Any, Any]
"""A function of Paddle's, and what stands in for it."""


class Places:
    """Where some of Paddle's functions stand, to put others there and back.

    A function may stand in many modules; all that is loaded is looked through, once
    for every number of modules.
    """

    def __init__(self, pairs: Mapping[str, Pair]) -> None:
        self._by_id = {id(pair[0]): pair for pair in pairs.values()}
        self._found: list[tuple[dict[str, Any], str, Pair]] = []
        self._modules = 0

    def put(self, which: int) -> None:
        """What stands in (1), or the functions themselves (0)."""
        if which and len(sys.modules) != self._modules:
            self._modules = len(sys.modules)
            self._found = self._look()
        for space, name, pair in self._found:
            space[name] = pair[which]

    def _look(self) -> list[tuple[dict[str, Any], str, Pair]]:
        return [
            (space, name, self._by_id[id(value)])
            for label, module in list(sys.modules.items())
            if ".pir" not in label and "_pir" not in label
            if isinstance(space := getattr(module, "__dict__", None), dict)
            for name, value in list(space.items())
            if id(value) in self._by_id
        ]
