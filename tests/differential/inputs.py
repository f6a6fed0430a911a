"""Inputs by kind: what a table says of an argument, and the array it stands for."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


class Input(NamedTuple):
    """An argument of a case: how it is drawn, and of which shape."""

    draw: Draw
    shape: tuple[int, ...]

    def array(self, name: str, place: int) -> np.ndarray:
        """The array, the same for a case's name at every run."""
        seed = zlib.crc32(f"{name} {place}".encode())
        return self.draw(np.random.default_rng(seed), self.shape)


def arrays_of(name: str, inputs: Sequence[Input]) -> list[np.ndarray]:
    """The arrays that the case of this name is called with."""
    return [given.array(name, place) for place, given in enumerate(inputs)]


def _kind(draw: Draw) -> Callable[..., Input]:
    return lambda *shape: Input(draw, shape)


def _signed(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return rng.uniform(0.3, 1.7, shape) * rng.choice([-1.0, 1.0], shape)


def _definite(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    root = rng.standard_normal(shape)
    return root @ np.swapaxes(root, -1, -2) + 2 * np.eye(shape[-1])


real = _kind(_signed)
"""Of both signs, with room about zero."""
positive = _kind(lambda rng, shape: rng.uniform(0.3, 1.7, shape))
unit = _kind(lambda rng, shape: rng.uniform(0.15, 0.85, shape))
above_one = _kind(lambda rng, shape: rng.uniform(1.3, 2.7, shape))
spread = _kind(
    lambda rng, shape: rng.permutation(int(np.prod(shape))).reshape(shape) / 7
)
"""All entries apart: for maxima, medians and sorting."""
definite = _kind(_definite)
"""Symmetric, positive definite."""
square = _kind(lambda rng, s: rng.standard_normal(s) + 3 * np.eye(s[-1]))
"""Matrices that are far from singular."""
lower = _kind(lambda rng, s: np.tril(rng.uniform(0.3, 1, s)) + np.eye(s[-1]))
complex_ = _kind(lambda rng, s: _signed(rng, s) + 1j * _signed(rng, s))
mask = _kind(lambda rng, s: rng.permutation(int(np.prod(s))).reshape(s) % 2 == 0)
one = _kind(lambda rng, s: rng.uniform(0.3, 0.9, s))


def ints(high: int, *shape: int) -> Input:
    """Integers from 0 to below ``high``."""
    return Input(lambda rng, s: rng.integers(0, high, s), shape)


def apart(high: int, *shape: int) -> Input:
    """Integers from 0 to below ``high``, no two of them equal."""
    return Input(
        lambda rng, s: rng.permutation(high)[: int(np.prod(s))].reshape(s), shape
    )


def given(values: object, dtype: str = "float64") -> Input:
    """Just these values."""
    array = np.array(values, dtype)
    return Input(lambda rng, s: array, array.shape)
