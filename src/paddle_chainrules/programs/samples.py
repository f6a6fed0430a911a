"""Which sizes of a program go along with the number of samples."""

from __future__ import annotations

from typing import NamedTuple


class Samples(NamedTuple):
    """What a program that serves any number of samples was captured for.

    Attributes:
        size: so many samples.
        varying: the sizes of its values that are multiples of that number; no other
            dimension has one of these.
    """

    size: int
    varying: frozenset[int]
