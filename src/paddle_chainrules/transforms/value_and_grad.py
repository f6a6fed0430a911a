"""The value and the gradient of a function whose result is a number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import Any

import paddle
from paddle import Tensor

from .conduct import Conduct
from .reach import may_reach
from .recording import is_differentiable
from .vjp import recorded_vjp


def value_and_grad(
    fn: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
) -> Callable[..., tuple[Any, Any]]:
    """A function that gives the scalar ``fn(*args)`` and its gradient.

    Like ``jax.value_and_grad``: arguments are trees, gradients are nested as the
    arguments, and nothing of the caller's is changed.

    Args:
        fn: function whose (first) result is a tensor of one element.
        argnums: position or positions of the arguments to differentiate; negative
            ones count from the last.
        has_aux: fn returns ``(loss, aux)``; the value is then that pair.

    Returns:
        ``g(*args, **kwargs) -> (value, grads)``; grads is one tree where argnums is an
        int, a tuple of trees where it is a sequence.

    Raises:
        TypeError: argnums is no int or sequence of ints; from the returned function,
            where the loss is no floating tensor.
        ValueError: from that, where the loss has more than one element, or argnums is
            out of range.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import value_and_grad
        >>> loss = lambda w, x: (w["a"] * x).sum()
        >>> w, x = {"a": paddle.to_tensor([1.0, 2.0])}, paddle.to_tensor([3.0, 4.0])
        >>> value, grad = value_and_grad(loss)(w, x)
        >>> float(value), grad["a"].tolist()
        (11.0, [3.0, 4.0])
    """
    conduct = Conduct()
    single, asked = _argnums(argnums)

    def value_and_grad_fn(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        for position in asked:
            if not -len(args) <= position < len(args):
                raise ValueError(
                    f"argnums asks for argument {position}, but the function was "
                    f"called with {len(args)} positional arguments (counted from 0)"
                )
        order = [position % len(args) for position in asked]
        positions = [*dict.fromkeys(order)]

        def of_selected(*selected: Any) -> Any:
            full = list(args)
            for position, value in zip(positions, selected, strict=True):
                full[position] = value
            return fn(*full, **kwargs)

        selected = tuple(args[i] for i in positions)
        others = [arg for i, arg in enumerate(args) if i not in positions]
        if paddle.is_grad_enabled() and may_reach(fn, others, kwargs):
            conduct.reaches = True
        loss, pullback, *aux = recorded_vjp(
            of_selected, selected, has_aux, conduct, create_graph=bool(conduct.reaches)
        )
        if not is_differentiable(loss):
            raise TypeError(
                "value_and_grad needs a loss that is a floating-point tensor, got "
                f"{loss.dtype if isinstance(loss, Tensor) else type(loss).__name__}; "
                "use vjp for other outputs"
            )
        if loss.size != 1:
            raise ValueError(
                f"value_and_grad needs a loss of one element, got shape "
                f"{list(loss.shape)}; reduce it with .sum() or .mean(), or use vjp"
            )
        grads = dict(zip(positions, pullback(paddle.ones_like(loss)), strict=True))
        value = (loss, aux[0]) if has_aux else loss
        return value, grads[order[0]] if single else tuple(grads[i] for i in order)

    return value_and_grad_fn


def _argnums(argnums: Any) -> tuple[bool, list[int]]:
    """Whether it is a single position, and all of them."""
    try:
        given = [*argnums] if isinstance(argnums, Iterable) else [argnums]
        if any(isinstance(part, bool | Tensor | str) for part in (argnums, *given)):
            raise TypeError
        return not isinstance(argnums, Iterable), [*map(index, given)]
    except TypeError:
        raise TypeError(
            "argnums is the position of an argument, counted from 0, or a sequence of "
            f"positions; got {argnums!r}"
        ) from None
