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
        at, lengths: of each the one coordinate along which it goes, and how far; or
        rows: shape [k, d], orthogonal, where they go along several.
    """

    width: int
    signs: np.ndarray
    lengths: np.ndarray
    at: np.ndarray | None = None
    rows: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.signs)

    def those(self, chosen: np.ndarray, factor: float = 1.0) -> Directions:
        """Return some of the directions, longer by a factor."""
        return Directions(
            self.width,
            self.signs[chosen],
            self.lengths[chosen] * factor,
            None if self.at is None else self.at[chosen],
            None if self.rows is None else self.rows[chosen],
        )

    def matrix(self) -> np.ndarray:
        """Return the directions as rows, of shape [k, d]."""
        if self.rows is not None:
            return self.rows * self.lengths[:, None]
        result = np.zeros((len(self), self.width))
        result[np.arange(len(self)), self.at] = self.lengths
        return result

    def inverse(self) -> np.ndarray:
        """Return the inverse of the matrix, if that is square."""
        turned = self.matrix() / self.lengths[:, None] ** 2  # of orthogonal rows
        return turned.T

    def mixed(self, factors: np.ndarray) -> np.ndarray:
        """Return ``factors @ matrix()``, of shape [n, d]."""
        if self.rows is not None:
            return (factors * self.lengths) @ self.rows
        result = np.zeros((len(factors), self.width))
        result[:, self.at] = factors * self.lengths
        return result


def directions(width: int, weights: Any) -> Directions:
    """Return directions whose second derivatives sum to what is asked; none if zero."""
    ones = np.ones(width)
    if weights is None:
        return Directions(width, ones, ones, np.arange(width))
    if isinstance(weights, Tensor) and not weights.stop_gradient:
        raise TypeError(
            "weights are constants, and these ask for gradients; take derivatives and "
            "multiply them by coefficients that are learned"
        )
    given = weights.numpy() if isinstance(weights, Tensor) else np.asarray(weights)
    if given.dtype.kind not in "fiu" or not np.isfinite(given).all():
        raise TypeError(
            f"weights must be finite real numbers, got {weights!r}; give one a "
            "coordinate, or a matrix"
        )
    a = given.astype(np.float64)
    at = rows = None
    if a.shape == (width,):
        values, at = a, np.arange(width)
    elif a.shape == (width, width):
        values, vectors = np.linalg.eigh((a + a.T) / 2)
        least = np.finfo(np.float64).eps * width * np.abs(values).max(initial=0.0)
        values, rows = np.where(np.abs(values) <= least, 0.0, values), vectors.T
    else:
        raise ValueError(
            f"weights have shape {list(a.shape)}, of {width} coordinates; give "
            f"[{width}] or [{width}, {width}]"
        )
    if not values.any():
        raise ValueError(
            "weights are all zero, and so is the sum; leave such a term out"
        )
    result = Directions(width, np.sign(values), np.sqrt(np.abs(values)), at, rows)
    return result.those(values != 0)


def estimated(
    every: Directions,
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
    if probes < 1 or (estimator == "stde" and probes > len(every)):
        raise ValueError(
            f"probes must be 1 to {len(every)} of {len(every)} directions, got "
            f"{probes}; with all of them the sum is exact"
        )
    rng = np.random.default_rng(seed)
    if estimator == "stde":
        chosen = np.sort(rng.choice(len(every), probes, replace=False))
        return every.those(chosen, float(np.sqrt(len(every) / probes)))
    results, kept = [], []
    for sign in np.unique(every.signs):
        part = every.those(every.signs == sign)
        random = rng.integers(0, 2, (probes, len(part))) * 2.0 - 1.0
        results.append(part.mixed(random / np.sqrt(probes)))
        kept.append(np.full(probes, sign))
    signs = np.concatenate(kept)
    rows = np.concatenate(results)
    return Directions(every.width, signs, np.ones(len(signs)), rows=rows)


def by_sign(every: Directions) -> Sequence[Directions]:
    """Return directions that count positively, and those that count negatively."""
    return [every.those(every.signs == sign) for sign in (1.0, -1.0)]
