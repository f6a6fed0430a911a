"""The Jacobian of a library's residuals, one row for each, in a few gradients.

A net computes its points apart from each other. So each point is given parameters of
its own, all equal, and a gradient of a sum of residuals with respect to all of them
holds a row of the Jacobian for each residual that depends on one point alone, or on
points that no other residual of the sum depends on. Which those are is found out by
gradients of sums that are weighted by the digits of the residuals' numbers. The idea of
sums that are taken apart again is Curtis, Powell, Reid, "On the estimation of sparse
Jacobian matrices", IMA J. Appl. Math. 13, 1974.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import Tensor

from ..paddle_side.dtypes import dtype_name
from ..transforms.as_programs.jit import jit
from ..transforms.derivatives.jvp import jvp
from ..transforms.derivatives.value_and_grad import grad
from ..transforms.vmap import vmap
from .functional_loss import FunctionalLoss, as_array

BASE = 32
"""The base of the digits. Weights of a sum are ``1 + digit / BASE``."""

MOST_POINTS = 4
"""Points of a residual, up to which rows are gathered; a product adds up more."""

MOST_SUMMED = 1 << 24
"""Elements of the largest matrix that adds up rows."""

RTOL = {"float64": 1e-8, "float32": 1e-3}
"""The largest difference of a product with a Jacobian from the derivative."""

PERTURBATION = 1e-2
"""The size of random numbers that are added to parameters before they are probed, since
a derivative that is zero at the start may not stay so."""


class Column(NamedTuple):
    """A column of one tensor of residuals; its residuals have no point in common.

    Attributes:
        tensor, place: which tensor, and which column of it.
        points: the points of each residual, side by side, and zeros.
        counts: one where a point counts, and zero.
        sums: a matrix that adds up the rows of points, in place of the two.
    """

    tensor: int
    place: int
    points: Any
    counts: Any
    sums: Any


class NotByRows(Exception):
    """Residuals that share points, or that depend on a net in other ways."""


class RowJacobian:
    """Gives derivatives of the residuals by all tensors, for programs.

    Args:
        loss: the loss.

    Raises:
        NotByRows: the residuals are not of the kind that this is for.
    """

    def __init__(self, loss: FunctionalLoss) -> None:
        self._loss, library = loss, loss.library
        self._n, self._net_tensors = library.rows, library.net_tensors
        if not self._n:
            raise NotByRows("the net has no points of its own")
        start = loss.start()
        rng = np.random.default_rng(0)
        self._values = [v + PERTURBATION * _random(v, rng) for v in start]
        self._directions = [_random(v, rng) for v in start]
        residuals, self._derivative = jit(self._derivative_along)(
            self._values, self._directions
        )
        self._shapes = [list(r.shape) for r in residuals]
        self._find_columns()
        self._check()

    def __call__(self, values: Sequence[Tensor]) -> list[list[Tensor]]:
        """Return derivatives of each tensor of residuals by each of the values."""
        columns: dict[tuple[int, int], list[Tensor]] = {}
        for together in self._sums:
            grads = self._row_gradients(values, together, None)
            for column in together:
                columns[column.tensor, column.place] = [
                    _rows_of(g, column) for g in grads
                ]
        others = self._derivatives_by_others(values)
        results = []
        for i, shape in enumerate(self._shapes):
            width = math.prod(shape[1:])
            blocks = [
                paddle.stack(parts, 1).reshape([*shape, *parts[0].shape[1:]])
                for parts in zip(*(columns[i, j] for j in range(width)), strict=True)
            ]
            results.append([*blocks, *(other[i] for other in others)])
        return results

    def _row_gradients(
        self, values: Sequence[Tensor], columns: Any, weights: Any
    ) -> list[Tensor]:
        """Return a gradient of a sum of residuals for each point."""
        rows = [
            v.unsqueeze(0).expand([self._n, *v.shape])
            for v in values[: self._net_tensors]
        ]

        def total(rows: Sequence[Tensor]) -> Tensor:
            residuals = self._loss.residuals_by_rows(rows, values)
            parts = [_matrix(residuals[c.tensor])[:, c.place] for c in columns]
            if weights is not None:
                parts = [p * w for p, w in zip(parts, weights, strict=True)]
            return sum(p.sum() for p in parts)  # type: ignore[return-value]

        result: list[Tensor] = grad(total)(rows)
        return result

    def _derivatives_by_others(self, values: Sequence[Tensor]) -> list[list[Tensor]]:
        """Return derivatives by tensors that are not the net's, such as unknowns."""
        results = []
        for k in range(self._net_tensors, len(values)):
            value = values[k]
            units = paddle.eye(int(value.size), dtype=value.dtype)

            def along(unit: Tensor, k: int = k) -> list[Tensor]:
                def residuals(one: Tensor) -> list[Tensor]:
                    return self._loss.residuals([*values[:k], one, *values[k + 1 :]])

                direction = unit.reshape(values[k].shape)
                derivatives: list[Tensor] = jvp(residuals, (values[k],), (direction,))[
                    1
                ]
                return derivatives

            columns = vmap(along)(units)
            results.append(
                [
                    c.moveaxis(0, -1).reshape([*c.shape[1:], *value.shape])
                    for c in columns
                ]
            )
        return results

    def _derivative_along(
        self, values: Sequence[Tensor], directions: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor]]:
        result: tuple[list[Tensor], list[Tensor]] = jvp(
            self._loss.residuals, (values,), (directions,)
        )
        return result

    def _find_columns(self) -> None:
        """Find the points of all residuals, and which columns can be summed up."""
        keys = [
            (i, j)
            for i, shape in enumerate(self._shapes)
            for j in range(math.prod(shape[1:]))
        ]
        self._sums: list[list[Column]] = []
        taken: list[Any] = []
        for key in keys:
            column, points = self._column(*key)
            for used, together in zip(taken, self._sums, strict=True):
                if not (used & points).any():
                    used |= points
                    together.append(column)
                    break
            else:
                taken.append(points)
                self._sums.append([column])

    def _column(self, tensor: int, place: int) -> tuple[Column, Any]:
        """Return a column, and whether each point counts for it."""
        n = self._shapes[tensor][0] if self._shapes[tensor] else 1
        dtype = dtype_name(self._values[0].dtype)
        empty = Column(tensor, place, None, None, None)

        @jit
        def probe(values: Sequence[Tensor], weights: Tensor) -> list[Tensor]:
            return self._row_gradients(values, [empty], [weights])

        def gradients(weights: Any) -> Any:
            tensor = paddle.to_tensor(weights.astype(dtype))
            found = probe(self._values, tensor)
            return np.concatenate([as_array(g).reshape(self._n, -1) for g in found], 1)

        whole = gradients(np.ones(n))
        squares = np.einsum("ij,ij->i", whole, whole)
        counts = squares > 0.0
        owners, numbers = np.zeros(self._n, int), np.arange(n)
        power, tolerance = 1, 10.0 * RTOL[dtype]
        while power < n:
            digits = numbers // power % BASE
            part = gradients(1.0 + digits / BASE)
            ratios = np.einsum("ij,ij->i", part, whole) / np.where(counts, squares, 1.0)
            rest = np.abs(part - ratios[:, None] * whole).max(1)
            found = (ratios - 1.0) * BASE
            digit = np.rint(found).astype(int)
            fits = (rest <= tolerance * np.abs(whole).max(1)) & (
                np.abs(found - digit) < 0.1
            )
            if not fits[counts].all() or (digit[counts] >= BASE).any():
                raise NotByRows("a point of the net counts for several residuals")
            owners += digit * power
            power *= BASE
        if (owners[counts] >= n).any() or (owners[counts] < 0).any():
            raise NotByRows("a point of the net counts for several residuals")
        return self._column_of(empty, owners, counts, n, dtype), counts

    def _column_of(
        self, empty: Column, owners: Any, counts: Any, n: int, dtype: str
    ) -> Column:
        (points,) = np.nonzero(counts)
        order = points[np.argsort(owners[points], kind="stable")]
        sizes = np.bincount(owners[points], minlength=n)
        width = max(int(sizes.max()), 1)
        if width <= MOST_POINTS:
            table, marks = np.zeros((n, width), int), np.zeros((n, width), dtype)
            starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
            places = np.arange(len(order)) - np.repeat(starts, sizes)
            table[owners[order], places], marks[owners[order], places] = order, 1.0
            return empty._replace(
                points=[paddle.to_tensor(column) for column in table.T],
                counts=[paddle.to_tensor(column) for column in marks.T],
            )
        if n * self._n > MOST_SUMMED:
            raise NotByRows("residuals depend on many points of the net")
        sums = np.zeros((n, self._n), dtype)
        sums[owners[points], points] = 1.0
        return empty._replace(sums=paddle.to_tensor(sums))

    def _check(self) -> None:
        """Compare a product with the derivative along a direction."""
        directions = self._directions
        found = jit(self.__call__)(self._values)
        for blocks, expected, shape in zip(
            found, self._derivative, self._shapes, strict=True
        ):
            product = np.zeros(shape)
            for block, direction in zip(blocks, directions, strict=True):
                product += np.tensordot(
                    as_array(block), as_array(direction), direction.ndim
                )
            wanted = as_array(expected)
            scale = np.abs(wanted).max() if wanted.size else 0.0
            rtol = RTOL[dtype_name(self._values[0].dtype)]
            if not np.abs(product - wanted).max(initial=0.0) <= rtol * scale:
                raise NotByRows("residuals depend on the net in other ways")


def _matrix(residuals: Tensor) -> Tensor:
    """Return residuals as a matrix of as many rows as they have."""
    rows = residuals.shape[0] if residuals.ndim else 1
    return residuals.reshape([rows, -1])


def _rows_of(grads: Tensor, column: Column) -> Tensor:
    """Return the gradient of each residual of a column."""
    shape = grads.shape[1:]
    flat = grads.reshape([grads.shape[0], -1])
    if column.sums is not None:
        rows = column.sums @ flat
    else:
        parts = [
            flat.index_select(points) * counts.unsqueeze(1)
            for points, counts in zip(column.points, column.counts, strict=True)
        ]
        rows = sum(parts[1:], parts[0])
    return rows.reshape([rows.shape[0], *shape])


def _random(like: Tensor, rng: Any) -> Tensor:
    numbers = rng.standard_normal(like.shape).astype(dtype_name(like.dtype))
    return paddle.to_tensor(numbers, place=like.place)
