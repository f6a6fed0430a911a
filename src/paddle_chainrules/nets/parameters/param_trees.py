"""Parameters nested in another way than a flat dict: trees with the same leaves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import optree

from ...transforms.containers.tree import Tree, nesting


class ParamTree(tuple[str, ...]):
    """The names of the parameters in the order of a tree's leaves, and its structure.

    Where there are dicts, the keys and indices on the way to a leaf, with dots between,
    are its name. A tree of tuples, lists and named tuples alone has the leaves in
    forward order.
    """

    structure: optree.PyTreeSpec

    @classmethod
    def of(
        cls, params: Tree, names: Sequence[str]
    ) -> tuple[ParamTree, dict[str, Any]] | None:
        """Return its structure and its leaves by name; None if the names differ."""
        paths, leaves, structure = optree.tree_flatten_with_path(
            params, none_is_leaf=True
        )
        leaf_names = [".".join(map(str, path)) for path in paths]
        if not _has_dict(params) and len(leaves) == len(names):
            leaf_names = [*names]
        if sorted(leaf_names) != sorted(names):
            return None
        tree = cls(leaf_names)
        tree.structure = structure
        return tree, dict(zip(leaf_names, leaves, strict=True))

    def nested(self, values: Mapping[str, Any]) -> Tree:
        """Return values by name, nested as the tree."""
        return self.structure.unflatten([values[name] for name in self])

    def leaves(self, tree: Tree) -> dict[str, Any]:
        """Return the leaves of a tree of the same structure by name, None among them.

        Raises:
            ValueError: it is nested otherwise.
        """
        leaves, structure = optree.tree_flatten(tree, none_is_leaf=True)
        if structure != self.structure:
            raise ValueError(
                f"into for the parameters is nested as {nesting(structure)}, the "
                f"parameters as {nesting(self.structure)}; they must be equal, with "
                "None where one is not wanted"
            )
        return dict(zip(self, leaves, strict=True))


def _has_dict(tree: Tree) -> bool:
    if isinstance(tree, Mapping):
        return True
    return isinstance(tree, list | tuple) and any(map(_has_dict, tree))
