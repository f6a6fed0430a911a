"""Functions that take one nesting apart, at a fraction of a general one's cost.

The text of such a function is written for the nesting: it looks at types, lengths and
keys, and names each leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any

import optree
from paddle import Tensor

from ..containers.tree import Tree, flatten_tree
from .keys import exactly

Unpack = Callable[[Tree], "tuple[Any, ...] | None"]


def make_unpack(tree: Tree) -> Unpack:
    """Return a function that gives the tensors of trees that are nested like this one.

    They come in the order of :func:`flatten_tree`. It returns None for other trees,
    where a dict has its keys in another order, and where a leaf that is no tensor has
    another value. Containers other than dicts with names, lists, tuples and named
    tuples are left to :func:`flatten_tree`. Leaves that take the position of a tensor
    are not checked.
    """
    builder = _UnpackBuilder()
    leaves = builder.leaves_of(tree, "tree")
    lines = "".join(f"    {line}\n" for line in builder.lines)
    returned = "".join(f"{leaf}, " for leaf in leaves)
    source = f"def unpack(tree):\n{lines}    return ({returned})\n"
    names = builder.names
    exec(compile(source, "<a nesting>", "exec"), names)
    result: Unpack = names["unpack"]
    return result


class _UnpackBuilder:
    """The lines of such a function, and the objects that they name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self._name_counter = count()

    def _new_name(self) -> str:
        return f"v{next(self._name_counter)}"

    def _bind_name(self, value: Any) -> str:
        name = self._new_name()
        self.names[name] = value
        return name

    def _return_none_if(self, condition: str) -> None:
        self.lines.append(f"if {condition}: return None")

    def leaves_of(self, subtree: Tree, name: str) -> list[str]:
        """Emit lines that unpack the subtree of a name; return its tensors' names."""
        kind = type(subtree)
        if isinstance(subtree, Tensor):
            return [name]
        if subtree is None:
            self._return_none_if(f"{name} is not None")
            return []
        if kind is dict and all(type(key) is str for key in subtree):
            return self._leaves_of_dict(subtree, name)
        if kind in (tuple, list) or _has_fields(subtree):
            self._return_none_if(f"type({name}) is not {self._bind_name(kind)}")
            self._return_none_if(f"len({name}) != {len(subtree)}")
            return self._leaves_of_all(subtree, self._assign_items(name, len(subtree)))
        return self._leaves_of_other(subtree, name)

    def _assign_items(self, name: str, number: int) -> list[str]:
        leaf_names = [self._new_name() for _ in range(number)]
        if leaf_names:
            self.lines.append(f"{''.join(f'{leaf}, ' for leaf in leaf_names)}= {name}")
        return leaf_names

    def _leaves_of_dict(self, subtree: dict[str, Any], name: str) -> list[str]:
        key_order = self._bind_name((*subtree,))
        self._return_none_if(f"type({name}) is not dict or (*{name},) != {key_order}")
        names = dict(
            zip(
                subtree,
                self._assign_items(f"{name}.values()", len(subtree)),
                strict=True,
            )
        )
        keys = sorted(subtree)
        return self._leaves_of_all([subtree[k] for k in keys], [names[k] for k in keys])

    def _leaves_of_other(self, subtree: Tree, name: str) -> list[str]:
        leaves, spec = flatten_tree(subtree)
        if spec.is_leaf():
            key = self._bind_name(exactly)
            self._return_none_if(
                f"{key}({name}) != {self._bind_name(exactly(subtree))}"
            )
            return []
        leaves_name, spec_name, flatten = (
            self._new_name(),
            self._new_name(),
            self._bind_name(flatten_tree),
        )
        same_spec = f"{spec_name} == {self._bind_name(spec)}"
        orders, expected_orders = (
            self._bind_name(key_orders),
            self._bind_name(key_orders(subtree)),
        )
        self.lines.append(f"{leaves_name}, {spec_name} = {flatten}({name})")
        self._return_none_if(
            f"not ({same_spec} and {orders}({name}) == {expected_orders})"
        )
        return self._leaves_of_all(leaves, self._assign_items(leaves_name, len(leaves)))

    def _leaves_of_all(
        self, subtrees: Iterable[Tree], names: Iterable[str]
    ) -> list[str]:
        results = map(self.leaves_of, subtrees, names)
        return [leaf for leaves in results for leaf in leaves]


def _has_fields(value: Tree) -> bool:
    """Tell whether it is a named tuple, which has no way of its own to be iterated."""
    kind = type(value)
    if not optree.is_namedtuple_class(kind) or kind.__iter__ is not tuple.__iter__:
        return False
    spec = optree.tree_structure(value, none_is_leaf=True)
    return spec.kind == optree.PyTreeKind.NAMEDTUPLE


def key_orders(tree: Tree) -> Any:
    """Return the orders of all dicts' keys, which the structure does not tell."""
    kind = type(tree)
    if kind is dict or (kind not in (tuple, list) and isinstance(tree, Mapping)):
        keys = [key if type(key) is str else exactly(key) for key in tree]
        return tuple(keys), _orders_of(tree.values())
    if isinstance(tree, tuple | list):
        results = _orders_of(tree)
        return results if any(results) else ()
    return ()


def _orders_of(subtrees: Iterable[Any]) -> tuple[Any, ...]:
    return tuple([() if isinstance(x, Tensor) else key_orders(x) for x in subtrees])
