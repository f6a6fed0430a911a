"""Dense linear algebra of least squares, by NumPy, on the processor.

NumPy takes half of a product of a matrix with itself (syrk), which Paddle does not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

DTYPES = "float32", "float64"
"""Dtypes that this algebra supports."""

BLOCK = 32
"""Rows of a triangle that are solved for at once."""


def without_warnings() -> Any:
    """Return a context without warnings about values that are checked later."""
    return np.errstate(over="ignore", invalid="ignore")


def cholesky_solver(matrix: Any) -> Callable[[Any], Any] | None:
    """Return a solver by the matrix's factor; None if the matrix is not positive."""
    try:
        factor = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return None

    def solve(b: Any) -> Any:
        size, x = len(b), b.copy()
        starts = range(0, size, BLOCK)
        for i in starts:
            j = min(i + BLOCK, size)
            x[i:j] -= factor[i:j, :i] @ x[:i]
            x[i:j] = np.linalg.solve(factor[i:j, i:j], x[i:j])
        for i in reversed(starts):
            j = min(i + BLOCK, size)
            x[i:j] = np.linalg.solve(factor[i:j, i:j].T, x[i:j])
            x[:i] -= factor[i:j, :i].T @ x[i:j]
        return x

    return solve


class DampedSquares:
    """``(J^T J + mu D)^-1 J^T`` for any mu, by the smaller of two matrices of products.

    With fewer rows than columns as ``S^T (S S^T + mu)^-1`` with ``S = J D^-1/2``. D is
    one where none is given.
    """

    def __init__(self, jacobian: Any, scale: Any = None) -> None:
        rows, columns = jacobian.shape
        self._is_wide = rows < columns
        divided = self._is_wide and scale is not None
        self._root = np.sqrt(scale) if divided else None
        s = self._by = jacobian / self._root if divided else jacobian
        self._products = s @ s.T if self._is_wide else s.T @ s
        self._diagonal = self._products.diagonal().copy()
        self._damped = 1.0 if self._is_wide or scale is None else scale

    def solver(self, mu: float) -> Callable[[Any], Any] | None:
        """Return a map from residuals to parameters; None if not positive."""
        matrix = self._products
        matrix.flat[:: len(matrix) + 1] = self._diagonal + mu * self._damped
        solve = cholesky_solver(matrix)
        if solve is None:
            return None
        s, root = self._by, self._root
        if not self._is_wide:
            return lambda u: solve(s.T @ u)
        return lambda u: s.T @ solve(u) if root is None else s.T @ solve(u) / root


def symmetric_solve(matrix: Any, b: Any, damping: float, rcond: float) -> Any:
    """Return the shortest least-squares solution of ``(matrix + damping) x = b``.

    Eigenvalues of the matrix up to ``rcond`` of the largest count as zero, and their
    eigenvectors are left out. If damping makes the matrix positive, none is left out.
    """
    if damping:
        damped = matrix.copy()
        damped.flat[:: len(b) + 1] += damping
        solve = cholesky_solver(damped)
        if solve is not None:
            return solve(b)
    values, vectors = np.linalg.eigh(matrix)
    is_kept = values > rcond * max(abs(values[0]), abs(values[-1]))
    basis = vectors[:, is_kept]
    return basis @ ((basis.T @ b) / (values[is_kept] + damping))
