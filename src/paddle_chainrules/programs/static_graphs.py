"""Calls from within ``paddle.jit.to_static``, whose static graphs hold no tensors.

The first thing that a public function does is ``need_tensors(fallback(True))``.
"""

from __future__ import annotations

from paddle.base.framework import global_var
from paddle.jit.sot.psdb import fallback

from .capture_error import CaptureError

__all__ = ["fallback", "need_tensors"]


def need_tensors(_: None) -> None:
    """Refuse to compute in a static graph of Paddle's.

    Args:
        _: what ``fallback(True)`` gives in the caller's own code. There it has
            ``to_static``, which reads the code that is to run, end its graph before the
            call, run that as it is, and go on after it.

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
