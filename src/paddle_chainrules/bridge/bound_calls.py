"""Calls of a net at parameters that stay, which go straight to their programs.

A dispatch cache, keyed by the dtypes and shapes of the arguments alone.
"""

from __future__ import annotations

from typing import Any

from paddle import Tensor

from ..nets.calls.dispatch_cache import CachedValue, CachedVJP, cache_key, keep
from ..nets.net import Net


class BoundCalls:
    """A :class:`..nets.calls.dispatch_cache.DispatchCache` keyed by arguments alone."""

    def __init__(self, net: Net, params: dict[str, Tensor] | Tensor) -> None:
        self._net, self._params = net, params
        self._tensors: list[Tensor] = (
            [params] if isinstance(params, Tensor) else [*params.values()]
        )
        self._values: dict[Any, CachedValue] = {}
        self._ways: dict[Any, CachedVJP] = {}

    def forward(self, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the output, alone in a tuple; None for a call of a new kind."""
        key = cache_key(args)
        known = self._values.get(key)
        if known is not None:
            return known.value([*self._tensors, *args])
        calls = self._net._dispatch_cache
        if calls is None or key is None:
            return None
        known, leaves = calls.value(self._params, args)
        if known is None:
            return None
        keep(self._values, key, known)
        return known.value(leaves)

    def way(self, args: tuple[Any, ...]) -> tuple[CachedVJP | None, list[Tensor]]:
        """Return the program that serves calls like this one, and its leaves."""
        key = cache_key(args)
        known = self._ways.get(key)
        if known is not None:
            return known, [*self._tensors, *args]
        calls = self._net._dispatch_cache
        if calls is None or key is None:
            return None, []
        known, leaves = calls.way(self._params, args)
        if known is not None:
            keep(self._ways, key, known)
        return known, leaves
