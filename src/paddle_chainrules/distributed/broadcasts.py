"""Broadcasts from one rank to all."""

from __future__ import annotations

from typing import Any

from paddle import Tensor

from ..transforms.containers.tree import flatten_tree
from .buffers import as_bytes, describe, from_bytes, named_leaves
from .processes import size
from .rounds import agree, send


def broadcast(tree: Any, source: int = 0) -> Any:
    """Send the tensors of one rank to all ranks, bit for bit and in one round.

    Use it to start all ranks from equal parameters.

    Args:
        tree: tensors of any dtypes, of the same shapes on all ranks; leaves of other
            kinds stay each rank's own.
        source: the rank that sends.

    Returns:
        A tree of new tensors, nested as the one given.

    Raises:
        ValueError: there is no such rank.
        RankError: ranks disagree, or one failed or is gone.

    Examples:
        >>> from paddle_chainrules import FCNet, distributed
        >>> params = distributed.broadcast(FCNet((3, 5, 2)).init(seed=0))
        >>> list(params["0.weight"].shape)
        [3, 5]
    """
    failure = None
    if not (isinstance(source, int) and 0 <= source < size()):
        failure = ValueError(
            f"broadcast needs the rank of the source, 0 to {size() - 1}, got {source!r}"
        )
    lines = (describe(name, leaf) for name, leaf in named_leaves(tree))
    agree(f"broadcast from rank {source}", lines, failure=failure)
    leaves, structure = flatten_tree(tree)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    buffer = as_bytes(tensors)
    if buffer.size:
        buffer = send(buffer, source)
    results = iter(from_bytes(buffer, tensors))
    return structure.unflatten(
        next(results) if isinstance(leaf, Tensor) else leaf for leaf in leaves
    )
