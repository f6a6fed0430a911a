"""A rank's own share: its samples, its random numbers."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np
import optree
from paddle import Tensor

from ..transforms.containers.tree import is_indexed
from .buffers import named_leaves
from .processes import rank, size


def shard(tree: Any) -> Any:
    """Return this rank's samples of a batch that all ranks have: consecutive rows.

    Sizes differ by one at most. Nothing is communicated.

    Args:
        tree: tensors or numpy arrays whose first dimension counts the samples, CSR and
            Packed, as many in all of them; None stays None.

    Raises:
        TypeError: a leaf is no array of one dimension or more.
        ValueError: arrays of different numbers of samples, or fewer samples than ranks.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import distributed
        >>> distributed.shard({"x": paddle.ones([5, 2])})["x"].shape[0]
        5
    """
    n, ranks = samples(tree, "shard"), size()
    if n < ranks:
        raise ValueError(
            f"shard needs a sample for each of {ranks} ranks, got {n}; run fewer "
            "ranks, or give larger batches"
        )
    return slice_rows(tree, n, rank(), ranks)


def slice_rows(tree: Any, n: int, index: int, count: int) -> Any:
    """Return shard ``index`` of ``count`` of each array of a tree, all of n samples."""
    rows = slice(n * index // count, n * (index + 1) // count)
    return optree.tree_map(lambda leaf: leaf[rows], tree, is_leaf=is_indexed)


def samples(tree: Any, caller: str) -> int:
    """Return how many samples the arrays of a tree have, the same number in each.

    Args:
        tree: arrays, and None.
        caller: the call, as errors name it.

    Raises:
        TypeError: a leaf is no array of one dimension or more.
        ValueError: there is no array, or their numbers of samples differ.
    """
    counts: dict[str, int] = {}
    for name, leaf in named_leaves(tree, is_indexed):
        if leaf is None:
            continue
        if is_indexed(leaf):
            counts[name or "the top"] = len(leaf)
            continue
        if not isinstance(leaf, (Tensor, np.ndarray)) or leaf.ndim == 0:
            raise TypeError(
                f"{caller} takes arrays whose first dimension counts the samples, got "
                f"{_kind(leaf)} at {name or 'the top'}; {REMEDY[caller]}"
            )
        counts[name or "the top"] = int(leaf.shape[0])
    if not counts:
        raise ValueError(
            f"{caller} needs an array of samples, got none; {REMEDY[caller]}"
        )
    if len(set(counts.values())) > 1:
        (a, m), *_, (b, n) = sorted(counts.items(), key=itemgetter(1))
        raise ValueError(
            f"{caller} needs as many samples in each array, got {m} at {a} and {n} at "
            f"{b}; {REMEDY[caller]}"
        )
    return next(iter(counts.values()))


REMEDY = {
    "shard": "shard what has samples by itself, and pass the rest as it is",
    "value_and_grad": "say by weight= what the shard counts for, or add up with "
    'reduction="sum"',
}
"""Remedies for arguments that do not tell their number of samples."""


def _kind(leaf: Any) -> str:
    return "a number" if isinstance(leaf, (Tensor, np.ndarray)) else type(leaf).__name__


def seed(number: int) -> int:
    """Return a seed of this rank's own, made from one that all ranks have.

    Args:
        number: not negative, and the same on all ranks; the same number gives the same
            seed. ``seed(step)`` gives each step and rank its own.

    Raises:
        ValueError: the number is negative, or no int.

    Examples:
        >>> from paddle_chainrules import distributed
        >>> distributed.seed(3) == distributed.seed(3) != distributed.seed(4)
        True
    """
    if not isinstance(number, int) or number < 0:
        raise ValueError(
            f"seed needs an int that is not negative, got {number!r}; number the steps "
            "from 0, for one"
        )
    return int(np.random.SeedSequence((number, rank())).generate_state(1)[0])
