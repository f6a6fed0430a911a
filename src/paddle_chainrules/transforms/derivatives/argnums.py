"""Selection of the arguments that a transform differentiates with respect to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import Any, NamedTuple

from paddle import Tensor

Argnums = int | Sequence[int]
"""A position, counted from 0 or, if negative, from the last; or several of them."""


class Selection(NamedTuple):
    """A call as a function of some of its arguments."""

    fn: Callable[..., Any]
    """Function of the selected arguments alone, each once."""
    selected: tuple[Any, ...]
    positions: tuple[int, ...]
    """Positions at which the function takes each of them."""
    others: tuple[Any, ...]
    """The arguments that are not differentiated by."""
    requested: tuple[int, ...] | None
    """Index in ``selected`` of each requested argument; None for a single one."""

    def nested(self, trees: Sequence[Any]) -> Any:
        """Return trees of the selected arguments, nested as argnums asks for."""
        if self.requested is None:
            return trees[0]
        return tuple(trees[i] for i in self.requested)


def positions_of(argnums: Any) -> tuple[bool, tuple[int, ...]]:
    """Return whether it is a single position, and all the positions.

    Raises:
        TypeError: it is no int, or sequence of ints.
    """
    try:
        items = [*argnums] if isinstance(argnums, Iterable) else [argnums]
        if any(isinstance(item, bool | Tensor | str) for item in (argnums, *items)):
            raise TypeError
        return not isinstance(argnums, Iterable), tuple(map(index, items))
    except TypeError:
        plain = isinstance(argnums, bool | float | str)
        got = repr(argnums) if plain else f"a {type(argnums).__name__}"
        raise TypeError(
            "argnums is the position of an argument, counted from 0, or a sequence of "
            f"positions; got {got}. Arguments go to what the transform gives: "
            "grad(fn)(x)"
        ) from None


def select(
    fn: Callable[..., Any],
    requested: tuple[bool, tuple[int, ...]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Selection:
    """Return ``fn(*args, **kwargs)`` as a function of the selected arguments."""
    single, argnums = requested
    for position in argnums:
        if not -len(args) <= position < len(args):
            raise ValueError(
                f"argnums asks for argument {position}, but the function was called "
                f"with {len(args)} positional arguments (counted from 0)"
            )
    requested_positions = [position % len(args) for position in argnums]
    positions = [*dict.fromkeys(requested_positions)]

    def of_selected(*selected: Any) -> Any:
        full = list(args)
        for position, value in zip(positions, selected, strict=True):
            full[position] = value
        return fn(*full, **kwargs)

    return Selection(
        of_selected,
        tuple(args[i] for i in positions),
        tuple(positions),
        tuple(arg for i, arg in enumerate(args) if i not in positions),
        None if single else tuple(map(positions.index, requested_positions)),
    )
