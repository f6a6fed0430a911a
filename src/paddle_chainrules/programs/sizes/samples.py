"""Sizes of a program that vary with the number of samples."""

from __future__ import annotations

from typing import NamedTuple

from ...settings import ANY

SIZED = frozenset({"expand", "reshape", "share", "split"})
"""Operators that are given sizes, in a list."""


class Samples(NamedTuple):
    """The sizes that a program for any number of samples was captured for.

    Attributes:
        size: the number of samples.
        varying: the sizes of its values that are multiples of that number; no other
            dimension has one of these.
        most: the most samples that it serves, where that is known.
    """

    size: int
    varying: frozenset[int]
    most: int = ANY
