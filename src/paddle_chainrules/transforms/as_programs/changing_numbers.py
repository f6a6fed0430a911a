"""Numbers of Python's that change from call to call, as inputs of one program."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import Tensor

from ...paddle_side.listener import listener
from ...paddle_side.traced_numbers import (
    MAX_INTEGER,
    MAX_SEED,
    NumberUses,
    TracedNumber,
    ValueNeeded,
    number_to_tensor,
)

NUMBERS = frozenset({int, float, np.float64, np.int64})
"""Types whose numbers Paddle computes with in the same way."""


class NumberInputs(NamedTuple):
    """The leaves that are numbers, and inputs of a program."""

    positions: frozenset[int]
    seeds: frozenset[int]
    """Integers among them that are too large to compute with."""

    def to_tensors(self, leaves: list[Any]) -> list[Any]:
        """Return the leaves with tensors for these."""
        return [
            number_to_tensor(x) if i in self.positions else x
            for i, x in enumerate(leaves)
        ]

    def to_traced_numbers(self, leaves: list[Any], uses: NumberUses) -> list[Any]:
        """Return the leaves with traced numbers for these, or numbers if none listens.

        Args:
            uses: where to note what is done with the numbers.
        """
        if listener() is None:
            return [
                x.item() if i in self.positions else x for i, x in enumerate(leaves)
            ]
        return [
            TracedNumber(x, frozenset({i}), itemgetter(i), uses, self.max_value(i))
            if i in self.positions
            else x
            for i, x in enumerate(leaves)
        ]

    def max_value(self, index: int) -> int:
        """Return the number that an integer among the leaves is below."""
        return MAX_SEED if index in self.seeds else MAX_INTEGER

    def to_placeholders(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the leaves as a list of programs shows them."""
        return [
            AnyNumber(x) if i in self.positions else x for i, x in enumerate(leaves)
        ]


NO_INPUTS = NumberInputs(frozenset(), frozenset())


class ChangingNumbers:
    """The leaves of a function that are numbers, and inputs of its programs.

    A number is part of the program at first. With its second value it becomes an input,
    and stays part of programs where the function needs its value.

    Attributes:
        inputs: those that are inputs.
        tries: whether what is refused with them may be tried with their values.
    """

    def __init__(self) -> None:
        self.inputs = NO_INPUTS
        self.tries = True
        self._constant_positions: frozenset[int] = frozenset()
        self._first_values: dict[int, Any] = {}

    def note(self, leaves: Sequence[Any]) -> None:
        """Note the numbers of a call."""
        positions, seeds = self.inputs
        for i, leaf in enumerate(leaves):
            kind = type(leaf)
            if kind not in NUMBERS or i in self._constant_positions:
                continue
            is_integer = kind is int or kind is np.int64
            if is_integer and abs(leaf) >= MAX_SEED:
                self.make_constant({i})
                positions -= {i}
            elif i not in positions:
                first = self._first_values.setdefault(i, leaf)
                if type(first) is not kind or first != leaf:
                    positions |= {i}
            if is_integer and abs(leaf) >= MAX_INTEGER:
                seeds |= {i}
        self.inputs = NumberInputs(positions, seeds)

    def make_constant(self, positions: Any) -> None:
        """Have numbers part of programs from now on."""
        self._constant_positions |= {*positions}
        self.inputs = self.inputs._replace(
            positions=self.inputs.positions - self._constant_positions
        )


class ResultNesting(NamedTuple):
    """The nesting of results, and which of them are Python numbers."""

    spec: Any
    numbers: tuple[int, ...]

    def unflatten(self, results: Sequence[Any]) -> Any:
        """Return the results, nested."""
        leaves = [x.item() if i in self.numbers else x for i, x in enumerate(results)]
        return self.spec.unflatten(leaves)


def numbers_to_tensors(
    outputs: list[Any], spec: Any, needed: set[int]
) -> tuple[Any, Any]:
    """Return results with tensors for numbers, and how they are nested.

    Raises:
        ValueNeeded: the value of a number was asked for.
    """
    if needed:
        raise ValueNeeded(
            frozenset(needed),
            "the value of a number was needed that changes from call to call; give it "
            "as a static argument",
        )
    numbers = [i for i, out in enumerate(outputs) if type(out) is TracedNumber]
    if not numbers:
        return outputs, spec
    results = [x.result() if type(x) is TracedNumber else x for x in outputs]
    return results, ResultNesting(spec, tuple(numbers))


class AnyNumber:
    """A placeholder for a number that is an input, where programs are listed."""

    def __init__(self, tensor: Tensor) -> None:
        self._kind = "int" if tensor.dtype == paddle.int64 else "float"

    def __repr__(self) -> str:
        return f"any {self._kind}"
