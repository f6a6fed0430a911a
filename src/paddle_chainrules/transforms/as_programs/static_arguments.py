"""Arguments of a function that are compared by value, and go to it as they are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from ...paddle_side.arguments import checked_integer
from .keys import exactly, may_change


class StaticValues(NamedTuple):
    """The static arguments of a call, by position and by name."""

    by_position: tuple[tuple[int, Any], ...]
    by_name: dict[str, Any]

    @property
    def items(self) -> tuple[tuple[Any, Any], ...]:
        """Positions and names, each with its value."""
        return (*self.by_position, *self.by_name.items())

    @property
    def key(self) -> Any:
        """A key that is equal where the values are."""
        return tuple((name, static_key(value)) for name, value in self.items)

    def put_back(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Put the values where :meth:`StaticArguments.split` took them from."""
        for i, value in self.by_position:
            args[i] = value
        kwargs.update(self.by_name)


NO_VALUES = StaticValues((), {})


class StaticArguments:
    """Which arguments of a function are static.

    An argument that fn has by name is static however it is given.

    Args:
        fn: the function.
        argnums: their positions.
        argnames: their names.

    Raises:
        TypeError: a position is no integer, or a name no string.
        ValueError: a position counts from the last argument.
    """

    def __init__(self, fn: Callable[..., Any], argnums: Any, argnames: Any) -> None:
        positions = frozenset(_static_positions(argnums))
        names = _static_names(argnames)
        if positions or names:
            parameters = _positional_or_keyword_names(fn)
            named = {i for i, name in enumerate(parameters) if name in names}
            numbered = {name for i, name in enumerate(parameters) if i in positions}
            positions, names = positions | named, names | numbered
        self.positions, self.names = positions, names
        self._sorted_positions = tuple(sorted(positions))

    def split(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[StaticValues, tuple[Any, ...], dict[str, Any]]:
        """Return the static arguments of a call, and the others without them."""
        by_position, others = [], [*args]
        for i in self._sorted_positions:
            if i < len(others):
                by_position.append((i, args[i]))
                others[i] = None
        by_name: dict[str, Any] = {}
        if kwargs:
            by_name = {n: kwargs[n] for n in sorted(self.names & kwargs.keys())}
            kwargs = {n: v for n, v in kwargs.items() if n not in by_name}
        return StaticValues(tuple(by_position), by_name), tuple(others), kwargs


def _one_or_more(value: Any) -> Iterable[Any]:
    """Return a collection as it is, and anything else in a tuple."""
    is_collection = isinstance(value, list | tuple | set | frozenset | range)
    return value if is_collection else (value,)


def _static_positions(argnums: Any) -> tuple[int, ...]:
    """Return positions of arguments; a single one need not be in a sequence.

    Raises:
        TypeError: they are no integers.
        ValueError: one counts from the last argument.
    """
    positions = _one_or_more(argnums)
    results = tuple(checked_integer("each of static_argnums", n) for n in positions)
    if any(position < 0 for position in results):
        raise ValueError(
            f"static_argnums counts arguments from 0, got {list(results)}; count from "
            "the first argument"
        )
    return results


def _static_names(argnames: Any) -> frozenset[str]:
    """Return names of arguments; a single one need not be in a sequence.

    Raises:
        TypeError: they are no strings.
    """
    results = frozenset(_one_or_more(argnames))
    for name in results:
        if not isinstance(name, str):
            raise TypeError(
                f"static_argnames holds names of arguments, got {name!r}; give "
                "strings, or positions as static_argnums"
            )
    return results


def _positional_or_keyword_names(fn: Any) -> list[str]:
    """Return the names of arguments that can be given by position and by name."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # of a function of C
        return []
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def static_key(value: Any) -> Any:
    """Do as :func:`exactly`; a static argument need not be immutable."""
    return (type(value), value) if may_change(value) else exactly(value)
