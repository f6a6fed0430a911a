"""Tuples, lists, dicts and named tuples of tensors, taken apart and put together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import optree
import paddle
from paddle import Tensor

Tree = Any
"""A tensor, or tuples, lists, dicts and named tuples of them; other leaves pass."""


ONE_LEAF = optree.treespec_leaf(none_is_leaf=True)


def flatten_tree(tree: Tree) -> tuple[list[Any], optree.PyTreeSpec]:
    """Return leaves and structure; None is a leaf, so that it keeps its place."""
    if isinstance(tree, Tensor):
        return [tree], ONE_LEAF
    return optree.tree_flatten(tree, none_is_leaf=True)


def nesting(spec: optree.PyTreeSpec) -> str:
    """Return a structure in words: ``(*, *)`` is a tuple of two tensors."""
    inside = str(spec).removeprefix("PyTreeSpec(").removesuffix(", NoneIsLeaf)")
    return "* (one tensor)" if spec.is_leaf() else inside


WITHOUT_INDICES: dict[type, Any] = {}
"""By a type with indices beside values, the function that replaces indices with
None."""


def register(kind: type, parts: Any, of_parts: Any, without_indices: Any) -> None:
    """Have a kind that holds indices beside values be a tree of both.

    Args:
        parts: its leaves, what else it is, and the names of the leaves, of one.
        of_parts: one of what else it is, and of any leaves.
        without_indices: one with None in the place of indices, of one.
    """
    everywhere = optree.registry.__GLOBAL_NAMESPACE
    optree.register_pytree_node(kind, parts, of_parts, namespace=everywhere)
    WITHOUT_INDICES[kind] = without_indices


def is_indexed(part: Any) -> bool:
    """Tell whether it holds indices beside values, so that leaves share no axis.

    It counts its samples by ``len``, and slices of them are parts of it.
    """
    return type(part) in WITHOUT_INDICES


def without_indices(tree: Tree) -> Tree:
    """Return the tree, with None in the place of indices that stand beside values."""
    return optree.tree_map(
        lambda part: WITHOUT_INDICES[type(part)](part) if is_indexed(part) else part,
        tree,
        is_leaf=is_indexed,
        none_is_leaf=True,
    )


def cotangent_leaves(cotangent: Tree, spec: optree.PyTreeSpec) -> list[Any]:
    """Return the leaves of a cotangent, which is nested as the output.

    None may stand for a part of it, nested or not, that is zero.

    Raises:
        ValueError: it is nested otherwise.
    """
    leaves, result = flatten_tree(cotangent)
    if result is not ONE_LEAF and any(map(_is_index, leaves)):
        leaves, result = flatten_tree(without_indices(cotangent))
    if result is spec or result == spec:
        return leaves
    spread = _with_none_leaves(iter(leaves), result, spec)
    if spread is None:
        raise ValueError(
            f"the cotangent is nested as {nesting(result)}, the output as "
            f"{nesting(spec)}; give one tensor, or None for zero, per output"
        )
    return spread


def _is_index(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.dtype in (paddle.int64, paddle.int32)


def _with_none_leaves(
    leaves: Iterator[Any], result: optree.PyTreeSpec, spec: optree.PyTreeSpec
) -> list[Any] | None:
    """Return leaves with None for all parts of None; None if structures differ."""
    if result.is_leaf():
        leaf = next(leaves)
        if spec.is_leaf():
            return [leaf]
        return [None] * spec.num_leaves if leaf is None else None
    if result.type is not spec.type or result.entries() != spec.entries():
        return None
    row: list[Any] = []
    for one, other in zip(result.children(), spec.children(), strict=True):
        part = _with_none_leaves(leaves, one, other)
        if part is None:
            return None
        row += part
    return row
