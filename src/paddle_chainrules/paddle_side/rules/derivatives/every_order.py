"""Operators with derivatives of every order, where Paddle's kernels end after a few.

The derivative of each is written in operators that are again of this kind, or that
Paddle differentiates without end (multiply, matmul, add, tanh, exp). They cost more
than Paddle's own, and stand in for these only where derivatives are nested.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle import Tensor
from paddle.autograd import PyLayer

from ...dtypes import single
from .complex_numbers import exponential


class _Smooth(PyLayer):
    """``f(x)``, element by element, with the derivative in the same terms."""

    @staticmethod
    def forward(
        ctx: Any,
        value: Callable[[Tensor], Tensor],
        slope: Callable[[Tensor], Tensor],
        x: Tensor,
    ) -> Tensor:
        ctx.slope, ctx.version = slope, x._inplace_version()
        ctx.save_for_backward(x)
        return value(x)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        (x,) = ctx.saved_tensor()
        if x._inplace_version() != ctx.version:
            raise NotImplementedError(
                "a tensor has been written into, whose value is needed for a gradient "
                "that is differentiated once more; write it out of place"
            )
        slope = ctx.slope(x)
        grad: Tensor = cotangent * (slope.conj() if x.is_complex() else slope)
        return grad


class _Placed(PyLayer):
    """A tensor with zeros before and after it along an axis.

    With one input: Paddle forbids a layer of several to give the gradients of those
    that are not asked for, and does not tell which these are.
    """

    @staticmethod
    def forward(ctx: Any, axis: int, before: int, after: int, x: Tensor) -> Tensor:
        ctx.place = axis, before, before + x.shape[axis]
        parts = [x]
        for count, at in ((before, 0), (after, len(parts) + 1)):
            if count:
                shape = [*x.shape]
                shape[axis] = count
                parts.insert(at, paddle.zeros(shape, x.dtype))
        whole: Tensor = paddle.concat(parts, axis)
        return whole

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        axis, start, stop = ctx.place
        return paddle.slice(cotangent, [axis], [start], [stop])


class _Gathered(PyLayer):
    """Columns of a matrix, in another order and as often as one likes."""

    @staticmethod
    def forward(ctx: Any, index: Callable[[], Tensor], x: Tensor) -> Tensor:
        ctx.index, ctx.count = index(), x.shape[1]  # Paddle counts tensors as inputs
        found: Tensor = paddle.index_select(x, ctx.index, 1)
        return found

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        return scattered(cotangent, ctx.index, ctx.count)


class _Scattered(PyLayer):
    """The transpose: columns added up at places among others, which are zero."""

    @staticmethod
    def forward(ctx: Any, index: Callable[[], Tensor], count: int, x: Tensor) -> Tensor:
        ctx.index = index()
        zeros = paddle.zeros([x.shape[0], count], x.dtype)
        if x.is_complex():  # Paddle adds real numbers alone
            parts = paddle.as_real(zeros), ctx.index, 1, paddle.as_real(x)
            return paddle.as_complex(paddle.index_add(*parts))
        found: Tensor = paddle.index_add(zeros, ctx.index, 1, x)
        return found

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        return gathered(cotangent, ctx.index)


def gathered(x: Tensor, index: Tensor) -> Tensor:
    """``x[:, index]`` of a matrix."""
    found: Tensor = _Gathered.apply(lambda: index, x)
    return found


def scattered(x: Tensor, index: Tensor, count: int) -> Tensor:
    """A matrix of so many columns to which ``x`` is added at ``[:, index]``."""
    found: Tensor = _Scattered.apply(lambda: index, count, x)
    return found


def placed(x: Tensor, axis: int, before: int, after: int) -> Tensor:
    """A tensor with so many zeros before and after it along an axis."""
    found: Tensor = _Placed.apply(axis, before, after, x)
    return found


def embedding(index: Tensor, weight: Tensor, padding: int = -1) -> Tensor:
    """Rows of a table; those of the padding are zero and have no gradient."""
    found = gathered(weight.T, index.reshape([-1])).T
    rows = found.reshape([*index.shape, weight.shape[1]])
    return without_padding(rows, index, padding)


def without_padding(rows: Tensor, index: Tensor, padding: int) -> Tensor:
    """Rows of a table, those of the padding zero and without a gradient."""
    if padding == -1:
        return rows
    there = index.unsqueeze(-1) != padding
    found: Tensor = paddle.where(there, rows, paddle.zeros_like(rows))
    return found


def with_slope(x: Tensor, slope: float) -> Tensor:
    """``x`` itself, with another derivative than one."""
    return _applied(paddle.assign, lambda x: paddle.full_like(x, slope), x)


def sin(x: Tensor) -> Tensor:
    return _applied(paddle.sin, cos, x)


def cos(x: Tensor) -> Tensor:
    return _applied(paddle.cos, lambda x: -sin(x), x)


def sigmoid(x: Tensor) -> Tensor:
    def slope(x: Tensor) -> Tensor:
        # Paddle's kernel rounds complex numbers, of x otherwise than of -x.
        y = sigmoid(x)
        return y * (1 - y if x.is_complex() else sigmoid(-x))

    return _applied(F.sigmoid, slope, x)


def silu(x: Tensor) -> Tensor:
    return x * sigmoid(x)


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    def slope(x: Tensor) -> Tensor:
        return paddle.where(
            x * beta > threshold, paddle.ones_like(x), sigmoid(x * beta)
        )

    return _applied(lambda x: F.softplus(x, beta, threshold), slope, x)


def selu(x: Tensor, scale: float, alpha: float) -> Tensor:
    """With the slope of Paddle's kernel: the value and a product that is rounded."""
    more = single(single(scale) * single(alpha))

    def value(x: Tensor) -> Tensor:
        return F.selu(x, scale, alpha)

    def slope(x: Tensor) -> Tensor:
        low = paddle.where(x > 0, paddle.zeros_like(x), x)
        above = paddle.full_like(x, single(scale))
        return paddle.where(x > 0, above, selu(low, scale, alpha) + more)

    return _applied(value, slope, x)


