"""Norms of vectors, and distances by them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from ....paddle_side.dtypes import single
from ....paddle_side.rules.derivatives import norms
from ....paddle_side.rules.derivatives.formulas import by_rules
from ....paddle_side.rules.derivatives.norms import MAX_NORM_EPSILON
from ..axes import AxesArgument
from ..calls import Call, NoRule
from ..entry import decompose_of, define, formula_of, reverse_of
from ..shared import is_equal, is_zero, ops
from .reductions import axes_of, spread

define(
    "p_norm",
    "x porder axis epsilon keepdim asvector",
    axes=AxesArgument("axis"),
    tape=norms.p_norm,
)
define(
    "p_norm_grad",
    "x out out_grad porder axis epsilon keepdim asvector",
    axes=AxesArgument("axis"),
)
define(
    "frobenius_norm",
    "x axis keep_dim reduce_all",
    axes=AxesArgument("axis"),
    tape=by_rules("frobenius_norm", 0),  # Paddle's adds 1e-12 to the norm
)
define(
    "dist",
    defaults={"p": 2.0},
    tape=by_rules("dist", where=lambda x, y, p: p > 2.0 or math.isinf(p)),
)
define("renorm")
define("pdist", "x p name", run=paddle.pdist, defaults={"p": 2.0, "name": None})


@decompose_of("p_norm")
def _p_norm_decomposed(decomposed: bool, *args: Any) -> Tensor | None:
    x, porder, axis, _, *rest = args
    if not norms.is_largest(x, porder):
        return None
    return norms.largest(x, porder, axis, *rest)


@formula_of("p_norm")
def _p_norm_formula(
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
def _p_norm_reverse(call: Call) -> list[Any]:
    x, porder, axis, epsilon, *attrs = call.args
    if norms.is_steep(porder):
        args = porder, axis, epsilon, *attrs
        grad = _p_norm_grad(x, call.out, call.cotangent, *args)
        return [grad, *(None for _ in call.args[1:])]
    # The norm itself does not add epsilon.
    axis_eps = axis, min(epsilon, MAX_NORM_EPSILON)
    grad = ops.p_norm_grad(x, call.out, call.cotangent, porder, *axis_eps, *attrs)
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
    """Return ``g sign(x) (|x| / out)**(p - 1)``.

    It is 0, without a slope, where all of x is 0.
    """
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
        return g * ops.sign(x) * ops.cast(is_equal(size, out), x.dtype)
    ratio = _quotient(size, out)
    if p < 1:
        return g * ops.sign(x) * ops.pow(ratio, p - 1.0)
    at_zero = is_zero(ratio)
    one = paddle.ones_like(x)
    powers = ops.pow(ops.where(at_zero, one, ratio), p - 1.0)
    zeros = _zero_without_slope(ops.where(at_zero, ratio, one)) if p < 2 else ratio
    return g * ops.sign(x) * ops.where(at_zero, zeros, powers)


def _quotient(a: Tensor, b: Tensor) -> Tensor:
    """Return ``a / b``, and 0 where b is 0. The derivative by b is NaN there."""
    at_zero = is_zero(b)
    one = paddle.ones_like(b)
    result = a / ops.where(at_zero, one, b)
    return ops.where(
        at_zero, a * _zero_without_slope(ops.where(at_zero, b, one)), result
    )


def _zero_without_slope(x: Tensor) -> Tensor:
    """Return 0 for x from 0 on. The derivative at 0 is NaN."""
    return 0.0 * ops.sqrt(x)


@formula_of("frobenius_norm")
def _frobenius_norm_formula(
    x: Tensor, axis: Any, keepdim: bool, everything: bool
) -> Tensor:
    axes = [*range(x.ndim)] if everything else axes_of(x, axis)
    return _euclidean(x, axes, keepdim)


@reverse_of("frobenius_norm")
def _frobenius_norm_reverse(call: Call) -> list[Any]:
    x, axis, keepdim, everything = call.args
    axes = [*range(x.ndim)] if everything else axes_of(x, axis)
    g = _quotient(call.cotangent, call.out)
    return [x * spread(g, x, axes, keepdim), None, None, None]


@formula_of("dist")
def _dist_formula(x: Tensor, y: Tensor, p: float) -> Tensor:
    result = ops.p_norm(x - y, float(p), -1, 1e-12, False, True)
    return ops.reshape(result, [])


@decompose_of("pdist")
def _pdist(decomposed: bool, x: Tensor, p: float, name: Any) -> Tensor:
    """Take only pairs of different rows: the norm of zero has no curvature."""
    rows, others = (paddle.to_tensor(i) for i in np.triu_indices(x.shape[0], 1))
    return paddle.linalg.norm(x[rows] - x[others], p=p, axis=-1)


@formula_of("renorm", keeps_kernel=True)
def _renorm_formula(x: Tensor, p: float, axis: int, max_norm: float) -> Tensor:
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
