"""Functions of complex numbers by their real and imaginary parts.

Paddle's second derivatives of complex products are wrong, those of real ones are not;
and its complex exponential has single precision.
"""

from __future__ import annotations

import paddle
from paddle import Tensor


def _whole(real: Tensor, imaginary: Tensor) -> Tensor:
    return paddle.as_complex(paddle.stack([real, imaginary], -1))


def exponential(x: Tensor) -> Tensor:
    both = paddle.as_real(x)
    size, turn = paddle.exp(both[..., 0]), both[..., 1]
    return _whole(size * paddle.cos(turn), size * paddle.sin(turn))