def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    def slope(x: Tensor) -> Tensor:
        # Not where both branches are computed: exp of a large number is no number.
        low = paddle.where(x > 0, paddle.zeros_like(x), x)
        below = single(alpha) * paddle.exp(low)
        return paddle.where(x > 0, paddle.ones_like(x), below)

    return _applied(lambda x: F.elu(x, alpha), slope, x)


def erf(x: Tensor) -> Tensor:
    return _applied(
        paddle.erf, lambda x: 2 / math.sqrt(math.pi) * paddle.exp(-x * x), x
    )


def gelu(x: Tensor, approximate: bool = False) -> Tensor:
    if approximate:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
        return 0.5 * x * (1 + paddle.tanh(inner))
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def log_sigmoid(x: Tensor) -> Tensor:
    return _applied(F.log_sigmoid, lambda x: sigmoid(-x), x)


def atan(x: Tensor) -> Tensor:
    return _applied(paddle.atan, lambda x: power(1 + x * x, -1), x)


def sinh(x: Tensor) -> Tensor:
    return _applied(paddle.sinh, cosh, x)


def cosh(x: Tensor) -> Tensor:
    return _applied(paddle.cosh, sinh, x)


def expm1(x: Tensor) -> Tensor:
    def slope(x: Tensor) -> Tensor:
        return exponential(x) if x.is_complex() else paddle.exp(x)

    return _applied(paddle.expm1, slope, x)


def exp(x: Tensor) -> Tensor:
    return _applied(paddle.exp, exp, x)


def tanh(x: Tensor) -> Tensor:
    return _applied(paddle.tanh, lambda x: 1 - square(tanh(x)), x)


def tan(x: Tensor) -> Tensor:
    return _applied(paddle.tan, lambda x: 1 + square(tan(x)), x)


def log1p(x: Tensor) -> Tensor:
    return _applied(paddle.log1p, lambda x: power(1 + x, -1), x)


Power = Callable[[Tensor, float], Tensor]

SLOPES: dict[str, Callable[[Tensor, Power], Tensor]] = {
    "asin": lambda x, power: power(1.0 - x * x, -0.5),
    "acos": lambda x, power: -power(1.0 - x * x, -0.5),
    "asinh": lambda x, power: power(x * x + 1.0, -0.5),
    "acosh": lambda x, power: power(x * x - 1.0, -0.5),
    "atanh": lambda x, power: power(1.0 - x * x, -1.0),
    "log2": lambda x, power: power(x * math.log(2.0), -1.0),
    "log10": lambda x, power: power(x * math.log(10.0), -1.0),
}
"""Derivatives by the powers of whoever asks: those here, or those of programs."""


