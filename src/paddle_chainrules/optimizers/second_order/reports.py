"""Reports of searches to users: their ``on_step``, and how results are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle

from ...paddle_side.autograd.grad_mode import grad_mode

OnStep = Callable[..., Any]

STOPPED = "on_step raised StopIteration"


def reporter(on_step: OnStep | None) -> Callable[..., bool]:
    """Return a function that calls the user's, and tells whether to end the search.

    Gradients are on or off there as they are now.
    """
    enabled = paddle.is_grad_enabled()

    def call(*args: Any) -> bool:
        if on_step is not None:
            try:
                with grad_mode(enabled):
                    on_step(*args)
            except StopIteration:
                return True
        return False

    return call


def one_line_repr(results: Any) -> str:
    """Show the numbers and words of a named tuple."""
    pairs = [*zip(results._fields, results, strict=True)][1:]
    shown = ", ".join(
        f"{k}={v!r}" for k, v in pairs if isinstance(v, int | float | str)
    )
    return f"{type(results).__name__}({shown})"
