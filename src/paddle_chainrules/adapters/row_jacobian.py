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
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import Tensor

from ..optimizers.second_order.flat_trees import array_of, flat_params
from ..optimizers.second_order.vector_functions import MatrixFunction
from ..paddle_side.dtypes import dtype_name
from ..transforms.as_programs.jit import jit
from ..transforms.derivatives.jvp import jvp
from ..transforms.derivatives.value_and_grad import grad
from ..transforms.vmap import vmap
from .functional_loss import FunctionalLoss, SomePoints

BASE = 32
"""The base of the digits. Weights of a sum are ``1 + digit / BASE``."""

BLOCK_BYTES = 1 << 24
"""Bytes of the parameters of the points that have their own at once, which bounds the
memory of what is computed with them."""

RTOL = {"float64": 1e-8, "float32": 1e-3}
"""The largest difference of a product with a Jacobian from the derivative."""

PERTURBATION = 1e-2
"""The size of random numbers that are added to parameters before they are probed, since
a derivative that is zero at the start may not stay so."""


SHARED = (
    "a point of the net counts for several residuals, so that they are differentiated "
    "one by one; use 'gauss_newton' if that takes long"
)
"""Why there is no Jacobian by rows."""


class ResidualColumn(NamedTuple):
    """A column of one tensor of residuals; its residuals have no point in common.

    Attributes:
        tensor, place: which tensor, and which column of it.
        rows: the numbers of its residuals among all.
        points: the points that count.
        owners: for each of these the residual that depends on it.
    """

    tensor: int
    place: int
    rows: Any
    points: Any = None
    owners: Any = None


class Pass(NamedTuple):
    """A part of the work.

    Attributes:
        some: the points of each call of the net that have their own parameters; None
            for all of them.
        size: the number of these.
        points: the numbers of those among the points of all calls that are new.
        places: where these are among the gradients.
    """

    some: list[SomePoints | None]
    size: int
    points: Any
    places: Any


class NotByRows(Exception):
    """Residuals that share points, or that depend on a net in other ways."""


