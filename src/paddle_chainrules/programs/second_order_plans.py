"""Which derivatives second-order forward mode carries."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from .jets import MultiIndex

HIGHEST_ORDER = 2
"""The highest order that a plan can have."""


class Plan(NamedTuple):
    """What is carried, in this order: the value, first derivatives, second ones."""

    directions: tuple[int, ...]
    """The inputs to differentiate by."""
    seconds: tuple[tuple[tuple[int, int], ...], ...]
    """Of each sum of second derivatives its terms, as pairs of carried first ones."""
    outputs: tuple[int, ...]
    """Which of all these are asked for."""

    @property
    def order(self) -> int:
        """The highest one of the derivatives."""
        return 2 if self.seconds else min(1, len(self.directions))


@cache
def laplacian_plan(width: int) -> Plan:
    """The sum of the second derivatives by each of the inputs."""
    squares = tuple((i, i) for i in range(1, width + 1))
    return Plan(tuple(range(width)), (squares,), (width + 1,))


@cache
def plan_of(indices: tuple[MultiIndex, ...]) -> Plan:
    """Derivatives of order 0 to 2, each index once."""
    inputs = [[i for i, m in enumerate(index) for _ in range(m)] for index in indices]
    directions = sorted({i for used in inputs for i in used})
    place = {i: k for k, i in enumerate(directions, start=1)}
    seconds = [(place[used[0]], place[used[1]]) for used in inputs if len(used) == 2]
    outputs = [
        0
        if not used
        else place[used[0]]
        if len(used) == 1
        else 1 + len(directions) + seconds.index((place[used[0]], place[used[1]]))
        for used in inputs
    ]
    terms = tuple((pair,) for pair in seconds)
    return Plan(tuple(directions), terms, tuple(outputs))
