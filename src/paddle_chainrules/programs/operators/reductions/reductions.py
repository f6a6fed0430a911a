"""Sums and means along axes, softmax, norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.interception import RAW
from ....paddle_side.rules import integer_results
from ..axes import ANYWHERE, ELEMENTS, AxesArgument
from ..calls import BatchCall, Call
from ..entry import TABLE, batch_of, define, formula_of, holds_for_complex, reverse_of
from ..shared import is_equal, ops

MAX_AXES_OF_LOGSUMEXP = 4
"""The most axes that Paddle's kernel takes."""

define(
    "sum",
    defaults={"dtype": None, "axis": [], "keepdim": False},
    axes=AxesArgument("axis"),
    linear=(0,),
    tape=integer_results.detach_integers,
)


def _logsumexp(x: Tensor, axis: Any, keepdim: bool) -> Tensor:
    """Run Paddle's kernel, or the formula where there are too many axes for it."""
    if x.ndim <= MAX_AXES_OF_LOGSUMEXP:
        result: Tensor = RAW.logsumexp(x, axis, keepdim)
        return result
    return _logsumexp_formula(x, axis, keepdim)


define(
    "mean",
    defaults={"axis": [], "keepdim": False},
    axes=AxesArgument("axis"),
    linear=(0,),
)
define("mean_all", "x", axes=ANYWHERE, linear=(0,))
define("max", defaults={"axis": [], "keepdim": False}, axes=AxesArgument("axis"))
define("min", defaults={"axis": [], "keepdim": False}, axes=AxesArgument("axis"))
define("softmax", defaults={"axis": -1}, axes=AxesArgument("axis"))
define("softmax_grad", axes=AxesArgument("axis"))
define("log_softmax", "x axis", defaults={"axis": -1}, axes=AxesArgument("axis"))
define("squared_l2_norm", "x", axes=ANYWHERE)
define(
    "logsumexp",
    "x axis keepdim",
    run=_logsumexp,
    defaults={"axis": [], "keepdim": False},
    axes=AxesArgument("axis"),
)
define("amax", defaults={"axis": [], "keepdim": False}, axes=AxesArgument("axis"))
define("amin", defaults={"axis": [], "keepdim": False}, axes=AxesArgument("axis"))
define(
    "cumsum",
    "x axis flatten exclusive reverse",
    axes=AxesArgument("axis"),
    linear=(0,),
)
define("nansum", defaults={"axis": [], "dtype": None, "keepdim": False}, axes=ANYWHERE)
SHARE = define(
    "share",
    "x sizes",
    run=lambda x, sizes: x / float(math.prod(sizes)),
    axes=ELEMENTS,
    linear=(0,),
    cheap=True,
)
holds_for_complex("sum", "mean", "mean_all", "cumsum", "share")


def axes_of(x: Tensor, axis: Any) -> list[int]:
    """Return axes as non-negative integers; all of them for none."""
    axis_list = [axis] if isinstance(axis, int) else [*(axis or [])]
    return sorted({int(a) % max(x.ndim, 1) for a in axis_list}) or [*range(x.ndim)]


def spread(g: Tensor, x: Tensor, axes: list[int], keepdim: bool) -> Tensor:
    """Repeat a reduced tensor along the axes, in the shape of x."""
    if not x.ndim:
        return ops.reshape(g, [])
    if not keepdim or g.ndim != x.ndim:
        kept_shape = [1 if i in axes else n for i, n in enumerate(x.shape)]
        g = ops.reshape(g, kept_shape)
    (result,) = TABLE["expand"].bind([g, x.shape])  # of any number of axes
    return result


