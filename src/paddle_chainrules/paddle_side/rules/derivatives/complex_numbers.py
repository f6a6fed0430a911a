"""Functions of complex numbers by their real and imaginary parts.

Paddle's second derivatives of complex products are wrong, those of real ones are not;
and its complex exponential has single precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
from paddle import Tensor


def _parts(x: Tensor) -> tuple[Tensor, Tensor | None]:
    if not x.is_complex():
        return x, None
    both = paddle.as_real(x)
    return both[..., 0], both[..., 1]


def _bilinear(
    times: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor
) -> Tensor:
    """A bilinear function of complex numbers, one of which may be real."""
    (a, b), (c, d) = _parts(x), _parts(y)
    real = times(a, c)
    if b is not None and d is not None:
        real, imaginary = real - times(b, d), times(a, d) + times(b, c)
    elif d is not None:
        imaginary = times(a, d)
    else:
        assert b is not None
        imaginary = times(b, c)
    return _whole(real, imaginary)


def _whole(real: Tensor, imaginary: Tensor) -> Tensor:
    return paddle.as_complex(paddle.stack([real, imaginary], -1))


def exponential(x: Tensor) -> Tensor:
    both = paddle.as_real(x)
    size, turn = paddle.exp(both[..., 0]), both[..., 1]
    return _whole(size * paddle.cos(turn), size * paddle.sin(turn))


def product(x: Tensor, y: Any) -> Tensor | None:
    if not isinstance(y, Tensor):
        return None
    return _bilinear(lambda a, b: a * b, x, y)


def matrix_product(
    x: Tensor, y: Any, transpose_x: bool = False, transpose_y: bool = False, **_: Any
) -> Tensor | None:
    if not isinstance(y, Tensor):
        return None
    return _bilinear(lambda a, b: paddle.matmul(a, b, transpose_x, transpose_y), x, y)


def quotient(x: Tensor, y: Any) -> Tensor | None:
    if not isinstance(y, Tensor):
        return None
    return product(x, paddle.reciprocal(y))
