"""A function of a list of leaves, made of a function and the kind of its calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from paddle import Tensor

from ...paddle_side.traced_numbers import Formula, NumberUses
from ..containers.tree import flatten_tree
from .changing_numbers import NumberInputs, numbers_to_tensors
from .recompiling import STATIC, kinds_of
from .static_arguments import StaticValues


class CallNesting(NamedTuple):
    """How the arguments of a call are made of its leaves.

    Attributes:
        spec: the nesting of the arguments that are not static.
        leaf_indices: each leaf's index among the distinct ones; None if no tensor is
            given twice.
        static: the static arguments.
        inputs: the numbers among the leaves that are inputs.
    """

    spec: Any
    leaf_indices: tuple[int, ...] | None
    static: StaticValues
    inputs: NumberInputs

    def all_leaves(self, leaves: list[Any]) -> list[Any]:
        """Return the leaves, with those that are given twice."""
        indices = self.leaf_indices
        return leaves if indices is None else [leaves[k] for k in indices]

    def kinds(self, leaves: Sequence[Any], further: dict[str, Any]) -> dict[str, Any]:
        """Return what is told of a call where programs are listed."""
        static = {f"{STATIC} {n!r}": value for n, value in self.static.items}
        all_leaves = self.all_leaves(self.inputs.to_placeholders(leaves))
        return kinds_of(self.spec, all_leaves, static | further)


class FunctionOfLeaves:
    """A function of the leaves of its arguments.

    Args:
        fn: the function.
        structure: how its arguments are made of the leaves.
        run_once: gives a context for each call of fn.

    Attributes:
        divisions: quotients and powers of numbers among the leaves, of the last call.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        structure: CallNesting,
        run_once: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._fn, self.structure, self._run_once = fn, structure, run_once
        self.divisions: Sequence[Formula] = ()

    def __call__(self, leaves: list[Any]) -> tuple[list[Any], Any]:
        """Return the leaves of the results, and how they are nested."""
        structure, uses = self.structure, NumberUses(set(), [])
        if structure.inputs.positions:
            leaves = structure.inputs.to_traced_numbers(leaves, uses)
        args, kwargs = structure.spec.unflatten(structure.all_leaves(leaves))
        args = [*args]
        structure.static.put_back(args, kwargs)
        with self._run_once():
            result = self._fn(*args, **kwargs)
        outputs, out_spec = flatten_tree(result)
        if uses.divisions:
            self.divisions = uses.divisions
        return numbers_to_tensors(outputs, out_spec, uses.needed)

    def check_divisions(self, leaves: Sequence[Any]) -> None:
        """Divide numbers as Python does, since a tensor's gives what is no number.

        Raises:
            ZeroDivisionError: Python divides by a number that is zero.
        """
        for division in self.divisions:
            division(leaves)


def distinct_leaf_indices(leaves: list[Any]) -> tuple[int, ...] | None:
    """Return each leaf's index among distinct leaves; None if no tensor repeats."""
    tensors = [id(leaf) for leaf in leaves if isinstance(leaf, Tensor)]
    if len(tensors) == len({*tensors}):
        return None
    first: dict[Any, int] = {}
    keys = (
        id(leaf) if isinstance(leaf, Tensor) else (i,) for i, leaf in enumerate(leaves)
    )
    return tuple([first.setdefault(key, len(first)) for key in keys])
