"""Forward mode, Jacobians, second derivatives of any function, by nested paddle.grad.

As far as Paddle's kernels go: where one can't be differentiated again, an error names
it. Fully connected nets have :mod:`..nets.derivatives`, which needs no such kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import paddle
from paddle import Tensor

from .vjp import Tree, flatten_tree, vjp
from ..paddle_side.engine import gradients
from ..paddle_side.grad_mode import grad_mode
from .recording import (
    check_cotangent,
    cut,
    is_differentiable,
    record,
    records_graph,
)
from ..paddle_side.watch import as_leaf

Scalar = Callable[[Tree], Tensor]


def jvp(
    fn: Callable[..., Tree], primals: tuple[Tree, ...], tangents: tuple[Tree, ...]
) -> tuple[Tree, Tree]:
    """Value and Jacobian-vector product: ``(fn(*primals), its derivative along)``.

    Like ``jax.jvp``, but by reverse mode twice, since Paddle has no forward mode; it
    needs kernels that can be differentiated twice.

    Args:
        fn: function of tensors; it may return a tensor or a tree of them.
        primals: the arguments, tensors or trees of them.
        tangents: nested as primals, with their shapes and dtypes; None for zero.

    Returns:
        The value, and the derivative nested as it is: zero where the value does not
        depend on the primals, None where it is no floating tensor.

    Raises:
        ValueError: a tangent of another structure or shape.
        TypeError: a tangent of another dtype.
        NotImplementedError: a kernel that Paddle can't differentiate again.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import jvp
        >>> x, v = paddle.to_tensor([1.0, 2.0]), paddle.to_tensor([1.0, 0.5])
        >>> y, slope = jvp(lambda x: x * x, (x,), (v,))
        >>> slope.tolist()
        [2.0, 2.0]
    """
    leaves, spec = flatten_tree(tuple(primals))
    given, found_spec = flatten_tree(tuple(tangents))
    if found_spec != spec:
        raise ValueError(
            f"tangents are nested as {found_spec}, primals as {spec}; give one tensor, "
            "or None for zero, per primal"
        )
    for leaf, tangent in zip(leaves, given, strict=True):
        if tangent is not None and isinstance(leaf, Tensor):
            check_cotangent(tangent, leaf.shape, leaf.dtype, "tangent", "primal")
    out_spec = spec

    def flat(stand_ins: list[Any]) -> list[Any]:
        nonlocal out_spec
        outputs, out_spec = flatten_tree(fn(*spec.unflatten(stand_ins)))
        return outputs

    values, recording = record(flat, leaves, again=True)
    connected = recording.connected or records_graph(given)
    # The pullback is linear in the cotangent: its own pullback is what is asked for.
    outputs = [o for o in recording.outputs if is_differentiable(o)]
    slopes: list[Tensor | None] = [None] * len(outputs)
    traced = [*{id(o): o for o in outputs if not o.stop_gradient}.values()]
    if traced:
        with grad_mode(True):
            seeds = [as_leaf(paddle.zeros_like(output)) for output in traced]
            grads = recording.differentiable_gradients(traced, seeds)
        tangent_of = iter(given[i] for i in recording.differentiable)
        pairs = [
            (grad, tangent)
            for grad, tangent in zip(grads, tangent_of, strict=False)
            if grad is not None and tangent is not None and not grad.stop_gradient
        ]
        if pairs:
            # Some second derivatives of Paddle's fail where not all are asked for.
            found = gradients(
                [grad for grad, _ in pairs],
                [*seeds, *recording.inputs],
                [tangent for _, tangent in pairs],
                connected,
            )
            of = dict(zip(map(id, traced), found, strict=False))
            slopes = [of.get(id(output)) for output in outputs]
    filled = iter(
        paddle.zeros_like(output) if slope is None else slope
        for slope, output in zip(slopes, outputs, strict=True)
    )
    row = [next(filled) if is_differentiable(o) else None for o in recording.outputs]
    row = row if connected else cut(row, given)
    return out_spec.unflatten(values), out_spec.unflatten(row)


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
