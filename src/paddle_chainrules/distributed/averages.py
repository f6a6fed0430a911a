"""Averages of trees of tensors over all ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import chain
from typing import Any

from paddle import Tensor

from ..paddle_side.dtypes import is_differentiable
from ..transforms.containers.tree import flatten_tree
from .buffers import describe, named_leaves, sum_over_ranks
from .rounds import agree


def average(tree: Any, weight: float = 1.0) -> Any:
    """Average a tree of tensors over all ranks, in one round a dtype.

    Use it for values that differ from rank to rank: gradients of a shard, BatchNorm's
    statistics. It changes nothing of the caller's, and no gradient flows through it.

    Args:
        tree: floating-point or complex tensors, of the same shapes on all ranks; None
            stays None.
        weight: the positive weight of this rank's tree, such as its number of samples.

    Raises:
        TypeError: a leaf is neither None nor a floating-point or complex tensor.
        ValueError: the weight is not positive and finite.
        RankError: ranks disagree, or one failed or is gone.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import distributed
        >>> distributed.average({"mean": paddle.to_tensor([1.0, 2.0])})["mean"].tolist()
        [1.0, 2.0]
    """
    failure = _unfit_average(tree, weight)
    return reduce_tree("average", tree, (), weight, "mean", failure)


def reduce_tree(
    caller: str,
    tree: Any,
    lines: Iterable[str],
    weight: float,
    reduction: str,
    failure: Exception | None = None,
) -> Any:
    """Return a tree's weighted mean or sum over all ranks, in one buffer a dtype.

    Args:
        caller: the call, as errors name it.
        tree: floating-point or complex tensors and None.
        lines: what ranks must agree on besides.
        weight: the weight of this rank's tree.
        reduction: "mean" or "sum".
        failure: the error that keeps this rank from taking part, if there is one.
    """
    descriptions = (describe(name, leaf) for name, leaf in named_leaves(tree))
    weights = agree(caller, chain(lines, descriptions), weight, failure)
    scale = 1.0 if reduction == "sum" else weight / math.fsum(weights)
    leaves, structure = flatten_tree(tree)
    tensors = [leaf for leaf in leaves if leaf is not None]
    sums = iter(sum_over_ranks([t if scale == 1.0 else t * scale for t in tensors]))
    return structure.unflatten(None if leaf is None else next(sums) for leaf in leaves)


def unfit_weight(weight: Any) -> Exception | None:
    """Return the error of an unfit weight, or None."""
    if not isinstance(weight, (int, float)) or isinstance(weight, bool):
        return TypeError(
            f"the weight of a shard must be a number, got {type(weight).__name__}; "
            "give the number of its samples"
        )
    if weight > 0 and math.isfinite(weight):
        return None
    return ValueError(
        f"the weight of a shard must be positive and finite, got {weight}; a rank "
        "without samples has no share, so run fewer ranks, or larger batches"
    )


def _unfit_average(tree: Any, weight: Any) -> Exception | None:
    for name, leaf in named_leaves(tree):
        if leaf is not None and not (
            isinstance(leaf, Tensor) and is_differentiable(leaf)
        ):
            kind = leaf.dtype if isinstance(leaf, Tensor) else type(leaf).__name__
            return TypeError(
                f"average takes floating-point and complex tensors, got {kind} at "
                f"{name or 'the top'}; broadcast sends others from one rank"
            )
    return unfit_weight(weight)
