"""Numbers of Python's that change from call to call, as inputs of one program."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

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
    kinds: tuple[type, ...]
    """Their types, since code may ask for them; in the order of the positions."""

    def kind_by_position(self) -> dict[int, type]:
        """Return the type of each."""
        return dict(zip(sorted(self.positions), self.kinds, strict=True))

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
        kinds, is_traced = self.kind_by_position(), listener() is not None

        def number(i: int, x: Any) -> Any:
            if not is_traced:
                return kinds[i](x.item())
            origins, bound = frozenset({i}), self.max_value(i)
            return TracedNumber(x, kinds[i], origins, itemgetter(i), uses, bound)

        return [number(i, x) if i in kinds else x for i, x in enumerate(leaves)]

    def max_value(self, index: int) -> int:
        """Return the number that an integer among the leaves is below."""
        return MAX_SEED if index in self.seeds else MAX_INTEGER

    def to_placeholders(self, leaves: Sequence[Any]) -> list[Any]:
        """Return the leaves as a list of programs shows them."""
        kinds = self.kind_by_position()
        return [AnyNumber(kinds[i]) if i in kinds else x for i, x in enumerate(leaves)]


NO_INPUTS = NumberInputs(frozenset(), frozenset(), ())


class ChangingNumbers:
    """The leaves of a function that are numbers, and inputs of its programs.

    A number is part of the program at first. With its second value it becomes an input,
    and stays part of programs where the function needs its value.

    Attributes:
        inputs: those that are inputs in the call that was noted last.
        tries: whether what is refused with them may be tried with their values.
    """

    def __init__(self) -> None:
        self.inputs = NO_INPUTS
        self.tries = True
        self._changing: frozenset[int] = frozenset()
        self._constant_positions: frozenset[int] = frozenset()
        self._first_values: dict[int, Any] = {}

    def note(self, leaves: Sequence[Any]) -> None:
        """Note the numbers of a call."""
        positions, seeds = self._changing, self.inputs.seeds
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
        self._changing = positions
        kinds = {i: type(leaves[i]) for i in sorted(positions)}
        kinds = {i: kind for i, kind in kinds.items() if kind in NUMBERS}
        self.inputs = NumberInputs(frozenset(kinds), seeds, tuple(kinds.values()))

    def make_constant(self, positions: Any) -> None:
        """Have numbers part of programs from now on."""
        self._constant_positions |= {*positions}
        self._changing -= self._constant_positions
        kinds = self.inputs.kind_by_position()
        positions = self.inputs.positions - self._constant_positions
        self.inputs = NumberInputs(
            positions, self.inputs.seeds, tuple(kinds[i] for i in sorted(positions))
        )


class ResultNesting(NamedTuple):
    """The nesting of results, and the types of those that are numbers."""

    spec: Any
    kinds: dict[int, type]

    def unflatten(self, results: Sequence[Any]) -> Any:
        """Return the results, nested."""
        leaves = [*results]
        for i, kind in self.kinds.items():
            leaves[i] = kind(leaves[i].item())
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
    kinds = {i: x.kind for i, x in enumerate(outputs) if type(x) is TracedNumber}
    if not kinds:
        return outputs, spec
    results = [x.result() if type(x) is TracedNumber else x for x in outputs]
    return results, ResultNesting(spec, kinds)


class AnyNumber:
    """A placeholder for a number that is an input, where programs are listed."""

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def __repr__(self) -> str:
        return f"any {self._kind.__name__}"
