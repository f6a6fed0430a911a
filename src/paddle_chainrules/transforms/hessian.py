"""Second derivatives of functions whose result is a number."""

from __future__ import annotations

from collections.abc import Callable

import optree
import paddle
from paddle import Tensor

from .jacobian import jacobian
from .recording import (
    is_differentiable,
)
from .tree import Tree
from .vjp import vjp

Scalar = Callable[[Tree], Tensor]


def _gradient(fn: Scalar) -> Callable[[Tree], Tree]:
    def gradient(x: Tree) -> Tree:
        y, pullback = vjp(fn, x)
        if not is_differentiable(y) or y.numel() != 1:
            raise ValueError(
                "a Hessian needs a function with one floating number as its value, got "
                f"{list(y.shape) if isinstance(y, Tensor) else type(y).__name__}; "
                "reduce it with .sum(), or use jacobian"
            )
        return pullback(paddle.ones_like(y))[0]

    return gradient


def hvp(fn: Scalar, x: Tree, v: Tree) -> Tree:
    """Hessian-vector product of a scalar function, nested as ``x``.

    Like ``jax.jvp(jax.grad(fn), ...)``, by reverse mode twice; the Hessian itself is
    never formed.

    Args:
        fn: function of one argument, with a tensor of one element as its value.
        x: a tensor or a tree of them, such as a dict of parameters.
        v: nested as x; None for zero.

    Raises:
        ValueError: more than one number, or a v of another structure or shape.
        NotImplementedError: a kernel that Paddle can't differentiate again.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import hvp
        >>> x, v = paddle.to_tensor([1.0, 2.0]), paddle.to_tensor([1.0, 0.0])
        >>> hvp(lambda x: (x**3).sum(), x, v).tolist()
        [6.0, 0.0]
    """
    gradient, pullback = vjp(_gradient(fn), x)
    known = optree.tree_map(
        lambda g, v: None if g is None else v, gradient, v, none_is_leaf=True
    )
    return pullback(known)[0]


def hessian(fn: Scalar, x: Tensor) -> Tensor:
    """The matrix of second derivatives of a scalar function, [*x.shape, *x.shape].

    One gradient, then one pullback of it per element of ``x``.

    Raises:
        ValueError: a function with more than one number as its value.
        NotImplementedError: a kernel that Paddle can't differentiate again.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import hessian
        >>> hessian(lambda x: x[0] ** 2 * x[1], paddle.to_tensor([1.0, 2.0])).tolist()
        [[4.0, 2.0], [2.0, 0.0]]
    """
    return jacobian(_gradient(fn), x).tensor()
