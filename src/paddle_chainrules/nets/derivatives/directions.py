"""Directions along which second derivatives sum up to a Laplacian: all, or a few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from paddle import Tensor

from ...paddle_side.listener import listener

ESTIMATORS = ("hutchinson", "stde")


@dataclass(frozen=True)
class Directions:
    """Vectors of one width, and the sign with which each second derivative counts.

    Attributes:
        axes, lengths: of each its one coordinate axis, and its length; or
        rows: shape [k, d], orthogonal, where they have several coordinates.
    """

    width: int
    signs: np.ndarray
    lengths: np.ndarray
    axes: np.ndarray | None = None
    rows: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.signs)

    def select(self, chosen: np.ndarray, factor: float = 1.0) -> Directions:
        """Return some of the directions, longer by a factor."""
        return Directions(
            self.width,
            self.signs[chosen],
            self.lengths[chosen] * factor,
            None if self.axes is None else self.axes[chosen],
            None if self.rows is None else self.rows[chosen],
        )

    def matrix(self) -> np.ndarray:
        """Return the directions as rows, of shape [k, d]."""
        if self.rows is not None:
            return self.rows * self.lengths[:, None]
        result = np.zeros((len(self), self.width))
        result[np.arange(len(self)), self.axes] = self.lengths
        return result

    def inverse(self) -> np.ndarray:
        """Return the inverse of the matrix, if that is square."""
        scaled = self.matrix() / self.lengths[:, None] ** 2  # of orthogonal rows
        return scaled.T

    def combine(self, factors: np.ndarray) -> np.ndarray:
        """Return ``factors @ matrix()``, of shape [n, d]."""
        if self.rows is not None:
            return (factors * self.lengths) @ self.rows
        result = np.zeros((len(factors), self.width))
        result[:, self.axes] = factors * self.lengths
        return result


def directions(width: int, weights: Any) -> Directions:
    """Return directions whose second derivatives sum to the weighted Laplacian."""
    ones = np.ones(width)
    if weights is None:
        return Directions(width, ones, ones, np.arange(width))
    if isinstance(weights, Tensor) and not weights.stop_gradient:
        raise TypeError(
            "weights are constants, and these ask for gradients; take derivatives and "
            "multiply them by coefficients that are learned"
        )
    array = weights.numpy() if isinstance(weights, Tensor) else np.asarray(weights)
    if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise TypeError(
            f"weights must be finite real numbers, got {weights!r}; give one a "
            "coordinate, or a matrix"
        )
    a = array.astype(np.float64)
    axes = rows = None
    if a.shape == (width,):
        values, axes = a, np.arange(width)
    elif a.shape == (width, width):
        values, vectors = np.linalg.eigh((a + a.T) / 2)
        tolerance = np.finfo(np.float64).eps * width * np.abs(values).max(initial=0.0)
        values, rows = np.where(np.abs(values) <= tolerance, 0.0, values), vectors.T
    else:
        raise ValueError(
            f"weights have shape {list(a.shape)}, of {width} coordinates; give "
            f"[{width}] or [{width}, {width}]"
        )
    if not values.any():
        raise ValueError(
            "weights are all zero, and so is the sum; leave such a term out"
        )
    result = Directions(width, np.sign(values), np.sqrt(np.abs(values)), axes, rows)
    return result.select(values != 0)


def estimate_directions(
    all_directions: Directions,
    estimator: str | None,
    probes: int | None,
    seed: int | None,
) -> Directions:
    """Return fewer directions, with the same sum of second derivatives on average."""
    if estimator not in ESTIMATORS:
        raise ValueError(
            f"estimator must be one of {', '.join(ESTIMATORS)}, got {estimator!r}; "
            "leave probes and seed out for the exact Laplacian"
        )
    for name, value in (("probes", probes), ("seed", seed)):
        is_integer = isinstance(value, int | np.integer)
        if not is_integer or isinstance(value, bool) or value < 0:  # type: ignore
            raise TypeError(
                f"an estimator needs {name}, an integer from 0 on, got {value!r}; give "
                "for example probes=16, seed=0"
            )
    assert probes is not None
    if listener() is not None:
        raise ValueError(
            "an estimator draws its directions in Python, which a program would keep "
            "for all calls; call it outside of jit"
        )
    if probes < 1 or (estimator == "stde" and probes > len(all_directions)):
        raise ValueError(
            f"probes must be 1 to {len(all_directions)} of {len(all_directions)} "
            f"directions, got {probes}; with all of them the sum is exact"
        )
    rng = np.random.default_rng(seed)
    if estimator == "stde":
        chosen = np.sort(rng.choice(len(all_directions), probes, replace=False))
        return all_directions.select(
            chosen, float(np.sqrt(len(all_directions) / probes))
        )
    vectors, probe_signs = [], []
    for sign in np.unique(all_directions.signs):
        same_sign = all_directions.select(all_directions.signs == sign)
        random = rng.integers(0, 2, (probes, len(same_sign))) * 2.0 - 1.0
        vectors.append(same_sign.combine(random / np.sqrt(probes)))
        probe_signs.append(np.full(probes, sign))
    signs = np.concatenate(probe_signs)
    rows = np.concatenate(vectors)
    return Directions(all_directions.width, signs, np.ones(len(signs)), rows=rows)


def split_by_sign(all_directions: Directions) -> Sequence[Directions]:
    """Return directions that count positively, and those that count negatively."""
    return [all_directions.select(all_directions.signs == sign) for sign in (1.0, -1.0)]
