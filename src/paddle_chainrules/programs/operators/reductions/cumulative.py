"""Products and sums of the elements before each element."""

from __future__ import annotations

from typing import Any

from paddle import Tensor

from ....paddle_side.rules.derivatives import formulas
from ....paddle_side.rules.derivatives.formulas import where_traced
from ..axes import ANYWHERE, AxesArgument
from ..calls import Call, NoRule
from ..entry import define, formula_of, holds_for_complex, reverse_of
from ..kernels import by_kernel
from ..shared import conj, ops
from .ordering import ReducedRows
from .reductions import axes_of

define(
    "prod",
    "x axis keepdim reduce_all",
    axes=AxesArgument("axis"),
    defaults={"axis": [], "keepdim": False, "reduce_all": False},
    tape=where_traced(formulas.pairwise_product, 0, checked=True),
)
define(
    "cumprod", defaults={"exclusive": False, "reverse": False}, axes=AxesArgument("dim")
)
define("logcumsumexp", axes=ANYWHERE)
define("logcumsumexp_grad", axes=ANYWHERE)

by_kernel("cumprod")
holds_for_complex("prod", "cumprod", "cumprod_grad")


def _shift_left(x: Tensor, axis: int, steps: int) -> Tensor:
    """Return the values this many steps later along an axis, zeros at the end."""
    n = x.shape[axis]
    paddings = [0, 0] * x.ndim
    paddings[2 * axis + 1] = min(steps, n)
    later = ops.slice(x, [axis], [min(steps, n)], [n], [1], [])
    return ops.pad(later, paddings, 0.0)


def solve_recurrence(factor: Tensor, term: Tensor, axis: int) -> Tensor:
    """Solve ``y[k] = term[k] + factor[k] * y[k + 1]`` along an axis."""
    steps = 1
    while steps < term.shape[axis]:
        term = term + factor * _shift_left(term, axis, steps)
        steps *= 2
        if steps < term.shape[axis]:
            factor = factor * _shift_left(factor, axis, steps // 2)
    return term


@reverse_of("prod")
def _prod_reverse(call: Call) -> list[Any]:
    x, axis, _, reduce_all = call.args
    rows = ReducedRows(x, [*range(x.ndim)] if reduce_all else axes_of(x, axis))
    values = rows.to_rows(x)
    last = values.ndim - 1
    other_products = ops.cumprod(values, last, True, False) * ops.cumprod(
        values, last, True, True
    )
    grad = rows.from_rows(conj(other_products) * rows.reshape_reduced(call.cotangent))
    return [grad, None, None, None]


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
        g = _shift_left(g, dim, 1)
    before = ops.cumprod(x, dim, True, False)
    result = before * solve_recurrence(_shift_left(x, dim, 1), g, dim)
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
        row, out, g = (ops.flip(values, [axis]) for values in (row, out, g))
    n = shape[axis]
    if n > 1:
        current = ops.slice(out, [axis], [0], [n - 1], [1], [])
        following = ops.slice(out, [axis], [1], [n], [1], [])
        paddings = [0, 0] * len(shape)
        paddings[2 * axis + 1] = 1
        g = solve_recurrence(
            ops.pad(ops.exp(current - following), paddings, 0.0), g, axis
        )
    result = ops.exp(row - out) * g
    if reverse:
        result = ops.flip(result, [axis])
    return ops.reshape(result, x.shape)
