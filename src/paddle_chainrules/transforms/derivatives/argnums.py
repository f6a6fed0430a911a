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
    places: tuple[int, ...] | None
    """Position in ``selected`` of each argument asked for; None if one was asked
    for."""

    def nested(self, parts: Sequence[Any]) -> Any:
        """Return the parts of the selected arguments, nested as they were asked for."""
        if self.places is None:
            return parts[0]
        return tuple(parts[i] for i in self.places)


def positions_of(argnums: Any) -> tuple[bool, tuple[int, ...]]:
    """Return whether it is a single position, and all the positions.

    Raises:
        TypeError: it is no int, or sequence of ints.
    """
    try:
        given = [*argnums] if isinstance(argnums, Iterable) else [argnums]
        if any(isinstance(part, bool | Tensor | str) for part in (argnums, *given)):
            raise TypeError
        return not isinstance(argnums, Iterable), tuple(map(index, given))
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
    asked: tuple[bool, tuple[int, ...]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Selection:
    """Return ``fn(*args, **kwargs)`` as a function of the selected arguments."""
    single, given = asked
    for position in given:
        if not -len(args) <= position < len(args):
            raise ValueError(
                f"argnums asks for argument {position}, but the function was called "
                f"with {len(args)} positional arguments (counted from 0)"
            )
    order = [position % len(args) for position in given]
    positions = [*dict.fromkeys(order)]

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
        None if single else tuple(map(positions.index, order)),
    )
