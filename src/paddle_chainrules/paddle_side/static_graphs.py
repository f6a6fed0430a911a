"""Calls from within ``paddle.jit.to_static``, whose static graphs hold no tensors.

The first thing that a public function does is ``need_tensors(sot.fallback(True))``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from paddle.base.framework import global_var

from ..errors import CaptureError

__all__ = ["need_tensors", "sot"]

SOT = "paddle.jit.sot.psdb"
"""Paddle's module with the function that ends a graph.

``to_static`` loads it, with 60 other modules.
"""

_loaded = sys.modules.get


class _NoStaticGraphs:
    """A substitute for that module where nothing makes static graphs."""

    fallback = bool
    """Does nothing with ``True``, faster than a function of Python's."""


class _Sot:
    """Access to Paddle's module for functions that become static graphs."""

    __slots__ = ()

    @property
    def fallback(self) -> Callable[[bool], None]:
        """The function that ends a graph. Paddle knows it by its identity."""
        result: Any = _loaded(SOT, _NoStaticGraphs)
        return result.fallback


sot = _Sot()


def need_tensors(_: None) -> None:
    """Refuse to compute in a static graph of Paddle.

    Args:
        _: the result of ``sot.fallback(True)`` in the caller's own code. ``to_static``
            reads the code that is to run. At this call it ends its graph, runs the call
            as it is, and goes on after it.

    Raises:
        CaptureError: there are no tensors, in a static graph of a whole function.
    """
    if global_var._dygraph_tracer_ is None:  # in half the time of in_dynamic_mode
        raise CaptureError(
            "nets and transforms of paddle_chainrules compute with tensors, and a "
            "static graph of Paddle's has none (paddle.jit.to_static with "
            "full_graph=True, or paddle.enable_static): use paddle_chainrules.jit "
            "instead, or to_static with full_graph=False, which goes round such calls"
        )
