"""Points inside of boxes and on their sides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.stats import qmc

Array = np.ndarray
Drawn = Callable[[np.random.Generator], Array]
Box = tuple[tuple[float, float], ...]
"""Lowest and highest of each coordinate."""


def inside(box: Box, count: int) -> Drawn:
    """Quasi-random points (Sobol's, scrambled), as many as a power of two or not."""
    low, high = np.array(box, float).T

    def draw(rng: np.random.Generator) -> Array:
        sobol = qmc.Sobol(len(box), seed=rng)
        points = sobol.random_base2(int(np.ceil(np.log2(count))))[:count]
        return low + (high - low) * points

    return draw


def where(box: Box, axis: int, value: float, count: int) -> Drawn:
    """Uniform points where a coordinate has a value."""
    low, high = np.array(box, float).T

    def draw(rng: np.random.Generator) -> Array:
        points = rng.uniform(low, high, (count, len(box)))
        points[:, axis] = value
        return points

    return draw


def around(box: Box, count: int, axes: tuple[int, ...] | None = None) -> Drawn:
    """Uniform points on the sides of a box, the same number on each."""
    axes = tuple(range(len(box))) if axes is None else axes
    sides = [(axis, value) for axis in axes for value in box[axis]]
    each = count // len(sides)

    def draw(rng: np.random.Generator) -> Array:
        return np.concatenate([where(box, a, v, each)(rng) for a, v in sides])

    return draw


def grid(box: Box, counts: tuple[int, ...]) -> Callable[[], tuple[Array, tuple]]:
    """Points at even distances, row by row, and how many there are along each axis."""

    def made() -> tuple[Array, tuple]:
        lines = [np.linspace(*ends, n) for ends, n in zip(box, counts, strict=True)]
        axes = np.meshgrid(*lines, indexing="ij")
        return np.stack([axis.ravel() for axis in axes], 1), counts

    return made
