"""Selection of gradients: all of a kind, or by name, position or predicate."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeAlias, Union, cast

Item: TypeAlias = Union[str, int, Callable[[str], bool]]  # noqa: UP007

Wrt: TypeAlias = Union[Item, Sequence[Item]]  # noqa: UP007
"""``"params"``, ``"args"``, a parameter's name or a pattern of names such as
``"encoder.*"``, the position of an argument, a predicate of names, ``"kwargs"``, a
keyword argument's name, or several."""

WRT = ("params", "args")


class NeedsGrad(NamedTuple):
    """Flags of each parameter, in forward order, and of each argument.

    Without keyword arguments in ``wrt`` the last is None.
    """

    params: tuple[bool, ...]
    args: tuple[bool, ...]
    kwargs: dict[str, bool] | None


def needs_grad(
    wrt: Wrt, names: Sequence[str], count: int, keywords: Sequence[str] = ()
) -> NeedsGrad:
    """Return what ``wrt`` selects from the named parameters and a call's arguments.

    Raises:
        ValueError: a name or pattern that no parameter has, a position out of range, a
            name that is a parameter's and a keyword's, no keyword arguments although
            ``wrt`` asks for one.
        TypeError: an item of another kind.
    """
    by_name, by_position = dict.fromkeys(names, False), [False] * count
    by_keyword: dict[str, bool] | None = None
    for item in items_of(wrt):
        if item == "args":
            by_position = [True] * count
        elif item == "kwargs" or (isinstance(item, str) and item in keywords):
            if not keywords or item in names:
                raise ValueError(
                    f"wrt={item!r} is the name of a parameter and of a keyword "
                    "argument; ask for 'kwargs', or for a pattern of parameters"
                    if keywords
                    else "wrt asks for keyword arguments, but the net was called "
                    "without any"
                )
            before = by_keyword or dict.fromkeys(keywords, False)
            by_keyword = {n: f or item in ("kwargs", n) for n, f in before.items()}
        elif isinstance(item, int) and not isinstance(item, bool):
            if not 0 <= item < count:
                raise ValueError(
                    f"wrt asks for argument {item}, but the net was called with "
                    f"{count} positional arguments (counted from 0)"
                )
            by_position[item] = True
        else:
            for name in select_names(item, names, "wrt"):
                by_name[name] = True
    return NeedsGrad(tuple(by_name.values()), tuple(by_position), by_keyword)


def items_of(wrt: Wrt) -> Collection[Item]:
    """Return the items of a selection of one item or several."""
    is_collection = isinstance(wrt, list | tuple | set)
    items = cast("Collection[Item]", wrt if is_collection else (wrt,))
    for item in items:
        if not (isinstance(item, str | int) or callable(item)):
            raise TypeError(
                "choose by names of parameters, patterns and predicates of them, and "
                f"positions of arguments, got {type(item).__name__}; for example "
                "'0.weight' or 'encoder.*'"
            )
    return items


def select_names(item: Item, names: Sequence[str], what: str) -> Sequence[str]:
    """Return the names that an item selects; errors call its kind ``what``."""
    if item == "params":
        return names
    if callable(item):
        return [name for name in names if item(name)]
    if not isinstance(item, str):
        raise TypeError(
            f"{what} takes names of parameters, patterns and predicates of them"
            f"{', and positions of arguments' if what == 'wrt' else ''}, got {item!r}; "
            f"for example {what}=('0.weight', 'encoder.*')"
        )
    if item in names:
        return [item]
    if result := [name for name in names if fnmatchcase(name, item)]:
        return result
    raise ValueError(
        f"{what} names {item!r}, but there is no such parameter; give 'params'"
        f"{', ' + repr('args') if what == 'wrt' else ''}, or a name or pattern of "
        f"{list(names)}"
    )


Flags = bool | tuple[bool, ...]
"""One flag for all parameters, or one for each."""


def flags_per_param(flags: Flags, count: int) -> tuple[bool, ...]:
    """Expand one flag to each of ``count`` parameters."""
    return flags if isinstance(flags, tuple) else (flags,) * count
