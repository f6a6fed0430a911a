"""Which sizes of a program go along with the number of samples."""

from __future__ import annotations

from typing import NamedTuple

ANY = 2**62
"""So many samples that nobody has more."""


SIZED = frozenset({"expand", "reshape", "share", "split"})
"""Operators that are given sizes, in a list."""


class Samples(NamedTuple):
    """What a program that serves any number of samples was captured for.

    Attributes:
        size: so many samples.
        varying: the sizes of its values that are multiples of that number; no other
            dimension has one of these.
        most: more samples it does not serve, where that is known.
    """

    size: int
    varying: frozenset[int]
    most: int = ANY
