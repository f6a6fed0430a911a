"""Formulas for operators whose gradients Paddle gets wrong, or leaves out.

Rules: ``rule(operator, context, *args)``, in the place of ``operator(*args)``. Paddle's
own operator is used where it is right. docs/paddle-notes.md names the faults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from ...listener import listener, not_listening
from ...watch import Context, is_traced
from . import every_order as closed
from .activations import softsign
from .complex_numbers import exponential

ops: Any = paddle._C_ops


def spread_to(shape: Sequence[int], x: Tensor) -> Tensor:
    return x if x.shape == list(shape) else x.expand(shape)


def refused(
    name: str,
    argument: int | str | None = None,
    otherwise: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """A rule that refuses to be differentiated by an argument, or by all of them.

    ``otherwise`` is the rule elsewhere.
    """

    def rule(operator: Any, context: Context, *args: Any, **kwargs: Any) -> Any:
        given = dict(enumerate(args)) | kwargs
        part = given.values() if argument is None else [given.get(argument)]
        if any(map(is_traced, part)):
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


def where_traced(
    formula: Callable[..., Any], *positions: int, checked: bool = False
) -> Callable[..., Any]:
    """A rule that takes the formula where one of some arguments is differentiated.

    ``checked`` where the formula takes arguments that Paddle refuses.
    """

    def rule(operator: Any, context: Context, *args: Any, **kwargs: Any) -> Any:
        places = positions or range(len(args))
        if any(is_traced(args[i]) for i in places if i < len(args)):
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
    """What the formula gives; what Paddle's operator gives where that is None.

    ``checked`` has Paddle look at the arguments first.
    """
    if checked:
        with paddle.no_grad():
            operator(*args, **kwargs)
    found = formula(*args, **kwargs)
    return operator(*args, **kwargs) if found is None else found


# Arithmetic.


def lerp(x: Tensor, y: Tensor, weight: Any) -> Tensor:
    return x + weight * (y - x)


def clip(x: Tensor, least: Any, most: Any, out: Any = None) -> Tensor | None:
    if out is not None:
        return None
    if isinstance(least, Tensor):
        x = paddle.maximum(x, least.astype(x.dtype))
    elif least is not None:
        x = paddle.clip(x, min=float(least))
    if isinstance(most, Tensor):
        return paddle.minimum(x, most.astype(x.dtype))
    return x if most is None else paddle.clip(x, max=float(most))


def scale(
    x: Tensor, factor: Tensor, bias: float = 0.0, bias_after: bool = True, *rest: Any
) -> Tensor:
    return x * factor + bias if bias_after else (x + bias) * factor


def product(
    x: Tensor,
    axis: Any = None,
    keepdim: bool = False,
    whole: bool = False,
    out: Any = None,
) -> Tensor | None:
    """By pairs, so that a zero among the factors does no harm."""
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
    kept = row.reshape(shape)
    return kept if keepdim else kept.squeeze(axes)


def complex_power(x: Tensor, y: Tensor, out: Any = None) -> Tensor | None:
    if out is not None or not (x.is_complex() or y.is_complex()):
        return None
    x = x if x.is_complex() else x.astype(y.dtype)
    if bool((x == 0).any()):
        raise NotImplementedError(
            "Paddle's derivative of a complex power is wrong, and the right one has no "
            "value at a base of zero; keep the base away from zero, or detach it"
        )
    return exponential(y * paddle.log(x))


def raised(x: Tensor, exponent: Any) -> Tensor | None:
    """``x ** exponent``"""
    if not isinstance(exponent, Tensor | complex):
        return None
    return complex_power(x, complex_like(x, exponent))


def raising(x: Tensor, base: Any) -> Tensor | None:
    """``base ** x``"""
    if isinstance(base, Tensor) or not (x.is_complex() or isinstance(base, complex)):
        return None
    return complex_power(complex_like(x, base), x)


def complex_like(x: Tensor, number: Any) -> Tensor:
    """A number as a complex tensor of the precision of another."""
    if isinstance(number, Tensor):
        return number
    double = x.dtype in (paddle.float64, paddle.complex128)
    return paddle.full([], number, paddle.complex128 if double else paddle.complex64)


def complex_sign(x: Tensor, out: Any = None) -> Tensor | None:
    if out is not None or not x.is_complex():
        return None
    size = paddle.abs(x)
    zero = size == 0
    size = paddle.where(zero, paddle.ones_like(size), size)
    return paddle.where(zero, paddle.zeros_like(x), x / size)


def complex_acosh(x: Tensor, out: Any = None) -> Tensor | None:
    if out is not None or not x.is_complex():
        return None
    return paddle.log(x + paddle.sqrt(x + 1) * paddle.sqrt(x - 1))


def complex_softsign(x: Tensor) -> Tensor | None:
    return softsign(x) if x.is_complex() else None


# Shapes.


def unstack(x: Tensor, axis: int = 0, count: Any = None) -> list[Tensor]:
    return [paddle.assign(part) for part in paddle.unbind(x, axis)]


def broadcast_tensors(operator: Any, context: Context, parts: Any) -> list[Tensor]:
    shape = reduce(paddle.broadcast_shape, [list(part.shape) for part in parts])
    return [part.expand(shape) for part in parts]


def meshgrid(operator: Any, context: Context, parts: Any) -> Any:
    if len({part.dtype for part in parts}) > 1:
        return operator(parts)
    shape = [part.size for part in parts]
    return [
        part.reshape([-1 if i == j else 1 for j in range(len(parts))]).expand(shape)
        for i, part in enumerate(parts)
    ]


def _indexed(x: Tensor, index: np.ndarray[Any, Any]) -> Tensor:
    """``x.flatten()[index]``."""
    found: Tensor = _Indexed.apply(index, x)
    return found


class _Indexed(PyLayer):
    """A copy for a view, known by its name, since writing into it would be lost."""

    @staticmethod
    def forward(ctx: Any, index: np.ndarray[Any, Any], x: Tensor) -> Tensor:
        flat = paddle.to_tensor(index.reshape(-1), place=x.place)
        ctx.index, ctx.shape = flat, x.shape
        found: Tensor = paddle.index_select(x.reshape([-1]), flat, 0)
        return found.reshape(index.shape)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        size = int(np.prod(ctx.shape))
        flat = closed.scattered(cotangent.reshape([1, -1]), ctx.index, size)
        return flat.reshape(ctx.shape)


def as_strided(
    x: Tensor, shape: Sequence[int], stride: Sequence[int], offset: int = 0
) -> Tensor | None:
    if not x.is_contiguous():
        return None
    index = np.full([1] * len(shape), offset // x.element_size())
    for axis, (count, step) in enumerate(zip(shape, stride, strict=True)):
        steps = [-1 if i == axis else 1 for i in range(len(shape))]
        index = index + (step * np.arange(count)).reshape(steps)
    return _indexed(x, index)


def unfold(x: Tensor, axis: int, size: int, step: int) -> Tensor:
    index = np.arange(x.size).reshape(x.shape)
    windows = np.lib.stride_tricks.sliding_window_view(index, size, axis)
    every = [slice(None)] * x.ndim
    every[axis] = slice(None, None, step)
    return _indexed(x, np.ascontiguousarray(windows[tuple(every)]))


def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    shape = x.shape[:-1]
    for axis in sorted((dim1 % (x.ndim + 1), dim2 % (x.ndim + 1))):
        shape.insert(axis, x.shape[-1] + abs(offset))
    return fill_diagonal(paddle.zeros(shape, x.dtype), x, offset, dim1, dim2)


def fill_diagonal(
    x: Tensor, y: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    index = np.arange(x.size).reshape(x.shape).diagonal(offset, dim1, dim2)
    return _replaced(x, index, y.reshape(index.shape))


def _replaced(x: Tensor, index: np.ndarray[Any, Any], values: Tensor) -> Tensor:
    """``x`` with other values at some places of ``x.flatten()``, no place twice."""
    mask = np.zeros(x.size, bool)
    mask[index.reshape(-1)] = True
    flat = paddle.to_tensor(index.reshape(-1), place=x.place)
    spread = closed.scattered(values.reshape([1, -1]), flat, x.size).reshape(x.shape)
    there = paddle.to_tensor(mask.reshape(x.shape), place=x.place)
    return paddle.where(there, spread, x)


def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    shape = paddle.broadcast_shape(x.shape, mask.shape)
    value = value if value.dtype == x.dtype else value.astype(x.dtype)
    x, mask, value = (ops.expand(part, shape) for part in (x, mask, value))
    found: Tensor = ops.where(mask, value, x)
    return found


def bincount(x: Tensor, weights: Tensor, *least: Any) -> Tensor:
    ops: Any = paddle._C_ops
    with paddle.no_grad():
        count = ops.bincount(x, None, *least).shape[0]
    row: Tensor = closed.scattered(weights.reshape([1, -1]), x, count)
    return row.reshape([-1])


# Functions of Python's.


def gammaincc(
    operator: Any, context: Context, x: Tensor, y: Tensor, name: Any = None
) -> Tensor:
    """Its arguments are checked once, where a program is made of it."""
    if listener() is None:
        return operator(x, y)
    with paddle.no_grad(), not_listening():
        operator(x, y)
    return paddle._C_ops.gammaincc(x, y)


def recompute(
    operator: Any, context: Context, function: Any, *args: Any, **kwargs: Any
) -> Any:
    """The function, called once: on the way back its weights would be gone."""
    for option in ("preserve_rng_state", "use_reentrant"):
        kwargs.pop(option, None)
    return function(*args, **kwargs)


def silu(x: Tensor) -> Tensor | None:
    """Paddle's gradient is no number where ``exp(-x)`` is infinite."""
    return None if x.is_complex() else closed.silu(x)


def recurrent_of_nothing(
    operator: Any, traced: list[Tensor], *args: Any, **kwargs: Any
) -> Any:
    """Of no samples, where Paddle's gradients are memory that nobody has written."""
    with paddle.no_grad():
        out, state, after = operator(*args, **kwargs)
    zero = paddle.add_n([t.flatten()[:0].sum() for t in traced])
    return out + zero, state, [part + zero for part in after]
