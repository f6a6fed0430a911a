"""Derivatives of the built-in activations, in closed form, up to the fourth.

Paddle differentiates most activations once or twice and then has no kernel, so the
derivatives with respect to a net's input are carried by these formulas instead. They
are of public, differentiable operations: one more derivative, with respect to the
parameters, goes through each of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import paddle
import paddle.nn.functional as F
from paddle import Tensor

MAX_ORDER = 4

Derivatives = Callable[[Tensor, int], list[Tensor | float]]
"""``f(z, order)`` gives ``[f, f', ..., f^(order)]`` at z; a number where one is
constant, 0.0 where it vanishes (almost) everywhere."""


def _identity(z: Tensor, order: int) -> list[Tensor | float]:
    """f = z. Source: definition."""
    row: list[Tensor | float] = [z, 1.0, 0.0, 0.0, 0.0]
    return row[: order + 1]


def _sigmoid(z: Tensor, order: int) -> list[Tensor | float]:
    """f' = f (1 - f), f'' = f' (1 - 2 f), f''' = f' (1 - 6 f'),
    f'''' = f'' (1 - 12 f').

    Source: Minai and Williams, "On the derivatives of the sigmoid", Neural Networks
    6(6), 1993; the last two are the product rule on the first two.
    """
    found: list[Tensor | float] = [f := F.sigmoid(z)]
    if order >= 1:
        rest = 1 - f
        found.append(f1 := f * rest)
    if order >= 2:
        found.append(f2 := f1 * (rest - f))
    if order >= 3:
        found.append(f1 * paddle.scale(f1, -6.0, 1.0))
    if order >= 4:
        found.append(f2 * paddle.scale(f1, -12.0, 1.0))
    return found


def _tanh(z: Tensor, order: int) -> list[Tensor | float]:
    """f' = 1 - f^2, f'' = -2 f f', f''' = f' (4 - 6 f'), f'''' = f'' (4 - 12 f').

    f' as (1 - f) (1 + f), which keeps its digits where f is close to 1. Source: DLMF
    4.34.8 (d tanh = sech^2) and the product rule.
    """
    found: list[Tensor | float] = [f := paddle.tanh(z)]
    if order >= 1:
        found.append(f1 := (1 - f) * (1 + f))
    if order >= 2:
        found.append(f2 := -2 * f * f1)
    if order >= 3:
        found.append(f1 * (4 - 6 * f1))
    if order >= 4:
        found.append(f2 * (4 - 12 * f1))
    return found


def _relu(z: Tensor, order: int) -> list[Tensor | float]:
    """f' = 1 where z > 0 and 0 elsewhere, all others 0 almost everywhere."""
    found: list[Tensor | float] = [F.relu(z)]
    if order >= 1:
        found.append((z > 0).astype(z.dtype))
    return found + [0.0] * (order - 1)


def _leaky_relu(z: Tensor, order: int) -> list[Tensor | float]:
    """f' = 1 where z > 0 and 0.01 elsewhere, all others 0 almost everywhere."""
    found: list[Tensor | float] = [F.leaky_relu(z)]
    if order >= 1:
        found.append(0.01 + 0.99 * (z > 0).astype(z.dtype))
    return found + [0.0] * (order - 1)


def _gelu(z: Tensor, order: int) -> list[Tensor | float]:
    """f = z Phi, f' = Phi + z p, f'' = p (2 - z^2), f''' = p (z^3 - 4 z),
    f'''' = -p (z^4 - 7 z^2 + 4).

    Phi and p are the distribution and density of the standard normal, p' = -z p.
    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016, arXiv:1606.08415.
    """
    below = 0.5 * (1 + paddle.erf(z * math.sqrt(0.5)))
    found: list[Tensor | float] = [z * below]
    if order >= 1:
        zz = z * z
        density = paddle.exp(-0.5 * zz) * (1 / math.sqrt(2 * math.pi))
        found.append(below + z * density)
    if order >= 2:
        found.append(density * (2 - zz))
    if order >= 3:
        found.append(density * z * (zz - 4))
    if order >= 4:
        found.append(-density * (zz * (zz - 7) + 4))
    return found


def _silu(z: Tensor, order: int) -> list[Tensor | float]:
    """f = z s with s the sigmoid: f^(k) = z s^(k) + k s^(k-1).

    Source: Elfwing, Uchibe and Doya, "Sigmoid-weighted linear units", Neural Networks
    107, 2018; Leibniz's rule.
    """
    s = _sigmoid(z, order)
    return [z * s[0], *(z * s[k] + k * s[k - 1] for k in range(1, order + 1))]


def _softplus(z: Tensor, order: int) -> list[Tensor | float]:
    """f' is the sigmoid. Beyond z = 20 Paddle's own value is z, within 2e-9 of f.

    Source: Dugas et al., "Incorporating second-order functional knowledge", NIPS 2000.
    """
    return [F.softplus(z), *(_sigmoid(z, order - 1) if order else [])]


def _elu(z: Tensor, order: int) -> list[Tensor | float]:
    """f' = 1 where z > 0 and e^z elsewhere; f'' and on 0 where z > 0, e^z elsewhere.

    Source: Clevert, Unterthiner and Hochreiter, "Exponential linear units", ICLR 2016.
    """
    found: list[Tensor | float] = [F.elu(z)]
    if order >= 1:
        above = (z > 0).astype(z.dtype)
        decay = paddle.exp(paddle.minimum(z, paddle.zeros_like(z)))
        found.append(decay)  # exp(0) = 1 above
    if order >= 2:
        found += [decay * (1 - above)] * (order - 1)
    return found


def _sin(z: Tensor, order: int) -> list[Tensor | float]:
    """f' = cos, f'' = -sin, f''' = -cos, f'''' = sin. Source: DLMF 4.20."""
    found: list[Tensor | float] = [f := paddle.sin(z)]
    if order >= 1:
        found.append(f1 := paddle.cos(z))
    if order >= 2:
        found.append(-f)
    if order >= 3:
        found.append(-f1)
    if order >= 4:
        found.append(f)
    return found


DERIVATIVES: dict[str, Derivatives] = {
    "identity": _identity,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "relu": _relu,
    "gelu": _gelu,
    "silu": _silu,
    "softplus": _softplus,
    "elu": _elu,
    "leaky_relu": _leaky_relu,
    "sin": _sin,
}
"""By the name of the activation; each row's formula and source in its docstring."""
