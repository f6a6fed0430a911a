"""Columns of tensors by name: coordinates, and what is differentiated by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ...paddle_side.dtypes import dtype_name, is_differentiable
from ...transforms.containers.tree import Tree, flatten_tree


class Column(NamedTuple):
    """A tensor in a tree, or one column of it: an index of the last dimension.

    The tree is a tensor itself where there is no key.
    """

    key: Any
    at: int | None

    def of(self, tree: Tree) -> Tensor:
        """Return the named column; its shape is [n, 1] if it is one of several."""
        tensor: Tensor = self.tensor_in(tree)
        if self.at is None:
            return tensor
        return tensor[..., self.at : self.at + 1]

    def tensor_in(self, tree: Tree) -> Any:
        """Return the tensor of the tree that holds the column."""
        return tree if self.key is None else tree[self.key]

    def direction(self, tree: Tree) -> Tensor:
        """Return the direction of this column: ones in it, zeros beside it.

        It is one row if the column is one of several.
        """
        tensor = self.tensor_in(tree)
        if self.at is None:
            return paddle.ones_like(tensor)
        unit = paddle.zeros([tensor.shape[-1]], tensor.dtype)
        unit[self.at] = 1.0
        return unit.reshape([1] * (tensor.ndim - 1) + [-1])


def column(tree: Tree, name: Any, what: str, single: bool) -> Column:
    """Return the column that a name stands for: a key, an index, or both in a tuple.

    Args:
        what: the tree, in errors.
        single: whether it has to be one column alone.

    Raises:
        ValueError: there is none of this name, or there are several.
    """
    if isinstance(tree, Tensor):
        key, index = None, name
    else:
        key, index = name if type(name) is tuple and len(name) == 2 else (name, None)
        key = _key(tree, key, what)
    tensor = tree if key is None else tree[key]
    if not isinstance(tensor, Tensor):
        raise ValueError(
            f"{what} {name!r} is {type(tensor).__name__}, no tensor; derivatives are "
            "of tensors and by tensors"
        )
    check_floating(f"{what} {name!r}", tensor)
    is_only_column = single and tensor.ndim <= (key is not None)
    width = 1 if is_only_column or not tensor.ndim else int(tensor.shape[-1])
    if index is None:
        if single and width != 1 and tensor.ndim > 1:
            key_text = "" if key is None else f"{key!r}, "
            raise ValueError(
                f"{what} {name!r} has {width} columns, shape {list(tensor.shape)}; "
                f"name one of them, such as ({key_text}0)"
            )
        return Column(key, None)
    is_index = isinstance(index, int) and not isinstance(index, bool)
    has_columns = is_only_column or tensor.ndim > 0
    if not is_index or not has_columns or not -width <= index < width:
        raise ValueError(
            f"{what} of shape {list(tensor.shape)} has no column {index!r}; give an "
            f"index from 0 to {width - 1}"
        )
    return Column(key, None if is_only_column else index % width)


def with_distinct_tensors(tree: Tree) -> Tree:
    """Return the tree with copies of tensors that are in it twice.

    So all its tensors are distinct objects.
    """
    tensors, fill = tensors_of(tree)
    index_of: dict[int, int] = {}
    first_index = [index_of.setdefault(id(x), i) for i, x in enumerate(tensors)]
    if len(index_of) == len(tensors):
        return tree
    return fill(
        [x if i == first_index[i] else x.clone() for i, x in enumerate(tensors)]
    )


def tensors_of(tree: Tree) -> tuple[list[Tensor], Callable[[Sequence[Tensor]], Tree]]:
    """Return the tensors in a tree, and a function that replaces them by others."""
    leaves, spec = flatten_tree(tree)
    positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def fill(tensors: Sequence[Tensor]) -> Tree:
        new_leaves = [*leaves]
        for i, tensor in zip(positions, tensors, strict=True):
            new_leaves[i] = tensor
        return spec.unflatten(new_leaves)

    return [leaves[i] for i in positions], fill


def check_floating(what: str, tensor: Any) -> None:
    """Refuse what has no derivatives."""
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"{what} is {type(tensor).__name__}; derivatives are of tensors and by "
            "them, so give paddle.to_tensor of numbers, and name parts of trees: "
            "{'u_x': ('u', 'x')}"
        )
    if not is_differentiable(tensor):
        raise TypeError(
            f"{what} is {dtype_name(tensor.dtype)}; derivatives are of floating "
            "tensors and by them, so give it as float32 or float64, as the net is"
        )


def _key(tree: Any, key: Any, what: str) -> Any:
    fields = getattr(tree, "_fields", ())
    if key in fields:
        return fields.index(key)
    if isinstance(tree, Mapping) and key in tree:
        return key
    is_index = isinstance(key, int) and not isinstance(key, bool)
    if isinstance(tree, tuple | list) and is_index and -len(tree) <= key < len(tree):
        return key % len(tree)
    if isinstance(tree, Mapping):
        choices = ", ".join(map(repr, tree))
    elif isinstance(tree, tuple | list):
        choices = ", ".join(map(repr, fields or range(len(tree))))
    else:
        raise ValueError(
            f"{what} is {type(tree).__name__}; derivatives are of tensors, and of "
            "dicts, tuples and lists of them"
        )
    if key is None:
        raise ValueError(
            f"{what} has parts, and none of them is named; name one of {choices}, for "
            "divergence and curl all by of="
        )
    raise ValueError(f"{what} has no part {key!r}; use one of {choices}")
