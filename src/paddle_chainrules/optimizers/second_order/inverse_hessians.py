"""The inverse of a Hessian, as it follows from steps and changes of the gradient.

Limited memory: Nocedal, Wright, "Numerical optimization", 2nd edition, 2006, algorithm
7.4. Matrices: BFGS, there (6.17) and (6.20); self-scaled: Al-Baali, "Numerical
experience with a class of self-scaling quasi-Newton algorithms", J. Optim. Theory Appl.
96, 1998; Urbán, Stefanou, Pons, "Unveiling the optimization process of physics informed
neural networks", J. Comput. Phys. 523, 2025.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol

import paddle
from paddle import Tensor


class InverseHessian(Protocol):
    """An estimate of an inverse Hessian: gives directions, and learns from steps."""

    @property
    def empty(self) -> bool:
        """True if it has learnt nothing, and is the identity."""

    def __call__(self, grad: Tensor, /) -> Tensor:
        """Return its product with a gradient, the negative of a direction."""

    def learn(
        self, step: Tensor, before: Tensor, after: Tensor, curvature: float
    ) -> None:
        """Learn from a step and the gradients at its ends."""

    def forget(self) -> None:
        """Become the identity again."""


class LimitedMemory:
    """An estimate from the last steps, at most ``memory`` of them."""

    def __init__(self, memory: int) -> None:
        self._memory: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=memory)

    @property
    def empty(self) -> bool:
        return not self._memory

    def forget(self) -> None:
        self._memory.clear()

    def learn(
        self, step: Tensor, before: Tensor, after: Tensor, curvature: float
    ) -> None:
        change = after - before
        along = _dot(step, change)
        if along > 1e-10 * _dot(change, change):
            self._memory.append((step, change, 1.0 / along))

    def __call__(self, grad: Tensor) -> Tensor:
        result, factors = grad, []
        for step, change, scale in reversed(self._memory):
            factor = scale * _dot(step, result)
            result = result - change * factor
            factors.append(factor)
        if self._memory:
            _, change, scale = self._memory[-1]
            result = result / (scale * _dot(change, change))
        for (step, change, scale), factor in zip(
            self._memory, reversed(factors), strict=True
        ):
            result = result + step * (factor - scale * _dot(change, result))
        return result


LARGEST = 1e6
"""A factor beside a matrix, before it is multiplied into it."""

KEPT, LARGE = (8, 32), 2000
"""Steps that are beside a matrix, before they are added to it, and rows from which on
there are more of them: to add some at a time takes hardly more memory traffic than to
add one."""


class DenseInverse:
    """A matrix of all parameters by all, in the dtype of these.

    It is a factor times the sum of what is written in full and of products of columns
    with rows, of the last steps.

    Args:
        update: "bfgs", "ssbfgs" or "ssbroyden".
    """

    def __init__(self, update: str) -> None:
        self._update = update
        self.forget()

    @property
    def empty(self) -> bool:
        return self._matrix is None

    def forget(self) -> None:
        self._matrix: Tensor | None = None
        self._factor, self._kept = 1.0, 0
        self._last: tuple[Tensor, Tensor] | None = None

    def __call__(self, grad: Tensor) -> Tensor:
        if self._last is not None and self._last[0] is grad:
            return self._last[1]
        result = self._product(grad)
        self._last = grad, result
        return result

    def _product(self, x: Tensor) -> Tensor:
        if self._matrix is None:
            return x
        result = paddle.mv(self._matrix, x)
        if self._kept:
            result = result + paddle.mv(self._rows, x) @ self._columns
        return result * self._factor

    def learn(
        self, step: Tensor, before: Tensor, after: Tensor, curvature: float
    ) -> None:
        change = after - before
        ahead = self._product(after)
        moved = ahead - self(before)  # H y
        along = _dot(step, change)  # s^T y
        bent = _dot(change, moved)  # y^T H y
        self._last = after, ahead
        if not (along > 0.0 and bent > 0.0 and curvature > 0.0):
            return
        h, b = bent / along, curvature / along
        if not (0.0 < h < math.inf and 0.0 < b < math.inf):
            return
        theta, sigma = self._member(h, b)
        if self._matrix is None:  # as large as the Hessian is along the step
            tau = h / sigma
        else:
            tau = self._scale(theta, sigma, b, len(step))
        phi = (1.0 - theta) / sigma
        factor = self._factor / tau
        if not all(map(math.isfinite, (phi / tau, factor, 1.0 / factor))):
            return
        # (H - Hy(Hy)^T / y^T H y + phi y^T H y v v^T) / tau + s s^T / s^T y,
        # where v = s / s^T y - Hy / y^T H y
        mixed = -phi / (tau * along)
        rows = [
            step * ((phi * h / tau + 1.0) / along) + moved * mixed,
            moved * ((phi - 1.0) / (tau * bent)) + step * mixed,
        ]
        self._factor = factor
        self._add([step / factor, moved / factor], rows)
        result = (
            ahead / tau + step * _dot(rows[0], after) + moved * _dot(rows[1], after)
        )
        self._last = after, result

    def _add(self, columns: list[Tensor], rows: list[Tensor]) -> None:
        n, dtype = len(rows[0]), rows[0].dtype
        if self._matrix is None:
            self._matrix = paddle.eye(n, dtype=dtype)
            self._columns = paddle.zeros([2 * KEPT[n >= LARGE], n], dtype)
            self._rows = paddle.zeros_like(self._columns)
        for column, row in zip(columns, rows, strict=True):
            self._columns[self._kept], self._rows[self._kept] = column, row
            self._kept += 1
        is_large = not 1.0 / LARGEST < self._factor < LARGEST
        if self._kept == len(self._rows) or is_large:
            count, self._kept = self._kept, 0
            self._matrix.addmm_(self._columns[:count].T, self._rows[:count])
            self._columns.zero_()
            self._rows.zero_()
        if is_large:
            self._matrix.multiply_(paddle.full([], self._factor, dtype))
            self._factor = 1.0

    def _member(self, h: float, b: float) -> tuple[float, float]:
        """Return the member of Broyden's class: the papers' theta and sigma."""
        if self._update != "ssbroyden":
            return 0.0, 1.0
        a = h * b - 1.0
        if not 0.0 < a < math.inf:  # along an eigenvector all members are BFGS
            return 0.0, 1.0
        rho = min(1.0, 1.0 / (b * (1.0 + math.sqrt(a / (1.0 + a)))))
        least = (rho - 1.0) / a  # where sigma is rho
        theta = max(least, min(1.0 / rho, (1.0 - b) / b))
        return theta, max(rho, 1.0 + theta * a)

    def _scale(self, theta: float, sigma: float, b: float, size: int) -> float:
        """Return the number that the matrix is divided by."""
        if self._update == "bfgs":
            return 1.0
        largest = min(1.0, 1.0 / b)
        if self._update == "ssbfgs" or size == 1:
            return largest
        mean = sigma ** (1.0 / (1 - size))
        if theta <= 0.0:
            return min(largest * mean, sigma)
        return largest * min(mean, 1.0 / theta)


def _dot(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum())
