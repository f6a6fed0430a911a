"""Derivatives by the input as programs, which are kept with the net."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paddle import Tensor

from ...paddle_side.listener import listener
from ...transforms.as_programs.jit import Jitted, run_strictly
from ...transforms.containers.tree import flatten_tree
from ..net import Net


def run_kept(net: Any, key: Any, fn: Callable[..., Any], *args: Any) -> Any:
    """``fn(*args)`` as a program, kept where the net's own calls are programs."""
    empty = any(isinstance(x, Tensor) and x.size == 0 for x in flatten_tree(args)[0])
    if empty or listener() is not None:
        return fn(*args)
    kept = net.derivative_programs if isinstance(net, Net) else None
    program = Jitted(fn, strict=True)
    if kept is not None:
        program = kept.setdefault(key, program)
    return run_strictly(program, fn, *args, kept=kept is not None)
