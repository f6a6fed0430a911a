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


def unpacking(tree: Tree) -> Unpack:
    """Return a function that gives the tensors of trees that are nested like this one.

    They come in the order of :func:`flatten_tree`. It returns None for other trees,
    where a dict has its keys in another order, and where a leaf that is no tensor has
    another value. Containers other than dicts with names, lists, tuples and named
    tuples are left to :func:`flatten_tree`. Leaves in the places of tensors are not
    looked at.
    """
    text = _Text()
    leaves = text.leaves_of(tree, "tree")
    lines = "".join(f"    {line}\n" for line in text.lines)
    given = "".join(f"{leaf}, " for leaf in leaves)
    source = f"def unpack(tree):\n{lines}    return ({given})\n"
    names = text.names
    exec(compile(source, "<a nesting>", "exec"), names)
    result: Unpack = names["unpack"]
    return result


class _Text:
    """The lines of such a function, and the objects that they name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self._numbers = count()

    def _new(self) -> str:
        return f"v{next(self._numbers)}"

    def _named(self, value: Any) -> str:
        name = self._new()
        self.names[name] = value
        return name

    def _unless(self, condition: str) -> None:
        self.lines.append(f"if {condition}: return None")

    def leaves_of(self, part: Tree, name: str) -> list[str]:
        """Write lines that take a part with this name apart; return its tensors."""
        kind = type(part)
        if isinstance(part, Tensor):
            return [name]
        if part is None:
            self._unless(f"{name} is not None")
            return []
        if kind is dict and all(type(key) is str for key in part):
            return self._of_dict(part, name)
        if kind in (tuple, list) or _has_fields(part):
            self._unless(f"type({name}) is not {self._named(kind)}")
            self._unless(f"len({name}) != {len(part)}")
            return self._all(part, self._each(name, len(part)))
        return self._of_other(part, name)

    def _each(self, name: str, number: int) -> list[str]:
        names = [self._new() for _ in range(number)]
        if names:
            self.lines.append(f"{''.join(f'{each}, ' for each in names)}= {name}")
        return names

    def _of_dict(self, part: dict[str, Any], name: str) -> list[str]:
        order = self._named((*part,))
        self._unless(f"type({name}) is not dict or (*{name},) != {order}")
        names = dict(zip(part, self._each(f"{name}.values()", len(part)), strict=True))
        keys = sorted(part)
        return self._all([part[k] for k in keys], [names[k] for k in keys])

    def _of_other(self, part: Tree, name: str) -> list[str]:
        leaves, spec = flatten_tree(part)
        if spec.is_leaf():
            key = self._named(exactly)
            self._unless(f"{key}({name}) != {self._named(exactly(part))}")
            return []
        result, nesting, flatten = self._new(), self._new(), self._named(flatten_tree)
        same = f"{nesting} == {self._named(spec)}"
        orders, its = self._named(key_orders), self._named(key_orders(part))
        self.lines.append(f"{result}, {nesting} = {flatten}({name})")
        self._unless(f"not ({same} and {orders}({name}) == {its})")
        return self._all(leaves, self._each(result, len(leaves)))

    def _all(self, parts: Iterable[Tree], names: Iterable[str]) -> list[str]:
        results = map(self.leaves_of, parts, names)
        return [leaf for leaves in results for leaf in leaves]


def _has_fields(part: Tree) -> bool:
    """Tell whether it is a named tuple, which has no way of its own to be iterated."""
    kind = type(part)
    if not optree.is_namedtuple_class(kind) or kind.__iter__ is not tuple.__iter__:
        return False
    spec = optree.tree_structure(part, none_is_leaf=True)
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


def _orders_of(parts: Iterable[Any]) -> tuple[Any, ...]:
    return tuple([() if isinstance(x, Tensor) else key_orders(x) for x in parts])
