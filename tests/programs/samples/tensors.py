"""Tensors of random numbers that samples ask for."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import paddle


class T(NamedTuple):
    """A tensor of random numbers between two, or of another kind than float64."""

    shape: tuple[int, ...]
    low: float = -1.5
    high: float = 1.5
    kind: str = "float64"

    def made(self, rng: np.random.Generator, dtype: str = "float64") -> Any:
        if self.kind == "bool":
            return paddle.to_tensor(rng.uniform(size=self.shape) > 0.5)
        if self.kind in ("uint8", "int32", "int64"):
            drawn = rng.integers(self.low, self.high, self.shape)
            return paddle.to_tensor(drawn.astype(self.kind))
        if self.kind == "complex128":
            parts = rng.uniform(self.low, self.high, (2, *self.shape))
            return paddle.to_tensor(parts[0] + 1j * parts[1])
        if self.kind == "float32":
            dtype = self.kind
        drawn = rng.uniform(self.low, self.high, self.shape)
        if self.low < 0 < self.high:  # away from kinks
            drawn += 0.15 * np.sign(drawn)
        return paddle.to_tensor(drawn.astype(dtype))


def t(*shape: int, low: float = -1.5, high: float = 1.5) -> T:
    return T(shape, low, high)


def positive(*shape: int) -> T:
    return T(shape, 0.3, 2.0)


def index(*shape: int, below: int) -> T:
    return T(shape, 0, below, "int64")


def z(*shape: int, low: float = -1.5, high: float = 1.5) -> T:
    """Complex numbers."""
    return T(shape, low, high, "complex128")
