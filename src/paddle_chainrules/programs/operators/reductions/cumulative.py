"""Products and sums of the elements before each element."""

from __future__ import annotations

from typing import Any

from paddle import Tensor

from ..axes import ANYWHERE, AxesArgument
from ..calls import Call, NoRule
from ..entry import define, formula_of, holds_for_complex, reverse_of
from ..kernels import by_kernel
from ..shared import conj, ops
from .ordering import Rows
from .reductions import axes_of

define(
    "prod",
    "x axis keepdim reduce_all",
    axes=AxesArgument("axis"),
    defaults={"axis": [], "keepdim": False, "reduce_all": False},
)
define(
    "cumprod", defaults={"exclusive": False, "reverse": False}, axes=AxesArgument("dim")
)
define("logcumsumexp", axes=ANYWHERE)
define("logcumsumexp_grad", axes=ANYWHERE)

by_kernel("cumprod")
holds_for_complex("prod", "cumprod", "cumprod_grad")


def _shifted(x: Tensor, axis: int, steps: int) -> Tensor:
    """Return the values this many steps later along an axis, zeros at the end."""
    n = x.shape[axis]
    after = [0, 0] * x.ndim
    after[2 * axis + 1] = min(steps, n)
    part = ops.slice(x, [axis], [min(steps, n)], [n], [1], [])
    return ops.pad(part, after, 0.0)


def recurrence(factor: Tensor, term: Tensor, axis: int) -> Tensor:
    """Solve ``y[k] = term[k] + factor[k] * y[k + 1]`` along an axis."""
    steps = 1
    while steps < term.shape[axis]:
        term = term + factor * _shifted(term, axis, steps)
        steps *= 2
        if steps < term.shape[axis]:
            factor = factor * _shifted(factor, axis, steps // 2)
    return term


@reverse_of("prod")
def _prod_reverse(call: Call) -> list[Any]:
    x, axis, _, every = call.args
    rows = Rows(x, [*range(x.ndim)] if every else axes_of(x, axis))
    row = rows.of(x)
    last = row.ndim - 1
    others = ops.cumprod(row, last, True, False) * ops.cumprod(row, last, True, True)
    result = rows.back(conj(others) * rows.reduced(call.cotangent))
    return [result, None, None, None]


@formula_of("cumprod_grad", keeps_kernel=True)
def _cumprod_grad_formula(
    x: Tensor, out: Tensor, out_grad: Tensor, dim: int, exclusive: bool, reverse: bool
) -> Tensor:
    x, g = conj(x), out_grad
    if not x.ndim:
        return g * 0.0 if exclusive else g * 1.0
    dim %= x.ndim
    if reverse:
        x, g = ops.flip(x, [dim]), ops.flip(g, [dim])
    if exclusive:
        g = _shifted(g, dim, 1)
    before = ops.cumprod(x, dim, True, False)
    result = before * recurrence(_shifted(x, dim, 1), g, dim)
    return ops.flip(result, [dim]) if reverse else result


@reverse_of("logcumsumexp")
def _logcumsumexp_reverse(call: Call) -> list[Any]:
    x, *attrs = call.args
    if attrs[2]:
        raise NoRule("a sum without the element itself; take that of a slice")
    result = ops.logcumsumexp_grad(x, call.out, call.cotangent, *attrs)
    return [result, *(None for _ in attrs)]


@formula_of("logcumsumexp_grad", keeps_kernel=True)
def _logcumsumexp_grad_formula(
    x: Tensor,
    out: Tensor,
    out_grad: Tensor,
    axis: int,
    flatten: bool,
    exclusive: bool,
    reverse: bool,
) -> Tensor:
    """Compute by quotients of neighbouring sums, which are at most one."""
    row = ops.reshape(x, [-1]) if flatten or not x.ndim else x
    shape, axis = row.shape, 0 if row.ndim == 1 else axis % row.ndim
    out, g = ops.reshape(out, shape), ops.reshape(out_grad, shape)
    if reverse:
        row, out, g = (ops.flip(part, [axis]) for part in (row, out, g))
    n = shape[axis]
    if n > 1:
        now = ops.slice(out, [axis], [0], [n - 1], [1], [])
        after = ops.slice(out, [axis], [1], [n], [1], [])
        end = [0, 0] * len(shape)
        end[2 * axis + 1] = 1
        g = recurrence(ops.pad(ops.exp(now - after), end, 0.0), g, axis)
    result = ops.exp(row - out) * g
    if reverse:
        result = ops.flip(result, [axis])
    return ops.reshape(result, x.shape)
