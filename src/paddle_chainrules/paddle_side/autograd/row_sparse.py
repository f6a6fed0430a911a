"""Gradients of a few rows: those of an embedding of which a batch uses little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import paddle
from paddle import Tensor


@dataclass
class RowSparse:
    """A tensor that is zero but for some rows; several entries of one row add up.

    What ``pullback(cotangent, sparse=...)`` gives for the parameters named there.

    Attributes:
        rows: which rows, int64, of shape [k].
        values: their values, of shape [k, ...].
        shape: of the whole tensor.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import stateless
        >>> net, params, _ = stateless(paddle.nn.Embedding(1000, 4, sparse=True))
        >>> words = paddle.to_tensor([[1, 7], [7, 5]])
        >>> y, pullback = net.pullback(params, words)
        >>> grads, _ = pullback(paddle.ones_like(y), sparse="weight")
        >>> grads["weight"].coalesce().rows.tolist()
        [1, 5, 7]
    """

    rows: Tensor
    values: Tensor
    shape: tuple[int, ...]

    @classmethod
    def zeros(cls, shape: Sequence[int], dtype: str = "float32") -> RowSparse:
        """One without rows, to accumulate into."""
        rows = paddle.zeros([0], dtype="int64")
        return cls(
            rows, paddle.zeros([0, *shape[1:]], getattr(paddle, dtype)), tuple(shape)
        )

    @classmethod
    def of(cls, grad: Tensor) -> RowSparse:
        """Of a gradient as Paddle gives it: the rows of SelectedRows, else those of a
        dense one that are not all zero."""
        shape = tuple(grad.shape)
        if grad.is_selected_rows():
            untyped: Any = grad
            chosen = untyped.get_selected_rows()
            rows = paddle.to_tensor(chosen.rows(), dtype="int64").reshape([-1])
            values = grad._get_tensor_from_selected_rows()
            return cls(rows, values, (chosen.height(), *values.shape[1:]))
        used = (grad.reshape([shape[0], -1]) != 0).any(axis=1)
        rows = paddle.nonzero(used).reshape([-1])
        return cls(rows, paddle.gather(grad, rows), shape)

    def to_dense(self) -> Tensor:
        """The whole tensor."""
        whole = paddle.zeros([*self.shape], dtype=self.values.dtype)
        if not self.rows.shape[0]:
            return whole
        dense: Tensor = paddle.scatter_nd_add(
            whole, self.rows.unsqueeze(1), self.values
        )
        return dense

    def coalesce(self) -> RowSparse:
        """The same with each row once, in order."""
        if not self.rows.shape[0]:
            return self
        found: Any = paddle.unique(self.rows, return_inverse=True)
        rows, inverse = found
        zeros = paddle.zeros([rows.shape[0], *self.shape[1:]], self.values.dtype)
        values = paddle.scatter_nd_add(zeros, inverse.unsqueeze(1), self.values)
        return RowSparse(rows, values, self.shape)

    def assign(self, other: RowSparse, accumulate: bool) -> None:
        """Take the rows of another, or add them."""
        rows, values = other.rows, other.values
        if accumulate:
            rows = paddle.concat([self.rows, rows])
            values = paddle.concat([self.values, values])
        self.rows, self.values = rows, values


def dense(grad: Tensor | None) -> Tensor | None:
    """A gradient as a plain tensor."""
    if grad is None or not grad.is_selected_rows():
        return grad
    return RowSparse.of(grad).to_dense()
