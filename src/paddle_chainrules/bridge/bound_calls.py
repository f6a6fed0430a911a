"""Calls of a net at parameters that stay, which go straight to their programs.

A dispatch cache, keyed by the dtypes and shapes of the arguments alone.
"""

from __future__ import annotations

from typing import Any

from paddle import Tensor

from ..nets.calls.dispatch_cache import CachedValue, CachedVJP, cache_key, store_bounded
from ..nets.net import Net


class BoundCalls:
    """A :class:`..nets.calls.dispatch_cache.DispatchCache` keyed by arguments alone."""

    def __init__(self, net: Net, params: dict[str, Tensor] | Tensor) -> None:
        self._net, self._params = net, params
        self._tensors: list[Tensor] = (
            [params] if isinstance(params, Tensor) else [*params.values()]
        )
        self._values: dict[Any, CachedValue] = {}
        self._vjps: dict[Any, CachedVJP] = {}

    def forward(self, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the output, alone in a tuple; None for a call of a new kind."""
        key = cache_key(args)
        cached = self._values.get(key)
        if cached is not None:
            return cached.value([*self._tensors, *args])
        dispatch_cache = self._net._dispatch_cache
        if dispatch_cache is None or key is None:
            return None
        cached, leaves = dispatch_cache.value(self._params, args)
        if cached is None:
            return None
        store_bounded(self._values, key, cached)
        return cached.value(leaves)

    def vjp_entry(self, args: tuple[Any, ...]) -> tuple[CachedVJP | None, list[Tensor]]:
        """Return the program that serves calls like this one, and its leaves."""
        key = cache_key(args)
        cached = self._vjps.get(key)
        if cached is not None:
            return cached, [*self._tensors, *args]
        dispatch_cache = self._net._dispatch_cache
        if dispatch_cache is None or key is None:
            return None, []
        cached, leaves = dispatch_cache.vjp_entry(self._params, args)
        if cached is not None:
            store_bounded(self._vjps, key, cached)
        return cached, leaves