class RowJacobian(MatrixFunction):
    """The derivatives of all residuals by all tensors.

    Args:
        loss: the loss.

    Raises:
        NotByRows: the residuals are not of the kind that this is for.
    """

    def __init__(self, loss: FunctionalLoss) -> None:
        self._loss, library = loss, loss.library
        self._net_tensors, self._n = library.net_tensors, sum(library.points)
        if not self._n:
            raise NotByRows(
                "the net has no points of its own; use 'gauss_newton' if it takes long"
            )
        start = loss.start()
        flat, nesting = flat_params(start, "a Jacobian by rows")
        self._tree, self._size = nesting.tree, int(flat.size)
        self._dtype = dtype_name(start[0].dtype)
        self._width = sum(nesting.sizes[: self._net_tensors])
        most = max(BLOCK_BYTES // (self._width * start[0].element_size()), 1)
        self._passes = [*_passes(library.points, -(-self._n // most))]
        rng = np.random.default_rng(0)
        at, direction = (_random(flat, rng) for _ in "ab")
        at = flat + PERTURBATION * at
        residuals, derivative = jit(self._derivative_along, strict=True)(at, direction)
        self._columns = [*_columns_of([list(r.shape) for r in residuals])]
        self._height = sum(int(r.size) for r in residuals)
        self._others = jit(self._derivatives_by_others, strict=True)
        self._find_points(at)
        self._check(at, direction, derivative)

    def matrix(self, at: Tensor) -> Any:
        """Return a row for each residual, at a vector of parameters."""
        result = np.zeros((self._height, self._size), self._dtype)
        net = result[:, : self._width]
        for together, points, grads in self._gradients(at):
            for column in together:
                chosen = np.isin(column.points, points)
                places = np.searchsorted(points, column.points[chosen])
                rows = column.rows[column.owners[chosen]]
                if len(np.unique(rows)) == len(rows):
                    net[rows] += grads[places]
                else:
                    np.add.at(net, rows, grads[places])
        if self._width < result.shape[1]:
            result[:, self._width :] = array_of(self._others(at)).T
        return result

    def _gradients(self, at: Tensor) -> Iterator[tuple[Any, Any, Any]]:
        """Yield columns that are summed up, points, and the gradient for each."""
        for each in self._passes:
            found = self._program(at, each.some, self._weights)
            for together, grads in zip(self._sums, found, strict=True):
                yield together, each.points, array_of(grads)[each.places]

    def _row_gradients(
        self, at: Tensor, some: Any, weights: Any, sums: Any
    ) -> list[Tensor]:
        """Return a gradient of each sum of residuals, for each of some points."""
        values = self._tree(at)
        net_values = values[: self._net_tensors]
        count = self._passes[0].size
        rows = [v.unsqueeze(0).expand([count, *v.shape]) for v in net_values]

        def total(rows: Sequence[Tensor], columns: Any) -> Tensor:
            residuals = self._loss.residuals_by_rows(rows, values, some)
            parts = [
                (_matrix(residuals[c.tensor])[:, c.place] * weights[i]).sum()
                for i, c in columns
            ]
            return sum(parts[1:], parts[0])

        return [
            paddle.concat(
                [
                    g.reshape([count, -1])
                    for g in grad(lambda r, c=columns: total(r, c))(rows)
                ],
                1,
            )
            for columns in sums
        ]

    def _derivatives_by_others(self, at: Tensor) -> Tensor:
        """Return derivatives by what is not the net's, such as unknowns, as rows."""
        width = int(at.size) - self._width

        def along(unit: Tensor) -> Tensor:
            direction = paddle.concat([paddle.zeros([self._width], at.dtype), unit])
            _, derivatives = self._derivative_along(at, direction)
            return paddle.concat([d.flatten() for d in derivatives])

        result: Tensor = vmap(along)(paddle.eye(width, dtype=at.dtype))
        return result

    def _derivative_along(
        self, at: Tensor, direction: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        result: tuple[list[Tensor], list[Tensor]] = jvp(
            lambda x: self._loss.residuals(self._tree(x)), (at,), (direction,)
        )
        return result

    def _find_points(self, at: Tensor) -> None:
        """Find the points of all residuals, and which columns can be summed up."""
        every = [*enumerate(self._columns)]
        probe = jit(
            lambda at, some, weights: self._row_gradients(at, some, weights, [every]),
            strict=True,
        )
        counts = [len(c.rows) for c in self._columns]
        powers = [1]
        while powers[-1] * BASE < max(counts):
            powers.append(powers[-1] * BASE)
        nothing = self._as_tensors([np.zeros(n) for n in counts])
        self._weights = self._as_tensors([np.ones(n) for n in counts])
        are_active = [np.zeros(self._n, bool) for _ in counts]
        owners = [np.zeros(self._n, int) for _ in counts]
        for i, count in enumerate(counts):
            digits = [1.0 + np.arange(count) // p % BASE / BASE for p in powers]
            plain, *numbered = (
                [*nothing[:i], weight, *nothing[i + 1 :]]
                for weight in (self._weights[i], *self._as_tensors(digits))
            )
            for each in self._passes:  # in memory there is one pass's block at a time
                whole = _new_rows(each, probe(at, each.some, plain))
                are_active[i][each.points] = np.abs(whole).max(1) > 0.0
                for power, weights in zip(powers, numbered, strict=True):
                    part = _new_rows(each, probe(at, each.some, weights))
                    found = _digits(part, whole, 10.0 * RTOL[self._dtype])
                    owners[i][each.points] += found * power
        self._take(are_active, owners)
        sums = [[(self._columns.index(c), c) for c in cs] for cs in self._sums]
        self._program = jit(
            lambda at, some, weights: self._row_gradients(at, some, weights, sums),
            strict=True,
        )

    def _as_tensors(self, arrays: Sequence[Any]) -> list[Tensor]:
        return [paddle.to_tensor(array.astype(self._dtype)) for array in arrays]

    def _take(self, are_active: Sequence[Any], owners: Sequence[Any]) -> None:
        """Keep the points of each column, and put columns together that share none."""
        self._sums: list[list[ResidualColumn]] = []
        taken: list[Any] = []
        for i, (counts, owner) in enumerate(zip(are_active, owners, strict=True)):
            column = self._columns[i]
            if (owner[counts] >= len(column.rows)).any():
                raise NotByRows(SHARED)
            (points,) = np.nonzero(counts)
            column = column._replace(points=points, owners=owner[points])
            self._columns[i] = column
            for used, together in zip(taken, self._sums, strict=True):
                if not (used & counts).any():
                    used |= counts
                    together.append(column)
                    break
            else:
                taken.append(counts)
                self._sums.append([column])

    def _check(
        self, at: Tensor, direction: Tensor, derivatives: Sequence[Tensor]
    ) -> None:
        """Compare a product with the derivative along a direction."""
        found = self.matrix(at) @ array_of(direction)
        expected = np.concatenate([array_of(d).reshape(-1) for d in derivatives])
        scale = np.abs(expected).max(initial=0.0)
        if not np.abs(found - expected).max() <= RTOL[self._dtype] * scale:
            raise NotByRows(
                "residuals depend on the net in other ways; use 'gauss_newton' if they "
                "take long"
            )


def _passes(counts: Sequence[int], number: int) -> Iterator[Pass]:
    """Yield passes, in each of which some points of each call have their own."""
    sizes = [-(-count // number) for count in counts]
    begins, places = np.cumsum([0, *counts]), np.cumsum([0, *sizes])
    for k in range(number):
        some: list[SomePoints | None] = []
        points, kept = [], []
        for call, (count, size) in enumerate(zip(counts, sizes, strict=True)):
            start = min(k * size, count - size)  # the last passes have as many points
            own = np.arange(start, start + size)
            rest = np.delete(np.arange(count), own)
            order = np.argsort(np.concatenate([own, rest]), kind="stable")
            arrays = own, rest, order
            some.append(
                SomePoints(*map(paddle.to_tensor, arrays)) if len(rest) else None
            )
            is_new = own >= min(k * size, count)
            points.append(begins[call] + own[is_new])
            kept.append(places[call] + np.nonzero(is_new)[0])
        yield Pass(some, int(places[-1]), np.concatenate(points), np.concatenate(kept))


def _new_rows(each: Pass, grads: Sequence[Tensor]) -> Any:
    """Return the rows of the points that are new in a pass, of one gradient."""
    (found,) = grads
    return array_of(found)[each.places]


def _digits(part: Any, whole: Any, tolerance: float) -> Any:
    """Return the digit that each row of a weighted sum shows.

    Raises:
        NotByRows: a row is no multiple of the plain sum's, by a digit's weight.
    """
    squares = np.einsum("ij,ij->i", whole, whole)
    counts = squares > 0.0
    ratios = np.einsum("ij,ij->i", part, whole) / np.where(counts, squares, 1.0)
    found = np.where(counts, (ratios - 1.0) * BASE, 0.0)
    result = np.rint(found).astype(int)
    rest = np.abs(part - ratios[:, None] * whole).max(1)
    fits = (result >= 0) & (result < BASE) & (np.abs(found - result) < 0.1)
    fits &= rest <= tolerance * np.abs(whole).max(1)
    if not (
        fits & (np.abs(found - result) < 0.1) & (result >= 0) & (result < BASE)
    ).all():
        raise NotByRows(SHARED)
    return result


def _columns_of(shapes: Sequence[Sequence[int]]) -> Iterator[ResidualColumn]:
    """Yield the columns of tensors of these shapes."""
    begin = 0
    for tensor, shape in enumerate(shapes):
        height = shape[0] if shape else 1
        width = math.prod(shape[1:])
        for place in range(width):
            rows = begin + np.arange(height) * width + place
            yield ResidualColumn(tensor, place, rows)
        begin += height * width


def _matrix(residuals: Tensor) -> Tensor:
    """Return residuals as a matrix of as many rows as they have."""
    rows = residuals.shape[0] if residuals.ndim else 1
    return residuals.reshape([rows, -1])


def _random(like: Tensor, rng: Any) -> Tensor:
    numbers = rng.standard_normal(like.shape).astype(dtype_name(like.dtype))
    return paddle.to_tensor(numbers, place=like.place)
