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

    @property
    def size(self) -> int:
        """The number of parameters, once it has learnt something."""

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

    @property
    def size(self) -> int:
        return len(self._memory[-1][0]) if self._memory else 0

    def forget(self) -> None:
        self._memory.clear()

    def learn(
        self, step: Tensor, before: Tensor, after: Tensor, curvature: float
    ) -> None:
        change = after - before
        step_dot_change = _dot(step, change)
        if step_dot_change > 1e-10 * _dot(change, change):
            self._memory.append((step, change, 1.0 / step_dot_change))

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


MAX_FACTOR = 1e6
"""A factor beside a matrix, before it is multiplied into it."""

MAX_PENDING, LARGE_MATRIX_ROWS = (8, 32), 2000
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

    @property
    def size(self) -> int:
        return 0 if self._matrix is None else len(self._matrix)

    def forget(self) -> None:
        self._matrix: Tensor | None = None
        self._factor, self._pending = 1.0, 0
        self._last: tuple[Tensor, Tensor] | None = None

    def __call__(self, grad: Tensor) -> Tensor:
        if self._last is not None and self._last[0] is grad:
            return self._last[1]
        result = self._times_inverse(grad)
        self._last = grad, result
        return result

    def _times_inverse(self, x: Tensor) -> Tensor:
        if self._matrix is None:
            return x
        result = paddle.mv(self._matrix, x)
        if self._pending:
            result = result + paddle.mv(self._rows, x) @ self._columns
        return result * self._factor

    def learn(
        self, step: Tensor, before: Tensor, after: Tensor, curvature: float
    ) -> None:
        change = after - before
        inverse_after = self._times_inverse(after)
        inverse_change = inverse_after - self(before)  # H y
        step_dot_change = _dot(step, change)  # s^T y
        change_curvature = _dot(change, inverse_change)  # y^T H y
        self._last = after, inverse_after
        if not (step_dot_change > 0.0 and change_curvature > 0.0 and curvature > 0.0):
            return
        h, b = change_curvature / step_dot_change, curvature / step_dot_change
        if not (0.0 < h < math.inf and 0.0 < b < math.inf):
            return
        theta, sigma = self._broyden_member(h, b)
        if self._matrix is None:  # as large as the Hessian is along the step
            tau = h / sigma
        else:
            tau = self._matrix_divisor(theta, sigma, b, len(step))
        phi = (1.0 - theta) / sigma
        factor = self._factor / tau
        if not all(map(math.isfinite, (phi / tau, factor, 1.0 / factor))):
            return
        # (H - Hy(Hy)^T / y^T H y + phi y^T H y v v^T) / tau + s s^T / s^T y,
        # where v = s / s^T y - Hy / y^T H y
        mixed = -phi / (tau * step_dot_change)
        rows = [
            step * ((phi * h / tau + 1.0) / step_dot_change) + inverse_change * mixed,
            inverse_change * ((phi - 1.0) / (tau * change_curvature)) + step * mixed,
        ]
        self._factor = factor
        self._append_products([step / factor, inverse_change / factor], rows)
        result = (
            inverse_after / tau
            + step * _dot(rows[0], after)
            + inverse_change * _dot(rows[1], after)
        )
        self._last = after, result

    def _append_products(self, columns: list[Tensor], rows: list[Tensor]) -> None:
        n, dtype = len(rows[0]), rows[0].dtype
        if self._matrix is None:
            self._matrix = paddle.eye(n, dtype=dtype)
            self._columns = paddle.zeros(
                [2 * MAX_PENDING[n >= LARGE_MATRIX_ROWS], n], dtype
            )
            self._rows = paddle.zeros_like(self._columns)
        for column, row in zip(columns, rows, strict=True):
            self._columns[self._pending], self._rows[self._pending] = column, row
            self._pending += 1
        is_large = not 1.0 / MAX_FACTOR < self._factor < MAX_FACTOR
        if self._pending == len(self._rows) or is_large:
            count, self._pending = self._pending, 0
            self._matrix.addmm_(self._columns[:count].T, self._rows[:count])
            self._columns.zero_()
            self._rows.zero_()
        if is_large:
            self._matrix.multiply_(paddle.full([], self._factor, dtype))
            self._factor = 1.0

    def _broyden_member(self, h: float, b: float) -> tuple[float, float]:
        """Return the member of Broyden's class: the papers' theta and sigma."""
        if self._update != "ssbroyden":
            return 0.0, 1.0
        a = h * b - 1.0
        if not 0.0 < a < math.inf:  # along an eigenvector all members are BFGS
            return 0.0, 1.0
        rho = min(1.0, 1.0 / (b * (1.0 + math.sqrt(a / (1.0 + a)))))
        lower = (rho - 1.0) / a  # where sigma is rho
        theta = max(lower, min(1.0 / rho, (1.0 - b) / b))
        return theta, max(rho, 1.0 + theta * a)

    def _matrix_divisor(self, theta: float, sigma: float, b: float, size: int) -> float:
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
