"""Reports of searches to users: their ``on_step``, and how results are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle

from ...paddle_side.autograd.grad_mode import grad_mode

OnStep = Callable[..., Any]


def with_callers_grad_mode(on_step: OnStep | None) -> OnStep | None:
    """Return the same function, with gradients on or off as they are now."""
    if on_step is None:
        return None
    enabled = paddle.is_grad_enabled()

    def call(*args: Any) -> Any:
        with grad_mode(enabled):
            return on_step(*args)

    return call


def one_line_repr(results: Any) -> str:
    """Show a named tuple without its first entry, the parameters."""
    pairs = [*zip(results._fields, results, strict=True)][1:]
    shown = ", ".join(f"{name}={value!r}" for name, value in pairs)
    return f"{type(results).__name__}({shown})"