def _by_slope(name: str) -> Callable[[Tensor], Tensor]:
    value, slope = getattr(paddle, name), SLOPES[name]
    return lambda x: _applied(value, lambda x: slope(x, power), x)


BY_SLOPES = {name: _by_slope(name) for name in SLOPES}
"""The functions whose derivatives these are."""


def tanh_shrink(x: Tensor) -> Tensor:
    return x - paddle.tanh(x)


def log(x: Tensor) -> Tensor:
    return _applied(paddle.log, lambda x: power(x, -1), x)


def sqrt(x: Tensor) -> Tensor:
    return _applied(paddle.sqrt, lambda x: 0.5 * power(x, -0.5), x)


def rsqrt(x: Tensor) -> Tensor:
    return power(x, -0.5)


def square(x: Tensor) -> Tensor:
    return x * x


def power(x: Tensor, exponent: float) -> Tensor:
    """``x ** exponent`` for a number, rounded to float32 as Paddle's kernel does."""
    return _power(x, single(exponent))


def _power(x: Tensor, exponent: float) -> Tensor:
    """A whole one is a product; one that float32 does not hold is not rounded."""
    if exponent == 2:
        return x * x
    if exponent == 1:
        return x * 1
    if exponent == 0:
        return paddle.ones_like(x) + 0 * x
    if exponent == -1:
        return reciprocal(x)
    rounded = x.dtype == paddle.float64 and exponent != single(exponent)
    by = paddle.full([], exponent, x.dtype) if rounded else exponent
    return _applied(
        lambda x: paddle.pow(x, by),
        lambda x: exponent * _power(x, exponent - 1),
        x,
    )


def reciprocal(x: Tensor) -> Tensor:
    return _applied(paddle.reciprocal, lambda x: -power(x, -2), x)


def divide(x: Tensor, y: Tensor) -> Tensor:
    found = x * power(y, -1)  # infinite where the divisor is zero, as the quotient
    with paddle.no_grad():
        exact = x / y  # the quotient has one rounding, the product two
        rest = exact - found
    both = paddle.isfinite(found) & paddle.isfinite(exact)
    zero = paddle.zeros_like(rest)
    return paddle.where(both, found + paddle.where(both, rest, zero), found)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    shifted = paddle.exp(x - x.detach().max(axis, keepdim=True))
    return shifted * power(shifted.sum(axis, keepdim=True), -1)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    shifted = x - x.detach().max(axis, keepdim=True)
    return shifted - log(paddle.exp(shifted).sum(axis, keepdim=True))


def flatten(x: Tensor, start: int = 0, stop: int = -1) -> Tensor:
    shape = list(x.shape)
    start, stop = start % max(x.ndim, 1), stop % max(x.ndim, 1)
    flat: Tensor = x.reshape([*shape[:start], -1, *shape[stop + 1 :]])
    return flat


def concat(parts: Sequence[Tensor], axis: int) -> Tensor:
    axis = axis % parts[0].ndim
    sizes = [part.shape[axis] for part in parts]
    total, start, found = sum(sizes), 0, None
    for part, size in zip(parts, sizes, strict=True):
        term = placed(part, axis, start, total - start - size)
        found = term if found is None else found + term
        start += size
    assert found is not None
    return found


def stack(parts: Sequence[Tensor], axis: int) -> Tensor:
    axis = axis % (parts[0].ndim + 1)
    return concat([part.unsqueeze(axis) for part in parts], axis)


def split(x: Tensor, sizes: Sequence[int], axis: int) -> list[Tensor]:
    parts, start = [], 0
    for size in sizes:
        parts.append(paddle.slice(x, [axis], [start], [start + size]))
        start += size
    return parts


def unbind(x: Tensor, axis: int) -> list[Tensor]:
    axis = axis % x.ndim
    return [part.squeeze(axis) for part in split(x, [1] * x.shape[axis], axis)]


def _applied(
    value: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor], x: Tensor
) -> Tensor:
    found: Tensor = _Smooth.apply(value, slope, x)
    return found
