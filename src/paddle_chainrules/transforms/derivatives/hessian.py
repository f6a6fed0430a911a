"""Second derivatives of functions whose result is a number."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from paddle import Tensor

from ...paddle_side.arguments import checked_chunk
from ...paddle_side.process.random_state import random_state_restored_on_error
from ...paddle_side.static_graphs import need_tensors, sot
from ..as_programs.auto_jit import auto_jit, by_program
from ..containers.tree import Tree, flatten_tree, nesting
from .argnums import Argnums, positions_of
from .jacobian import rows_of
from .typed import Function, X
from .value_and_grad import grad_of
from .vjp import vjp


def hvp(fn: Function[Tensor], x: X, v: Tree) -> X:
    """Return a scalar function's Hessian-vector product, nested as ``x``.

    Like ``jax.jvp(jax.grad(fn), ...)``, by reverse mode twice; the Hessian itself is
    never formed. The product is zero if the gradient does not depend on x.

    Args:
        fn: function of one argument, with a tensor of one element as its value.
        x: a tensor or a tree of them, such as a dict of parameters.
        v: nested as x; None for zero.

    Raises:
        TypeError: the value is no floating tensor, or x holds something else.
        ValueError: it is more than one number, or v has another structure or shape.
        NotImplementedError: a kernel that Paddle can't differentiate again.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import hvp
        >>> x, v = paddle.to_tensor([1.0, 2.0]), paddle.to_tensor([1.0, 0.0])
        >>> hvp(lambda x: (x**3).sum(), x, v).tolist()
        [6.0, 0.0]
    """
    return cast(X, by_program("hvp", fn, partial(_hvp, fn), 2, (x, v), {}))


def _hvp(fn: Function[Tensor], x: Any, v: Tree) -> Any:
    need_tensors(sot.fallback(True))
    (_, x_spec), (v_leaves, v_spec) = flatten_tree(x), flatten_tree(v)
    if v_spec != x_spec:
        raise ValueError(
            f"v is nested as {nesting(v_spec)}, x as {nesting(x_spec)}; give one "
            "tensor, or None for zero, for each of x"
        )
    with random_state_restored_on_error():
        try:
            gradient, pullback = vjp(grad_of(fn, 0, False, "hvp"), x)
        except TypeError as error:
            if type(x) is not tuple or len(x) != 1:
                raise
            raise TypeError(
                f"{error}. hvp gives fn its argument as it is, and got a tuple of one; "
                "give hvp(fn, x, v), where jvp takes (x,) and (v,)"
            ) from error
        pairs = zip(flatten_tree(gradient)[0], v_leaves, strict=True)
        cotangents = [None if g is None else tangent for g, tangent in pairs]
        (product,) = pullback(x_spec.unflatten(cotangents))
    return product


def hessian(
    fn: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return a function that gives the second derivatives of the scalar ``fn(*args)``.

    Like ``jax.hessian`` and ``torch.func.hessian``: the Jacobian of the gradient, one
    gradient and then one pullback of it per element of the arguments.

    Args:
        fn: a function whose (first) result is a tensor of one element.
        argnums: position or positions of the arguments to differentiate.
        has_aux: fn returns ``(loss, aux)``; the result is then ``(hessian, aux)``.
        chunk_size: as of :func:`.jacobian.jacrev`.

    Returns:
        ``h(*args, **kwargs)``: [*x.shape, *x.shape] for one tensor x; nested as the
        arguments twice where they are trees or several. It is zero if the gradient does
        not depend on an argument.

    Raises:
        TypeError: argnums is no int or sequence of ints; from the returned function, if
            the loss is no floating tensor, or an argument is complex or holds something
            else than floating tensors.
        ValueError: from the returned function, if the loss has more than one element.
        NotImplementedError: a kernel that Paddle can't differentiate again.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import hessian
        >>> x = paddle.to_tensor([1.0, 2.0])
        >>> hessian(lambda x: x[0] ** 2 * x[1])(x).tolist()
        [[4.0, 2.0], [2.0, 0.0]]
    """
    checked_chunk(chunk_size)
    gradient = grad_of(fn, argnums, has_aux, "hessian")
    rows = rows_of(gradient, argnums, has_aux, "hessian")
    return auto_jit(fn, rows, "hessian", positions_of(argnums), has_aux, order=2)
