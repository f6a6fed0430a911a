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
    text = str(spec).removeprefix("PyTreeSpec(").removesuffix(", NoneIsLeaf)")
    return "* (one tensor)" if spec.is_leaf() else text


WITHOUT_INDICES: dict[type, Any] = {}
"""By a type with indices beside values, the function that replaces indices with
None."""


def register(kind: type, flatten: Any, unflatten: Any, without_indices: Any) -> None:
    """Have a kind that holds indices beside values be a tree of both.

    Args:
        flatten: from an object to its leaves, its metadata and the leaves' names.
        unflatten: from metadata and any leaves to an object.
        without_indices: from an object to one with None for its indices.
    """
    everywhere = optree.registry.__GLOBAL_NAMESPACE
    optree.register_pytree_node(kind, flatten, unflatten, namespace=everywhere)
    WITHOUT_INDICES[kind] = without_indices


def is_indexed(value: Any) -> bool:
    """Tell whether it holds indices beside values, so that leaves share no axis.

    It counts its samples by ``len``, and its slices are of the same kind.
    """
    return type(value) in WITHOUT_INDICES


def without_indices(tree: Tree) -> Tree:
    """Return the tree, with None for indices that stand beside values."""
    return optree.tree_map(
        lambda subtree: (
            WITHOUT_INDICES[type(subtree)](subtree) if is_indexed(subtree) else subtree
        ),
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
    leaves, cotangent_spec = flatten_tree(cotangent)
    if cotangent_spec is not ONE_LEAF and any(map(_is_index, leaves)):
        leaves, cotangent_spec = flatten_tree(without_indices(cotangent))
    if cotangent_spec is spec or cotangent_spec == spec:
        return leaves
    spread = _with_none_leaves(iter(leaves), cotangent_spec, spec)
    if spread is None:
        raise ValueError(
            f"the cotangent is nested as {nesting(cotangent_spec)}, the output as "
            f"{nesting(spec)}; give one tensor, or None for zero, per output"
        )
    return spread


def _is_index(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.dtype in (paddle.int64, paddle.int32)


def _with_none_leaves(
    leaves: Iterator[Any], cotangent_spec: optree.PyTreeSpec, spec: optree.PyTreeSpec
) -> list[Any] | None:
    """Expand None to a None for each leaf; return None if structures differ."""
    if cotangent_spec.is_leaf():
        leaf = next(leaves)
        if spec.is_leaf():
            return [leaf]
        return [None] * spec.num_leaves if leaf is None else None
    if (
        cotangent_spec.type is not spec.type
        or cotangent_spec.entries() != spec.entries()
    ):
        return None
    all_leaves: list[Any] = []
    for child, out_child in zip(
        cotangent_spec.children(), spec.children(), strict=True
    ):
        child_leaves = _with_none_leaves(leaves, child, out_child)
        if child_leaves is None:
            return None
        all_leaves += child_leaves
    return all_leaves
