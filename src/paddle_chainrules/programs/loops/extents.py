"""Sizes of a program that may serve any number of samples, as monomials in that."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..sizes.samples import Samples


class Extent(NamedTuple):
    """``factor * n ** power``, where n is the number of samples of a call."""

    factor: int
    power: int = 0

    def times(self, other: Extent) -> Extent:
        """The product of both."""
        factor = self.factor * other.factor
        return Extent(factor, self.power + other.power if factor else 0)

    def at(self, n: int) -> int:
        """The number, for so many samples."""
        return int(self.factor * n**self.power)


ONE, ZERO = Extent(1), Extent(0)


class Sizes:
    """What the sizes of a program's values are.

    Args:
        samples: which of them go along with the number of samples; None where a
            program serves the sizes alone that it was captured for.
    """

    def __init__(self, samples: Samples | None) -> None:
        self.samples = samples

    def of(self, size: int) -> Extent:
        """The extent of a dimension of that size."""
        if self.samples is not None and size in self.samples.varying:
            return Extent(size // self.samples.size, 1)
        return Extent(size)

    def in_list(self, arg: Any) -> Any:
        """The same with the extents of sizes where it is a list of these."""
        return [*map(self.of, arg)] if isinstance(arg, list) else arg

    def product(self, shape: Iterable[int]) -> Extent:
        """The number of elements of a shape."""
        found = ONE
        for size in shape:
            found = found.times(self.of(size))
        return found

    def strides(self, shape: tuple[int, ...]) -> tuple[Extent, ...]:
        """Elements from one place to the next along each dimension, without gaps."""
        found, step = [], ONE
        for size in reversed(shape):
            found.append(step)
            step = step.times(self.of(size))
        return tuple(found[::-1])
