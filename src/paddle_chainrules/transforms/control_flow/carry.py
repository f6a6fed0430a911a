"""The carry, which goes from one step of a loop to the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import optree
import paddle
from paddle import Tensor

from ...paddle_side.arguments import checked_integer
from ...paddle_side.dtypes import dtype_name
from ...paddle_side.rules.operators import install_rules
from ..as_programs.jitted import Jitted
from ..containers.tree import Tree, flatten_tree, nesting
from ..recordings.effects import tensors_among, versions

NUMBERS: tuple[type[Any], ...] = bool, int, float, complex, np.ndarray, np.generic
"""Types of values that are made tensors."""


def program_of(step: Callable[..., Any]) -> Jitted:
    """Return a step as a program, for this loop alone unless it is ``jit(step)``.

    Only the caller of jit knows that it depends on no object of Python that changes.
    """
    return step if isinstance(step, Jitted) else Jitted(step)


def as_tensor(leaf: Any) -> Any:
    """Make a tensor from a number or an array; return anything else as it is."""
    return paddle.to_tensor(leaf) if isinstance(leaf, NUMBERS) else leaf


def copy(leaf: Any) -> Any:
    """Copy a tensor; return anything else as it is."""
    return leaf.clone() if isinstance(leaf, Tensor) else leaf


def call_step_checked(
    step: Callable[..., Any], carry: Tree, x: Tree, is_first: bool
) -> Any:
    """Call a step natively; refuse one that writes into its arguments.

    It may be on a graph of the caller's.

    Args:
        is_first: whether the carry is the caller's, who keeps it as it is.

    Raises:
        NotImplementedError: it writes.
    """
    install_rules()
    carry = optree.tree_map(copy, carry, none_is_leaf=True) if is_first else carry
    x = optree.tree_map(copy, x, none_is_leaf=True)
    tensors = tensors_among([*flatten_tree(carry)[0], *flatten_tree(x)[0]])
    with inputs_unchanged(tensors):
        return step(carry, x)


class inputs_unchanged:
    """A context that refuses a step that writes into what it is given.

    Args:
        tensors: what the step is given.
        refusal: the words of the error.

    Raises:
        NotImplementedError: at the end, if one was written into.
    """

    def __init__(
        self,
        tensors: Sequence[Tensor],
        refusal: str = "a step of scan writes in place into the carry or a part of xs, "
        "which others read; give new tensors, as c + x for c.add_(x)",
    ) -> None:
        self._tensors, self.refusal = tensors, refusal
        self._before = versions(tensors)

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None and versions(self._tensors) != self._before:
            raise NotImplementedError(self.refusal)


def with_distinct_tensors(leaves: Sequence[Any]) -> list[Any]:
    """Return the leaves, with copies of tensors that occur again."""
    met_ids: set[int] = set()
    results = []
    for leaf in leaves:
        if isinstance(leaf, Tensor):
            leaf = leaf.clone() if id(leaf) in met_ids else leaf
            met_ids.add(id(leaf))
        results.append(leaf)
    return results


def check_same_carry(
    before: Sequence[Any],
    spec: optree.PyTreeSpec,
    after: Sequence[Any],
    after_spec: optree.PyTreeSpec,
) -> None:
    """Refuse another nesting, or other shapes and dtypes.

    Raises:
        ValueError: they differ.
    """
    if after_spec != spec:
        raise ValueError(
            f"a step goes from {nesting(spec)} to {nesting(after_spec)}, and these "
            "must be nested alike; give back what it was given, moved"
        )
    for k, (a, b) in enumerate(zip(before, after, strict=True)):
        if leaf_kind(a) != leaf_kind(b):
            raise ValueError(
                f"a step goes from {leaf_kind(a)} to {leaf_kind(b)} at leaf {k}; have "
                "the same shape and dtype, by astype or a start of what it gives"
            )


def leaf_kind(leaf: Any) -> str:
    """Return the dtype and shape of a tensor, and anything else as text."""
    if not isinstance(leaf, Tensor):
        return repr(leaf)
    return f"{dtype_name(leaf.dtype)}{list(leaf.shape)}"


def xs_leaf(x: Any) -> Tensor | None:
    """Return a leaf of ``xs``, an array as a tensor.

    Raises:
        TypeError: it is something else.
    """
    if x is None or isinstance(x, Tensor):
        return x
    if isinstance(x, np.ndarray) and x.dtype.kind in "fiubc":
        return paddle.to_tensor(x)
    raise TypeError(
        f"xs of scan is a tree of tensors, got {type(x).__name__} in it; convert it by "
        "paddle.to_tensor, or close over it"
    )


def number_of_steps(xs: Sequence[Any], length: int | None) -> int:
    """Return the number of steps: the length, or the first axis of all tensors.

    Raises:
        ValueError: they are not one number.
        TypeError: the length is no integer.
    """
    sizes = {x.shape[0] if x.ndim else None for x in xs if isinstance(x, Tensor)}
    if length is not None:
        sizes.add(checked_integer("length", length))
    if len(sizes) != 1 or None in sizes:
        sizes_text = ", ".join(sorted(map(str, sizes))) or "none"
        raise ValueError(
            "scan has one number of steps, the length or the first axis of all xs, and "
            f"is given {sizes_text}; give tensors with a part for each step, or length"
        )
    (count,) = sizes
    if count is None or count < 0:
        raise ValueError(f"scan is given {count} steps; give a number from 0 on")
    return int(count)


def fill_tensors(leaves: Sequence[Any], tensors: Iterable[Tensor]) -> list[Any]:
    """Return leaves with their tensors replaced in order; others stay."""
    new_tensors = iter(tensors)
    return [next(new_tensors) if isinstance(x, Tensor) else x for x in leaves]


def stack_steps(steps: Sequence[Sequence[Any]]) -> list[Any]:
    """Stack the leaves of all steps along a new first axis."""
    return [
        values[0] if values[0] is None else paddle.stack([*values])
        for values in zip(*steps, strict=True)
    ]
