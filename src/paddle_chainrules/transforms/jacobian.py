"""Jacobians of functions, entry by entry or whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from .jvp import jvp
from .recording import (
    is_differentiable,
)
from .vjp import vjp


def jacobian(fn: Callable[[Tensor], Tensor], x: Tensor, batched: bool = False) -> Any:
    """The matrix of first derivatives, a row at a time when it is asked for.

    Like ``paddle.autograd.jacobian``, of shapes of any dimension, without touching the
    caller's tensors, and in forward mode where there are far fewer inputs than outputs.

    Args:
        fn: function of one tensor to one tensor.
        x: where.
        batched: the first dimension of x and of the value counts samples that do not
            depend on each other; their Jacobians come side by side, for the price of
            one.

    Returns:
        A :class:`Jacobian`.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import jacobian
        >>> J = jacobian(lambda x: x * x.sum(), paddle.to_tensor([1.0, 2.0]))
        >>> J[0].tolist(), J.tensor().tolist()
        ([4.0, 1.0], [[4.0, 1.0], [2.0, 5.0]])
    """
    return Jacobian(fn, x, batched)


class Jacobian:
    """First derivatives of ``fn`` at ``x``; see :func:`jacobian`.

    Attributes:
        shape: of the output, then of the input; with batched the samples come first,
            and once.
    """

    def __init__(
        self, fn: Callable[[Tensor], Tensor], x: Tensor, batched: bool
    ) -> None:
        self._fn, self._x = fn, x
        y, self._pullback = vjp(fn, x)
        if not is_differentiable(x) or not is_differentiable(y):
            raise TypeError(
                "jacobian needs a floating tensor in and one out, got "
                f"{x.dtype if isinstance(x, Tensor) else type(x).__name__} and "
                f"{y.dtype if isinstance(y, Tensor) else type(y).__name__}"
            )
        skip = 1 if batched else 0
        if batched and (not x.ndim or not y.ndim or x.shape[0] != y.shape[0]):
            raise ValueError(
                f"batched: x has shape {list(x.shape)}, the value {list(y.shape)}; "
                "their first dimensions count the samples and must be equal"
            )
        self._y, self._samples = y, list(x.shape[:skip])
        self._rows = np.arange(int(np.prod(y.shape[skip:]))).reshape(y.shape[skip:])
        self._inputs = list(x.shape[skip:])
        self._known: dict[int, Tensor] = {}
        self.shape = [*self._samples, *self._rows.shape, *self._inputs]

    def __repr__(self) -> str:
        return f"Jacobian(shape={self.shape})"

    def __getitem__(self, index: Any) -> Tensor:
        """The derivatives of some outputs, by an index of their dimensions."""
        return self._stacked(self._rows[index])

    def tensor(self) -> Tensor:
        """All of it, by forward mode where that is cheaper and Paddle can."""
        if not self._known and 4 * int(np.prod(self._inputs)) < self._rows.size:
            try:
                return self._forward()
            except NotImplementedError:
                pass
        return self._stacked(self._rows)

    def _stacked(self, rows: Any) -> Tensor:
        rows = np.asarray(rows)
        if not rows.ndim:
            return self._row(int(rows))
        if not rows.size:
            return paddle.zeros(
                [*self._samples, *rows.shape, *self._inputs], self._x.dtype
            )
        axis = len(self._samples)
        stacked = paddle.stack([self._row(int(i)) for i in rows.flat], axis=axis)
        return stacked.reshape([*self._samples, *rows.shape, *self._inputs])

    def _row(self, i: int) -> Tensor:
        if i not in self._known:
            seed = np.zeros([int(np.prod(self._samples)), self._rows.size])
            seed[:, i] = 1
            cotangent = paddle.to_tensor(seed, dtype=self._y.dtype)
            (grad,) = self._pullback(cotangent.reshape(self._y.shape))
            self._known[i] = paddle.zeros_like(self._x) if grad is None else grad
        return self._known[i]

    def _forward(self) -> Tensor:
        """A column per input, which is then turned."""
        width = int(np.prod(self._inputs))
        columns = []
        for i in range(width):
            seed = np.zeros([int(np.prod(self._samples)), width])
            seed[:, i] = 1
            tangent = paddle.to_tensor(seed, dtype=self._x.dtype)
            _, column = jvp(self._fn, (self._x,), (tangent.reshape(self._x.shape),))
            columns.append(column)
        return paddle.stack(columns, axis=-1).reshape(self.shape)
