"""Numbers of Python's that change from call to call, as inputs of one program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.traced_numbers import (
    MAX_INTEGER,
    TracedNumber,
    ValueNeeded,
    as_input,
)
from ...programs.capture_error import CaptureError


class ChangingNumbers:
    """Which of a function's leaves are numbers that its programs have as inputs.

    A number is part of the program at first. With its second value it becomes an input,
    and stays part of programs where the function needs its value.

    Attributes:
        places: of those that are inputs.
    """

    def __init__(self) -> None:
        self.places: frozenset[int] = frozenset()
        self._needed: frozenset[int] = frozenset()
        self._first: dict[int, Any] = {}

    def note(self, leaves: Sequence[Any]) -> None:
        """Note the numbers of a call."""
        for i, leaf in enumerate(leaves):
            kind = type(leaf)
            if (kind is not float and kind is not int) or i in self._needed:
                continue
            if kind is int and abs(leaf) >= MAX_INTEGER:
                self.keep({i})
            elif i not in self.places:
                first = self._first.setdefault(i, leaf)
                if type(first) is not kind or first != leaf:
                    self.places |= {i}

    def keep(self, places: Any) -> None:
        """Have numbers part of programs from now on."""
        self._needed |= {*places}
        self.places -= self._needed

    def kept_for(self, error: CaptureError) -> bool:
        """Keep those whose value a capture has needed; tell whether there were any."""
        before, cause = self.places, error.__cause__
        self.keep(cause.origins if isinstance(cause, ValueNeeded) else before)
        return self.places != before


def with_inputs(leaves: list[Any], places: frozenset[int]) -> list[Any]:
    """Return the leaves with tensors for numbers that are inputs."""
    return [as_input(x) if i in places else x for i, x in enumerate(leaves)]


class AnyNumber:
    """Stands for a number that is an input, where programs are listed.

    Args:
        tensor: what the program takes in its place.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._kind = "int" if tensor.dtype == paddle.int64 else "float"

    def __repr__(self) -> str:
        return f"any {self._kind}"


def with_numbers(
    leaves: list[Any], places: frozenset[int], needed: set[int]
) -> list[Any]:
    """Return the leaves with what the function is given for these inputs.

    Args:
        needed: where to note the numbers whose value somebody asks for.
    """
    return [
        TracedNumber(x, frozenset({i}), needed) if i in places else x
        for i, x in enumerate(leaves)
    ]


def check_none_is_left(outputs: Sequence[Any], needed: set[int]) -> None:
    """Refuse a number among results, or one whose value was asked for.

    Raises:
        ValueNeeded: there is one.
    """
    for output in outputs:
        if type(output) is TracedNumber:
            output.refuse()
    if needed:
        raise ValueNeeded(
            frozenset(needed),
            "the value of a number was needed that changes from call to call; give it "
            "as a static argument",
        )
