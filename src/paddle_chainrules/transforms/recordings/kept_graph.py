"""A holder that keeps a recorded graph alive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self


class KeptGraph:
    """Base of what is bound to a graph: a copy is the same thing, and no file holds it.

    Raises:
        TypeError: it is pickled.
    """

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            f"a {type(self).__name__} keeps what a call has recorded, which lives in "
            "this process alone and can't be pickled; pickle the net or function and "
            "its arguments, and record the call where it is needed"
        )
