"""Norms of vectors, and distances by them."""

from __future__ import annotations

import math
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.dtypes import single
from ....paddle_side.rules.derivatives.norms import SMALL
from ..calls import Call, NoRule
from ..entry import define, formula_of, reverse_of
from ..shared import ops
from .reductions import axes_of, spread

define("p_norm", "x porder axis epsilon keepdim asvector")
define("p_norm_grad", "x out out_grad porder axis epsilon keepdim asvector")
define("frobenius_norm", "x axis keep_dim reduce_all")
define("dist", defaults={"p": 2.0})
define("renorm")


@formula_of("p_norm")
def _(
    x: Tensor, porder: float, axis: int, epsilon: float, keepdim: bool, asvector: bool
) -> Tensor:
    axes = [*range(x.ndim)] if asvector else axes_of(x, axis)
    if porder == 1:
        return ops.sum(ops.abs(x), axes, None, keepdim)
    if porder != 2:
        raise NoRule("norms of an order but one and two; use paddle.sum of powers")
    return _euclidean(x, axes, keepdim)


def _euclidean(x: Tensor, axes: list[int], keepdim: bool) -> Tensor:
    return ops.sqrt(ops.sum(x * x, axes, None, keepdim))


@reverse_of("p_norm")
def _(call: Call) -> list[Any]:
    x, porder, axis, epsilon, *how = call.args
    gradient = ops.p_norm_grad
    if porder < 1:  # Paddle's gives NaN where there is a zero
        gradient = _p_norm_grad
    places = axis, min(epsilon, SMALL)  # which the norm itself does not add
    grad = gradient(x, call.out, call.cotangent, porder, *places, *how)
    return [grad, *(None for _ in call.args[1:])]


@formula_of("p_norm_grad")
def _p_norm_grad(
    x: Tensor,
    out: Tensor,
    out_grad: Tensor,
    porder: float,
    axis: int,
    epsilon: float,
    keepdim: bool,
    asvector: bool,
) -> Tensor:
    """``g sign(x) (|x| / out)**(p - 1)``; nothing where there is no slope."""
    p = single(porder)
    axes = [*range(x.ndim)] if asvector else axes_of(x, axis)
    out, g = spread(out, x, axes, keepdim), spread(out_grad, x, axes, keepdim)
    if p == 0:
        return paddle.zeros_like(x)
    if p == 1:
        return g * ops.sign(x)
    if p == 2:
        return x * _quotient(g, out)
    size = ops.abs(x)
    if math.isinf(p):
        return g * ops.sign(x) * ops.cast(size == out, x.dtype)
    share = _quotient(size, out)
    none = share == 0
    share = ops.where(none, paddle.ones_like(x), share)
    return (
        g * ops.sign(x) * ops.where(none, paddle.zeros_like(x), ops.pow(share, p - 1.0))
    )


def _quotient(a: Tensor, b: Tensor) -> Tensor:
    """Nothing where the divisor is zero."""
    none = ops.logical_and(b <= 0.0, b >= 0.0)  # and not what is nearly zero
    found = a / ops.where(none, paddle.ones_like(b), b)
    return ops.where(none, paddle.zeros_like(found), found)


@formula_of("frobenius_norm")
def _(x: Tensor, axis: Any, keepdim: bool, everything: bool) -> Tensor:
    axes = [*range(x.ndim)] if everything else axes_of(x, axis)
    return _euclidean(x, axes, keepdim)


@reverse_of("frobenius_norm")
def _(call: Call) -> list[Any]:
    x, axis, keepdim, everything = call.args
    axes = [*range(x.ndim)] if everything else axes_of(x, axis)
    g = _quotient(call.cotangent, call.out)
    return [x * spread(g, x, axes, keepdim), None, None, None]


@formula_of("dist")
def _(x: Tensor, y: Tensor, p: float) -> Tensor:
    found = ops.p_norm(x - y, float(p), -1, 1e-12, False, True)
    return ops.reshape(found, [])


@formula_of("renorm")
def _(x: Tensor, p: float, axis: int, max_norm: float) -> Tensor:
    if not 0 < p < math.inf:
        raise NoRule(f"parts with norms by p={p}; give a finite p above zero")
    limit = single(max_norm)
    order = [axis] + [k for k in range(x.ndim) if k != axis]
    rows = ops.reshape(ops.transpose(x, order), [x.shape[axis], -1])
    size = ops.p_norm(rows, float(p), 1, 1e-12, True, False)
    large = size > limit
    one = paddle.ones_like(size)
    factor = ops.where(large, limit / ops.where(large, size, one), one)
    shape = [n if k == axis else 1 for k, n in enumerate(x.shape)]
    return x * ops.reshape(factor, shape)
