"""A function's outputs, separate from its arguments and from each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.shared_memory import has_buffer, share_memory
from .effects import tensors_among


def unaliased(outputs: Sequence[Any], inputs: Iterable[Any]) -> list[Any]:
    """Return the outputs, cloned where they share memory with an input.

    A function may hand back its input or a view of it; the caller's later changes to
    the one must not show in the other.
    """
    input_tensors = [x for x in tensors_among(inputs) if has_buffer(x)]
    return [
        leaf.clone()
        if isinstance(leaf, Tensor)
        and has_buffer(leaf)
        and any(map(leaf._is_shared_buffer_with, input_tensors))
        else leaf
        for leaf in outputs
    ]


def detached(outputs: Sequence[Any], inputs: Iterable[Any]) -> list[Any]:
    """Return the outputs off the graph and in memory of their own."""
    detached_outputs = [
        leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in outputs
    ]
    return unaliased(detached_outputs, inputs)


def distinct_outputs(outputs: Sequence[Any], fn_inputs: Sequence[Any]) -> list[Any]:
    """Return the outputs, copied where one is an input, a leaf or an alias."""
    input_ids = set(map(id, fn_inputs))
    results: list[Any] = []
    for leaf in outputs:
        if is_differentiable(leaf) and (
            leaf.is_leaf or id(leaf) in input_ids or _shares_memory(leaf, results)
        ):
            leaf = paddle.assign(leaf)
        results.append(leaf)
    return results


def _shares_memory(leaf: Tensor, others: Iterable[Any]) -> bool:
    return any(
        other is not leaf and share_memory(leaf, other)
        for other in tensors_among(others)
    )
