"""Outputs, gradients and requests, as they cross to Julia and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paddle import Tensor

from ..paddle_side.shared_memory import without_gaps
from ..transforms.containers.tree import flatten_tree

Packed = Any
"""An output for Julia: a tensor, or ``(structure, leaf, ...)`` for anything else, where
the structure has None for each leaf, and leaves may be no tensors."""


BackwardFunction = Callable[..., tuple[Any, ...]]
"""Function ``backward(params, args, last, cotangent or None, ...)``.

It takes one cotangent per output leaf, and gives gradients of the parameters in order
(one for theta) and of the inputs. None stands where there is no gradient, or where the
flags ``params`` and the Boolean ``args`` do not ask for it. With ``last`` it releases
what the backward pass needs; a later call makes that anew."""


def pack(output: Any) -> Packed:
    if isinstance(output, Tensor):
        return contiguous_detached(output)
    leaves, spec = flatten_tree(output)
    packed = (
        contiguous_detached(leaf) if isinstance(leaf, Tensor) else leaf
        for leaf in leaves
    )
    return (spec.unflatten([None] * len(leaves)), *packed)


def contiguous_detached(tensor: Tensor | None) -> Tensor | None:
    """Take a tensor off the graph and make it contiguous, as Julia reads it."""
    if tensor is None:
        return None
    if not tensor.stop_gradient:
        tensor = tensor.detach()
    return without_gaps(tensor)
