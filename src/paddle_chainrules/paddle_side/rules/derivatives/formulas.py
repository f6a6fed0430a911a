"""Formulas for operators whose gradients Paddle gets wrong, or leaves out.

Rules: ``rule(operator, context, *args)``, in the place of ``operator(*args)``. Paddle's
own operator is used where it is right. docs/paddle-notes.md names the faults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import paddle
from paddle import Tensor

from ...dtypes import is_complex
from ...listener import listener, not_listening
from ...watch import RuleContext, is_traced, tensors_in_arguments
from . import every_order as closed

ops: Any = paddle._C_ops


def broadcast_to(shape: Sequence[int], x: Tensor) -> Tensor:
    """Repeat a tensor, which may have more axes, of one element each."""
    if (extra_axes := x.ndim - len(shape)) > 0:
        x = x.reshape(x.shape[extra_axes:])
    return x if x.shape == list(shape) else x.expand(shape)


def refuse_derivative(
    name: str,
    argument: int | str | None = None,
    otherwise: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Return a rule that refuses derivatives by an argument, or by all of them.

    ``otherwise`` is the rule elsewhere.
    """

    def rule(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
        arguments = dict(enumerate(args)) | kwargs
        differentiated = (
            arguments.values() if argument is None else [arguments.get(argument)]
        )
        if any(map(is_traced, differentiated)):
            where = "" if argument is None else f" by its argument {argument}"
            raise NotImplementedError(
                f"Paddle has no right derivative of {name}{where}, nor has this "
                "package. Detach what goes in (x.detach()) where the derivative is not "
                "wanted, or write the function in other operators"
            )
        if otherwise is not None:
            return otherwise(operator, context, *args, **kwargs)
        return operator(*args, **kwargs)

    return rule


def by_rules(
    name: str,
    *positions: int,
    of_complex: bool = False,
    where: Callable[..., bool] | None = None,
) -> Callable[..., Any]:
    """Return a rule that leaves the derivative by some arguments to a record's rules.

    Args:
        positions: of these arguments; all where there are none.
        of_complex: of complex numbers alone, which are there or come of others.
        where: tells by all arguments where Paddle's own is wrong; everywhere if None.
    """

    def rule(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
        arguments = [args[i] for i in positions if i < len(args)] if positions else args
        if not any(map(is_traced, tensors_in_arguments(arguments))) or (
            of_complex
            and not any(map(_is_complex, [*args, *tensors_in_arguments(args)]))
        ):
            return operator(*args, **kwargs)
        if where is not None and not where(*args, **kwargs):
            return operator(*args, **kwargs)
        raise NotImplementedError(
            f"Paddle's own derivative of {name} is wrong or missing here; take it by "
            "grad, vjp or a net of this package, which have rules of their own"
        )

    return rule


def _is_complex(value: Any) -> bool:
    is_tensor = isinstance(value, Tensor)
    return is_complex(value) if is_tensor else isinstance(value, complex)


def where_traced(
    formula: Callable[..., Any], *positions: int, checked: bool = False
) -> Callable[..., Any]:
    """Return a rule that takes the formula if one of some arguments is differentiated.

    Set ``checked`` if the formula takes arguments that Paddle refuses.
    """

    def rule(operator: Any, context: RuleContext, *args: Any, **kwargs: Any) -> Any:
        checked_positions = positions or range(len(args))
        if any(is_traced(args[i]) for i in checked_positions if i < len(args)):
            return by_formula(formula, operator, args, kwargs, checked)
        return operator(*args, **kwargs)

    return rule


def by_formula(
    formula: Callable[..., Any],
    operator: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    checked: bool,
) -> Any:
    """Return the formula's result, or the result of Paddle's operator if that is None.

    With ``checked``, Paddle looks at the arguments first.
    """
    if checked:
        with paddle.no_grad():
            operator(*args, **kwargs)
    result = formula(*args, **kwargs)
    return operator(*args, **kwargs) if result is None else result


# Arithmetic.


def pairwise_product(
    x: Tensor,
    axis: Any = None,
    keepdim: bool = False,
    whole: bool = False,
    out: Any = None,
) -> Tensor | None:
    """Multiply by pairs, so that a zero among the factors does no harm."""
    if out is not None or not x.ndim or isinstance(axis, Tensor):
        return None
    axes = [axis] if isinstance(axis, int) else [*(axis or [])]
    axes = [*range(x.ndim)] if whole or not axes else [a % x.ndim for a in axes]
    shape = [1 if i in axes else n for i, n in enumerate(x.shape)]
    rest = [i for i in range(x.ndim) if i not in axes]
    row = x.transpose([*rest, *axes]).reshape([*(x.shape[i] for i in rest), -1])
    while (n := row.shape[-1]) > 1:
        half = n // 2
        pairs = row[..., :half] * row[..., half : 2 * half]
        row = paddle.concat([pairs, row[..., 2 * half :]], -1) if n % 2 else pairs
    if not row.shape[-1]:
        return None
    product = row.reshape(shape)
    return product if keepdim else product.squeeze(axes)


# Shapes.


def unstack(x: Tensor, axis: int = 0, count: Any = None) -> list[Tensor]:
    return [paddle.assign(slice_) for slice_ in paddle.unbind(x, axis)]


def gather(x: Tensor, index: Tensor, axis: Any = 0) -> Tensor | None:
    """Gather by a 0-d index, of which Paddle has a wrong gradient on middle axes."""
    if index.ndim or not isinstance(axis, int):
        return None
    return paddle.gather(x, index.reshape([1]), axis).squeeze(axis)


def broadcast_tensors(
    operator: Any, context: RuleContext, tensors: Any
) -> list[Tensor]:
    shape = reduce(paddle.broadcast_shape, [list(x.shape) for x in tensors])
    return [x.expand(shape) for x in tensors]


def meshgrid(operator: Any, context: RuleContext, tensors: Any) -> Any:
    if len({x.dtype for x in tensors}) > 1:
        return operator(tensors)
    shape = [x.size for x in tensors]
    return [
        x.reshape([-1 if i == j else 1 for j in range(len(tensors))]).expand(shape)
        for i, x in enumerate(tensors)
    ]


# Functions of Python's.


def gammaincc(
    operator: Any, context: RuleContext, x: Tensor, y: Tensor, name: Any = None
) -> Tensor:
    """Check the arguments once, when a program is made of it."""
    if listener() is None:
        return operator(x, y)
    with paddle.no_grad(), not_listening():
        operator(x, y)
    return paddle._C_ops.gammaincc(x, y)


def recompute(
    operator: Any, context: RuleContext, function: Any, *args: Any, **kwargs: Any
) -> Any:
    """Call the function once: in the backward pass its weights would be gone."""
    for option in ("preserve_rng_state", "use_reentrant"):
        kwargs.pop(option, None)
    return function(*args, **kwargs)


def silu(x: Tensor) -> Tensor | None:
    """Compute silu; Paddle's gradient is NaN where ``exp(-x)`` is infinite."""
    return None if x.is_complex() else closed.silu(x)


def rnn_without_samples(
    operator: Any, traced: list[Tensor], *args: Any, **kwargs: Any
) -> Any:
    """Run on no samples, for which Paddle's gradients are uninitialized memory."""
    with paddle.no_grad():
        out, state, reserves = operator(*args, **kwargs)
    zero = paddle.add_n([t.flatten()[:0].sum() for t in traced])
    return out + zero, state, [tensor + zero for tensor in reserves]
