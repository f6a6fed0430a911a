"""The value and the gradient of a function whose result is a number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import optree
import paddle
from paddle import Tensor

from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.process.random_state import random_state_restored_on_error
from ...paddle_side.static_graphs import need_tensors, sot
from ..as_programs.auto_jit import auto_jit
from ..containers.tree import flatten_tree, without_indices
from ..recordings.effects import Effects
from .argnums import Argnums, Selection, positions_of, select
from .closures import may_reach
from .typed import Aux, Function, Grad, GradAndAux, ValueAndGrad, WithAux, Y
from .vjp import recorded_vjp


@overload
def value_and_grad(
    fn: Function[Y], argnums: Literal[0] = 0, has_aux: bool = False
) -> ValueAndGrad[Y]: ...


@overload
def value_and_grad(
    fn: Function[Y], argnums: int, has_aux: bool = False
) -> Callable[..., tuple[Y, Any]]: ...


@overload
def value_and_grad(
    fn: Function[Y], argnums: Sequence[int], has_aux: bool = False
) -> Callable[..., tuple[Y, tuple[Any, ...]]]: ...


def value_and_grad(
    fn: Function[Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., tuple[Any, Any]]:
    """Return a function that gives the scalar ``fn(*args)`` and its gradient.

    Like ``jax.value_and_grad``: arguments are trees, gradients are nested as the
    arguments, and nothing of the caller's is changed. The gradient with respect to an
    argument that the loss does not depend on is zero.

    Args:
        fn: function whose (first) result is a tensor of one element.
        argnums: position or positions of the arguments to differentiate; negative
            ones count from the last.
        has_aux: fn returns ``(loss, aux)``; the value is then that pair.

    Returns:
        ``g(*args, **kwargs) -> (value, grads)``; grads is one tree if argnums is an
        int, a tuple of trees if it is a sequence.

    Raises:
        TypeError: argnums is no int or sequence of ints; from the returned function, if
            the loss is no floating tensor, or a leaf of the differentiated arguments is
            neither a floating or complex tensor nor None. Indices of a :class:`.CSR` or
            :class:`.PackedMatrix` are allowed, and have the gradient None.
        ValueError: from the returned function, if the loss has more than one element,
            or argnums is out of range.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import value_and_grad
        >>> loss = lambda w, x: (w["a"] * x).sum()
        >>> w, x = {"a": paddle.to_tensor([1.0, 2.0])}, paddle.to_tensor([3.0, 4.0])
        >>> value, grad = value_and_grad(loss)(w, x)
        >>> float(value), grad["a"].tolist()
        (11.0, [3.0, 4.0])
    """
    transformed = _value_and_grad(fn, argnums, has_aux, "value_and_grad")
    return auto_jit(fn, transformed, "value_and_grad", positions_of(argnums), has_aux)


@overload
def grad(
    fn: Function[Any], argnums: Literal[0] = 0, has_aux: Literal[False] = False
) -> Grad: ...


@overload
def grad(
    fn: WithAux[Any, Aux], argnums: Literal[0] = 0, *, has_aux: Literal[True]
) -> GradAndAux[Aux]: ...


@overload
def grad(
    fn: Function[Any], argnums: Sequence[int], has_aux: Literal[False] = False
) -> Callable[..., tuple[Any, ...]]: ...


@overload
def grad(
    fn: WithAux[Any, Aux], argnums: Sequence[int], has_aux: Literal[True]
) -> Callable[..., tuple[tuple[Any, ...], Aux]]: ...


@overload
def grad(
    fn: Function[Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]: ...


def grad(
    fn: Function[Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Return a function that gives the gradient of the scalar ``fn(*args)``.

    It does as :func:`value_and_grad`, without the value; with ``has_aux`` it gives
    ``(grads, aux)``. It is like ``jax.grad`` and ``torch.func.grad``.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import grad
        >>> x = paddle.to_tensor([1.0, 2.0])
        >>> grad(lambda x: (x**3).sum())(x).tolist()
        [3.0, 12.0]
    """
    gradient = grad_of(fn, argnums, has_aux, "grad")
    return auto_jit(fn, gradient, "grad", positions_of(argnums), has_aux)


def grad_of(
    fn: Callable[..., Any], argnums: Argnums, has_aux: bool, name: str
) -> Callable[..., Any]:
    """Do as :func:`grad`, with the name that the caller used in errors."""
    value_and_grad_fn = _value_and_grad(fn, argnums, has_aux, name)

    def grad_fn(*args: Any, **kwargs: Any) -> Any:
        value, grads = value_and_grad_fn(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return grad_fn


def _value_and_grad(
    fn: Callable[..., Any],
    argnums: Argnums,
    has_aux: bool,
    name: str,
    zeros: bool = True,
) -> Callable[..., tuple[Any, Any]]:
    effects = Effects()
    requested = positions_of(argnums)

    def value_and_grad_fn(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        need_tensors(sot.fallback(True))
        with random_state_restored_on_error():
            call = select(fn, requested, args, kwargs)
            _check_arguments(call, name)
            if paddle.is_grad_enabled() and may_reach(fn, call.others, kwargs):
                effects.reaches = True
            loss, pullback, *aux = recorded_vjp(
                *(call.fn, call.selected, has_aux, effects),
                nested=bool(effects.reaches),
            )
            _check_loss(loss, name)
            seed = paddle.ones_like(loss)
            grads = pullback(seed) if zeros else pullback.or_none(seed)
            return (loss, aux[0]) if has_aux else loss, call.nested(grads)

    return value_and_grad_fn


def value_and_grad_or_none(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Do as :func:`value_and_grad`, with None if the value is independent of a leaf."""
    return _value_and_grad(fn, 0, False, "value_and_grad", zeros=False)


def _check_arguments(call: Selection, name: str) -> None:
    """Refuse a leaf that has no derivative; None and indices beside values pass."""
    leaves, _ = flatten_tree(call.selected)
    if all(map(is_differentiable, leaves)):
        return
    has_any = any(map(is_differentiable, leaves))
    accessors, leaves, _ = optree.tree_flatten_with_accessor(
        without_indices(call.selected), none_is_leaf=True
    )
    for accessor, leaf in zip(accessors, leaves, strict=True):
        if is_differentiable(leaf) or (leaf is None and has_any):
            continue
        label = accessor[1:].codify(f"argument {call.positions[accessor[0].entry]}")
        kind, remedy = _kind(leaf), "give a floating-point tensor"
        if isinstance(leaf, Tensor):
            kind, remedy = str(leaf.dtype), "convert it by .astype('float32')"
        raise TypeError(
            f"{name} got {kind} as {label}, and differentiates with respect to "
            f"floating-point and complex tensors alone; {remedy}, close over it, or "
            "choose other arguments by argnums"
        )


def _check_loss(loss: Any, name: str) -> None:
    """Refuse what has no gradient, or more than one."""
    if not is_differentiable(loss):
        is_tensor = isinstance(loss, Tensor)
        remedy = (
            "use vjp for other outputs, and has_aux=True for (loss, aux)"
            if is_tensor or isinstance(loss, tuple | list | dict)
            else "compute it with Paddle's operators, on paddle.to_tensor of arrays"
        )
        raise TypeError(
            f"{name} needs a loss that is a floating-point tensor, got "
            f"{loss.dtype if is_tensor else _kind(loss)}; {remedy}"
        )
    if loss.size != 1:
        raise ValueError(
            f"{name} needs a loss of one element, got shape "
            f"{list(loss.shape)}; reduce it with .sum() or .mean(), or use vjp"
        )


def _kind(value: Any) -> str:
    kind = type(value)
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"
