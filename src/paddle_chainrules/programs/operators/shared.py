"""Functions that several families need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.dtypes import is_complex
from ...paddle_side.rules.derivatives.piecewise import is_equal as is_equal
from ...paddle_side.rules.derivatives.piecewise import is_zero as is_zero
from .calls import Call

ops: Any = paddle._C_ops


def conj(x: Any) -> Any:
    """Return the conjugate of a complex tensor or number, and others unchanged."""
    if isinstance(x, Tensor):
        return ops.conj(x) if is_complex(x) else x
    return x.conjugate() if isinstance(x, complex) else x


def phase_gradient(sign: Tensor, speed: Tensor, size: Tensor) -> Tensor:
    """Return ``1j * sign * speed / size``: the gradient of a phase.

    A size of zero counts as one.
    """
    size = ops.where(size == 0, paddle.ones_like(size), size)
    return sign * ops.imag_grad(speed / size)


def one_hot(label: Tensor, like: Tensor, axis: int) -> Tensor:
    """Tell where the label is the index along an axis of another tensor.

    Args:
        label: integers, with one entry along this axis.
    """
    class_indices = paddle.arange(like.shape[axis], dtype=label.dtype)
    return label == ops.reshape(
        class_indices, [-1, *[1] * (like.ndim - 1 - axis % like.ndim)]
    )


def shaped_as(x: Tensor, like: Tensor) -> Tensor:
    """Reshape like another tensor, whose first size programs may not know."""
    if 0 in like.shape:
        return ops.reshape(x, like.shape)  # -1 may stand for any number
    return ops.reshape(x, [-1, *like.shape[1:]] if like.ndim else [])


def summed_to(g: Tensor, like: Tensor, in_order: bool = True) -> Tensor:
    """Sum a gradient over the axes of a repetition, to the tensor's shape.

    A value written at an index may have more axes than the index selects, of size one.

    Args:
        in_order: whether it is added in the order of Paddle's sums.
    """
    if is_complex(g) and not is_complex(like):
        g = ops.real(g)
    shape: list[int] = like.shape
    if g.shape == shape:
        return g
    lead = g.ndim - len(shape)
    if lead < 0:
        return ops.reshape(summed_to(g, ops.reshape(like, shape[-lead:])), shape)
    axes = [*range(lead)]
    axes += [i + lead for i, n in enumerate(shape) if n != g.shape[i + lead]]
    if in_order and g.ndim > 2 and len(axes) > 1:
        return ops.add_grad(g, like, g, -1)[1]
    total = ops.sum(g, axes, None, False)
    return total if total.shape == shape else ops.reshape(total, shape)


def in_dtype_of(x: Tensor, like: Tensor) -> Tensor:
    """Return a factor of a gradient in the gradient's dtype; complex ones as they are.

    A product of two narrow factors would lose what the gradient has.
    """
    if x.dtype == like.dtype or is_complex(x) or is_complex(like):
        return x
    return ops.cast(x, like.dtype)


def broadcast_gradients(
    call: Call, *gradients: Callable[[], Tensor] | None
) -> list[Any]:
    """Return the wanted gradients of arguments that may be broadcast.

    Args:
        gradients: a function for each argument, None where an argument has no gradient.
    """
    pairs = zip(call.args, gradients, strict=True)
    return [
        summed_to(gradient(), arg) if gradient and k in call.wanted else None
        for k, (arg, gradient) in enumerate(pairs)
    ]


def aligned(x: Tensor, ndim: int) -> Tensor:
    """Give each sample of a batch this many dimensions, for broadcasting.

    Args:
        x: has the samples along its first axis.
    """
    size, *shape = x.shape
    missing = ndim - len(shape)
    return x if not missing else ops.reshape(x, [size, *[1] * missing, *shape])
