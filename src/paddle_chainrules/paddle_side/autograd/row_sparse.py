"""Gradients of a few rows: those of an embedding of which a batch uses little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import paddle
from paddle import Tensor

from ..arguments import checked_integer
from ..dtypes import is_dtype_name


@dataclass
class RowSparse:
    """A tensor that is zero but for some rows; several entries of one row add up.

    ``pullback(cotangent, sparse=...)`` gives these for the parameters named there.

    Attributes:
        rows: the numbers of the rows, int64, of shape [k].
        values: their values, of shape [k, ...].
        shape: the shape of the whole tensor.

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

    def __post_init__(self) -> None:
        rows, values, shape = self.rows, self.values, self.shape
        if not (isinstance(rows, Tensor) and isinstance(values, Tensor)):
            raise TypeError(
                "rows and values are tensors, got "
                f"{type(rows).__name__} and {type(values).__name__}; RowSparse.of "
                "takes a gradient as a whole"
            )
        self.shape = tuple(checked_integer("each size of shape", n) for n in shape)
        values_shape = tuple(values.shape)
        if (
            rows.ndim != 1
            or values_shape != (rows.shape[0], *self.shape[1:])
            or not shape
        ):
            raise ValueError(
                f"rows of shape {list(rows.shape)} and values of shape "
                f"{list(values_shape)} are none of a tensor of shape "
                f"{list(self.shape)}; give values of shape [rows, ...]"
            )
        if "int" not in str(rows.dtype):
            raise TypeError(f"rows are integers, got {rows.dtype}; give int64")

    @classmethod
    def zeros(cls, shape: Sequence[int], dtype: str = "float32") -> RowSparse:
        """Make one without rows, to accumulate into."""
        rows = paddle.zeros([0], dtype="int64")
        sizes = tuple(checked_integer("each size of shape", n) for n in shape)
        if not is_dtype_name(dtype):
            raise TypeError(f"dtype is the name of one, got {dtype!r}; give 'float32'")
        return cls(rows, paddle.zeros([0, *sizes[1:]], getattr(paddle, dtype)), sizes)

    @classmethod
    def of(cls, grad: Tensor) -> RowSparse:
        """Make one from a gradient as Paddle gives it.

        It has the rows of SelectedRows, or those of a dense gradient that are not all
        zero.
        """
        if not isinstance(grad, Tensor) or not grad.ndim:
            raise TypeError(
                "RowSparse.of takes a gradient of one dimension or more, got "
                f"{type(grad).__name__}; give a tensor"
            )
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
        """Return the whole tensor."""
        result = paddle.zeros([*self.shape], dtype=self.values.dtype)
        if not self.rows.shape[0]:
            return result
        dense: Tensor = paddle.scatter_nd_add(
            result, self.rows.unsqueeze(1), self.values
        )
        return dense

    def coalesce(self) -> RowSparse:
        """Return the same with each row once, in order."""
        if not self.rows.shape[0]:
            return self
        result: Any = paddle.unique(self.rows, return_inverse=True)
        rows, inverse = result
        zeros = paddle.zeros([rows.shape[0], *self.shape[1:]], self.values.dtype)
        values = paddle.scatter_nd_add(zeros, inverse.unsqueeze(1), self.values)
        return RowSparse(rows, values, self.shape)

    def assign(self, other: RowSparse, accumulate: bool) -> None:
        """Take the rows of another, or add them."""
        if not isinstance(other, RowSparse) or other.shape[1:] != self.shape[1:]:
            raise TypeError(
                f"a RowSparse of shape {list(self.shape)} takes rows of another one, "
                f"got {type(other).__name__}; RowSparse.of makes one of a gradient"
            )
        rows, values = other.rows, other.values
        if accumulate:
            rows = paddle.concat([self.rows, rows])
            values = paddle.concat([self.values, values])
        self.rows, self.values = rows, values


def dense(grad: Tensor | None) -> Tensor | None:
    """Return a gradient as a plain tensor."""
    if grad is None or not grad.is_selected_rows():
        return grad
    return RowSparse.of(grad).to_dense()
