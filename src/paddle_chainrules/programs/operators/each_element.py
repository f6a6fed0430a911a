"""Operators whose results are made element by element; tensors are broadcast."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paddle import Tensor

from .calls import BatchCall
from .entry import TABLE
from .shared import aligned, ops


def of_each_element(*names: str) -> None:
    """Say so of operators in the table, from which their batch rule follows, and that
    a program with them serves any number of samples."""
    for name in names:
        TABLE[name].elementwise = True
        TABLE[name].batch = broadcast_in_batches(name)


def broadcast_in_batches(name: str) -> Callable[[BatchCall], list[Any]]:
    """The batch rule where tensors are broadcast, or all of one shape."""

    def rule(call: BatchCall) -> list[Any]:
        tensors = [i for i, a in enumerate(call.args) if isinstance(a, Tensor)]
        ndim = max(map(call.ndim, tensors))
        args = [
            full(call, i, ndim) if i in tensors else arg
            for i, arg in enumerate(call.args)
        ]
        return TABLE[name].every(args)

    return rule


def full(call: BatchCall, i: int, ndim: int | None = None) -> Any:
    """Argument i with samples, of so many dimensions for each."""
    arg = call.args[i]
    if not isinstance(arg, Tensor):
        return arg
    if i not in call.batched:
        arg = ops.expand(arg, [call.size, *arg.shape])
    return arg if ndim is None else aligned(arg, ndim)