def share(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Divide by the product of these sizes, which may vary with a batch."""
    (result,) = SHARE.bind([x, [*sizes]])
    return result


@reverse_of("share")
def _share_reverse(call: Call) -> list[Any]:
    return [share(call.cotangent, call.args[1]), None]


@reverse_of("sum")
def _sum_reverse(call: Call) -> list[Any]:
    x, axis, _, keepdim = call.args
    g = call.cotangent
    g = g if g.dtype == x.dtype else ops.cast(g, x.dtype)
    return [spread(g, x, axes_of(x, axis), keepdim), None, None, None]


@reverse_of("mean")
def _mean_reverse(call: Call) -> list[Any]:
    x, axis, keepdim = call.args
    axes = axes_of(x, axis)
    scaled = share(call.cotangent, [x.shape[i] for i in axes])
    return [spread(scaled, x, axes, keepdim), None, None]


@reverse_of("mean_all")
def _mean_all_reverse(call: Call) -> list[Any]:
    x = call.args[0]
    scaled = share(call.cotangent, x.shape)
    return [spread(scaled, x, [*range(x.ndim)], False)]


@reverse_of("max", "min", "amax", "amin")
def _max_reverse(call: Call) -> list[Any]:  # shared by those that are equal
    x, axis, keepdim = call.args
    axes = axes_of(x, axis)
    chosen = ops.cast(is_equal(spread(call.out, x, axes, keepdim), x), x.dtype)
    g = spread(call.cotangent, x, axes, keepdim)
    return [g * chosen / ops.sum(chosen, axes, None, True), None, None]


@reverse_of("softmax")
def _softmax_reverse(call: Call) -> list[Any]:
    return [ops.softmax_grad(call.out, call.cotangent, call.args[1]), None]


def _subtract_max(x: Tensor, axes: list[int]) -> tuple[Tensor, Tensor]:
    """Return x less its largest along axes, and that largest value.

    No gradient goes through the largest value.
    """
    top = ops.max(x, axes, True).detach()
    return x - top, top


def _clamp_exponents(below: Tensor) -> Tensor:
    """Clamp exponents to at least -64, as Paddle does."""
    return ops.maximum(below, paddle.full([], -64.0, below.dtype))


@formula_of("softmax")
def _softmax_formula(x: Tensor, axis: int) -> Tensor:
    weights = ops.exp(_clamp_exponents(_subtract_max(x, [axis])[0]))
    return weights / ops.sum(weights, [axis], None, True)


@formula_of("log_softmax")
def _log_softmax_formula(x: Tensor, axis: int) -> Tensor:
    below = _clamp_exponents(_subtract_max(x, [axis])[0])
    return below - ops.log(ops.sum(ops.exp(below), [axis], None, True))


@formula_of("softmax_grad")
def _softmax_grad_formula(out: Tensor, out_grad: Tensor, axis: int) -> Tensor:
    product = out * out_grad
    return product - out * ops.sum(product, [axis], None, True)


@reverse_of("log_softmax")
def _log_softmax_reverse(call: Call) -> list[Any]:
    g, axis = call.cotangent, call.args[1]
    return [g - ops.exp(call.out) * ops.sum(g, [axis], None, True), None]


@reverse_of("squared_l2_norm")
def _squared_l2_norm_reverse(call: Call) -> list[Any]:
    x = call.args[0]
    return [x * ops.reshape(call.cotangent, [1] * x.ndim) * 2.0]


@formula_of("squared_l2_norm")
def _squared_l2_norm_formula(x: Tensor) -> Tensor:
    return ops.reshape(ops.sum(x * x, [*range(x.ndim)], None, False), [1])


def _logsumexp_formula(x: Tensor, axis: Any, keepdim: bool) -> Tensor:
    axes = axes_of(x, axis)
    below, top = _subtract_max(x, axes)
    total = ops.log(ops.sum(ops.exp(below), axes, None, True)) + top
    if keepdim:
        return total
    return ops.reshape(total, [n for i, n in enumerate(x.shape) if i not in axes])


formula_of("logsumexp")(_logsumexp_formula)


@reverse_of("cumsum")
def _cumsum_reverse(call: Call) -> list[Any]:
    x, axis, flatten, exclusive, reverse = call.args
    axis = 0 if flatten else axis
    result = ops.cumsum(call.cotangent, axis, False, exclusive, not reverse)
    result = ops.reshape(result, x.shape) if flatten else result
    return [result, None, None, None, None]


@formula_of("nansum")
def _nansum_formula(x: Tensor, axis: Any, dtype: Any, keepdim: bool) -> Tensor:
    numbers = ops.where(ops.isnan(x), paddle.zeros_like(x), x)
    return ops.sum(numbers, axis, dtype, keepdim)


@batch_of("mean_all")
def _mean_all_batch(call: BatchCall) -> list[Any]:
    x = call.args[0]
    return [ops.mean(ops.reshape(x, [call.size, -1]), [1], False)]


@batch_of("squared_l2_norm")
def _squared_l2_norm_batch(call: BatchCall) -> list[Any]:
    x = ops.reshape(call.args[0], [call.size, -1])
    return [ops.reshape(ops.sum(x * x, [1], None, False), [call.size, 1])]
