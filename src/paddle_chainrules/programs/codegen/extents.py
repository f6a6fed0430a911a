"""Sizes of a program for any number of samples, as monomials of that number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..sizes.samples import Samples


class SymInt(NamedTuple):
    """``factor * n ** power``, where n is the number of samples of a call."""

    factor: int
    power: int = 0

    def times(self, other: SymInt) -> SymInt:
        """Return the product of both."""
        factor = self.factor * other.factor
        return SymInt(factor, self.power + other.power if factor else 0)

    def at(self, n: int) -> int:
        """Return the value, for n samples."""
        return int(self.factor * n**self.power)


ONE, ZERO = SymInt(1), SymInt(0)


class ShapeEnv:
    """The extents of the sizes of a program's values.

    Args:
        samples: tells which of them vary with the number of samples; None where a
            program serves only the sizes that it was captured for.
    """

    def __init__(self, samples: Samples | None) -> None:
        self.samples = samples

    def extent(self, size: int) -> SymInt:
        """Return the extent of a dimension of that size."""
        if self.samples is not None and size in self.samples.varying:
            return SymInt(size // self.samples.size, 1)
        return SymInt(size)

    def extents_in(self, arg: Any) -> Any:
        """Return the argument with extents for sizes, where it is a list of sizes."""
        return [*map(self.extent, arg)] if isinstance(arg, list) else arg

    def product(self, shape: Iterable[int]) -> SymInt:
        """Return the number of elements of a shape."""
        result = ONE
        for size in shape:
            result = result.times(self.extent(size))
        return result

    def strides(self, shape: tuple[int, ...]) -> tuple[SymInt, ...]:
        """Return the strides of a dense array of this shape, in elements."""
        results, stride = [], ONE
        for size in reversed(shape):
            results.append(stride)
            stride = stride.times(self.extent(size))
        return tuple(results[::-1])
