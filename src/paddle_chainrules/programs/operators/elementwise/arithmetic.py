"""Sums, products, quotients, powers, of tensors and of numbers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.dtypes import single
from ....paddle_side.rules.derivatives.formulas import by_rules
from ..axes import ANYWHERE, BROADCAST, ELEMENTS, ElementwiseWithShared, batched_arg
from ..calls import BatchCall, Call, JetCall, NoRule
from ..entry import (
    batch_of,
    define,
    formula_of,
    holds_for_complex,
    jet_of,
    overwrites,
    reverse_of,
)
from ..series import linear_series, minus, product_series, total
from ..shared import (
    broadcast_gradients,
    conj,
    in_dtype_of,
    is_zero,
    ops,
    summed_to,
)

ARITHMETIC: dict[str, Any] = {"axes": BROADCAST, "promotes": (0, 1)}
"""The settings that all operators between two tensors share."""

for name, infix in (("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/")):
    extra = {"linear": (0,)} if name in ("mul", "truediv") else {}
    define(f"Tensor.__{name}__", "x y", infix=infix, cheap=True, **extra, **ARITHMETIC)
for name in ("radd", "rsub", "rtruediv"):
    define(f"Tensor.__{name}__", "x y", cheap=name != "rtruediv", **ARITHMETIC)
define("Tensor.__rmul__", "x y", cheap=True, linear=(0,), **ARITHMETIC)
for name in ("pow", "rpow"):
    define(
        f"Tensor.__{name}__",
        "x y",
        axes=ELEMENTS,
        promotes=(0, 1),
        tape=by_rules(f"__{name}__", of_complex=True),
    )
for name in ("add", "subtract"):
    define(name, cheap=True, **ARITHMETIC)
define("divide", linear=(0,), **ARITHMETIC)
for name in ("maximum", "minimum"):
    define(name, **ARITHMETIC)
define("multiply", "x y", axes=BROADCAST, linear=(0, 1), promotes=(0, 1), cheap=True)
define(
    "scale",
    differentiable=(0, 1),
    defaults={"scale": 1.0, "bias": 0.0, "bias_after_scale": True},
    axes=ElementwiseWithShared(1),
    cheap=True,
    tape=by_rules("scale", 1, 2),
)
define(
    "pow", differentiable=(0, 1), axes=ElementwiseWithShared(1), tape=by_rules("pow", 1)
)
define(
    "elementwise_pow",
    axes=ELEMENTS,
    promotes=(0, 1),
    tape=by_rules("elementwise_pow", of_complex=True),
)
define(
    "add_grad", "x y out_grad axis", differentiable=(2,), shapes=(0, 1), axes=ANYWHERE
)
define("divide_grad", "x y out out_grad axis", axes=ANYWHERE)
define("pow_grad", differentiable=(0, 1), axes=ElementwiseWithShared(2))
define("maximum_grad", "x y out_grad", axes=ANYWHERE)
define("minimum_grad", "x y out_grad", axes=ANYWHERE)
define("add_n", "x", axes=ANYWHERE, linear=(0,))
for name in ("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv"):
    holds_for_complex(f"Tensor.__{name}__")
holds_for_complex("add", "subtract", "multiply", "divide", "scale", "add_n")
holds_for_complex("Tensor.__pow__", "Tensor.__rpow__", "pow", "elementwise_pow")
holds_for_complex("add_grad", "divide_grad", "pow_grad")

overwrites("add", "add_", 0, 1)
overwrites("multiply", "multiply_", 0, 1)
for name in ("subtract", "divide", "scale"):
    overwrites(name, f"{name}_", 0)


@reverse_of("Tensor.__add__", "Tensor.__radd__", "add")
def _add_reverse(call: Call) -> list[Any]:
    g = call.cotangent
    return broadcast_gradients(call, lambda: g, lambda: g)


@reverse_of("Tensor.__sub__", "subtract")
def _subtract_reverse(call: Call) -> list[Any]:
    g = call.cotangent
    return broadcast_gradients(call, lambda: g, lambda: ops.scale(g, -1.0, 0.0, True))


@reverse_of("Tensor.__rsub__")
def _subtract_from_reverse(call: Call) -> list[Any]:  # y - x
    g = call.cotangent
    return broadcast_gradients(call, lambda: ops.scale(g, -1.0, 0.0, True), lambda: g)


@reverse_of("Tensor.__mul__", "Tensor.__rmul__", "multiply")
def _multiply_reverse(call: Call) -> list[Any]:
    x, y = call.args
    g = call.cotangent
    return broadcast_gradients(
        call, lambda: g * _gradient_factor(y, g), lambda: g * _gradient_factor(x, g)
    )


def _gradient_factor(x: Any, g: Tensor) -> Any:
    """Return the other factor of a product or quotient, to multiply gradients by."""
    if isinstance(x, Tensor) and not (x.is_floating_point() or x.is_complex()):
        return ops.cast(x, g.dtype)
    return conj(x)


@reverse_of("Tensor.__truediv__", "divide")
def _divide_reverse(call: Call) -> list[Any]:
    x_grad = call.cotangent / _gradient_factor(call.args[1], call.cotangent)
    return broadcast_gradients(call, lambda: x_grad, lambda: -(x_grad * conj(call.out)))


@reverse_of("Tensor.__rtruediv__")
def _divide_into_reverse(call: Call) -> list[Any]:  # y / x
    y_grad = call.cotangent / _gradient_factor(call.args[0], call.cotangent)
    return broadcast_gradients(call, lambda: -(y_grad * conj(call.out)), lambda: y_grad)


@reverse_of("scale")
def _scale_reverse(call: Call) -> list[Any]:
    x, factor, bias, bias_after_scale = call.args
    g = call.cotangent
    x_grad = factor_grad = None
    if 0 in call.wanted:
        x_grad = ops.scale(g, conj(factor), 0.0, True)
    if 1 in call.wanted:
        factor_grad = ops.sum(
            g * conj(x if bias_after_scale else x + bias), [], None, False
        )
        factor_grad = ops.reshape(factor_grad, factor.shape)
    return [x_grad, factor_grad, None, None]


@reverse_of("pow")
def _pow_reverse(call: Call) -> list[Any]:
    x, exponent = call.args
    g = call.cotangent
    if not isinstance(exponent, Tensor):
        x_grad = g * conj(x) * 2.0 if exponent == 2 else ops.pow_grad(x, g, exponent)
        return [x_grad, None]
    x_grad = ops.pow_grad(x, g, exponent) if 0 in call.wanted else None
    if 1 not in call.wanted:
        return [x_grad, None]
    rounded = ops.cast(ops.cast(exponent, paddle.float32), x.dtype)  # as numbers are
    of_tensors = Call([x, rounded], call.outputs, call.cotangents, frozenset({1}))
    return [x_grad, _elementwise_pow_reverse(of_tensors)[1]]


@formula_of("pow_grad")
def _pow_grad_formula(x: Tensor, out_grad: Tensor, factor: Any) -> Tensor:
    if isinstance(factor, Tensor):  # rounded as numbers are
        factor = ops.reshape(ops.cast(factor, paddle.float32), [])
        factor = ops.cast(factor, paddle.float64)
        below = _lower_exponent(factor)
        below, factor = ops.cast(below, x.dtype), ops.cast(factor, x.dtype)
        return out_grad * ops.elementwise_pow(conj(x), below) * factor
    if factor == 0:
        return out_grad * paddle.zeros_like(x)
    if factor == 1:
        return out_grad * 1.0
    factor = single(factor)
    below = factor - 1.0
    if x.dtype == paddle.float32 or below == single(below):
        return out_grad * ops.pow(conj(x), below) * factor
    power = ops.elementwise_pow(conj(x), paddle.full([], below, x.dtype))
    return out_grad * power * factor


@formula_of("Tensor.__pow__")
def _power_formula(x: Tensor, y: Any) -> Tensor:
    if isinstance(y, Tensor):
        return ops.elementwise_pow(x, y)
    if isinstance(y, complex):
        return ops.elementwise_pow(x, _complex_like(x, y))
    return ops.pow(x, y)


@formula_of("Tensor.__rpow__")
def _power_of_formula(x: Tensor, y: Any) -> Tensor:
    if isinstance(y, complex):
        y = _complex_like(x, y)
    elif not isinstance(y, Tensor):
        y = paddle.full([], y, x.dtype)
    return ops.elementwise_pow(y, x)


@reverse_of("elementwise_pow")
def _elementwise_pow_reverse(call: Call) -> list[Any]:
    g = call.cotangent
    x, y = (in_dtype_of(arg, g) for arg in call.args)
    x_grad = y_grad = None
    if 0 in call.wanted:
        below = _lower_exponent(y)
        x_grad = g * conj(y) * conj(ops.elementwise_pow(x, below))
        if not x_grad.is_complex():  # nothing, of no number too
            is_flat = ops.expand(is_zero(y), x_grad.shape)
            x_grad = ops.where(is_flat, paddle.zeros_like(x_grad), x_grad)
        x_grad = summed_to(x_grad, x)
    if 1 in call.wanted and call.out.is_complex():
        y_grad = summed_to(g * conj(call.out * _complex_logarithm(x, call.out)), y)
    elif 1 in call.wanted:
        is_flat = ops.expand(ops.logical_and(is_zero(x), y >= 0), g.shape)
        base = ops.expand(x, g.shape)
        logs = ops.log(ops.where(is_flat, paddle.ones_like(base), base))
        y_grad = g * call.out * logs
        y_grad = summed_to(ops.where(is_flat, paddle.zeros_like(y_grad), y_grad), y)
    return [x_grad, y_grad]


def _lower_exponent(y: Tensor) -> Tensor:
    """Return ``y - 1``, or 0 where y is 0: the slope there is 0, not ``0 * inf``."""
    return ops.where(is_zero(y), paddle.ones_like(y), y) - 1.0


def _complex_logarithm(x: Tensor, like: Tensor) -> Tensor:
    """Return the logarithm of a base as a complex number; zero for a zero base."""
    x = x if x.dtype == like.dtype else ops.cast(x, like.dtype)
    zero = x == 0
    return ops.log(ops.where(zero, paddle.ones_like(x), x))


@formula_of("add_grad")
def _add_grad_formula(x: Tensor, y: Tensor, out_grad: Tensor, axis: int) -> Any:
    if axis not in (-1, max(x.ndim - y.ndim, 0)):
        raise NoRule("an axis at which y begins within x; reshape y")
    return summed_to(out_grad, x, False), summed_to(out_grad, y, False)


@reverse_of("add_grad")
def _add_grad_reverse(call: Call) -> list[Any]:
    x = call.args[0]
    x_grad, y_grad = call.cotangents
    total = x_grad
    if y_grad is not None:
        if y_grad.shape != x.shape:
            y_grad = ops.expand(y_grad, x.shape)
        total = y_grad if total is None else total + y_grad
    return [None, None, total, None]


@formula_of("divide_grad")
def _divide_grad_formula(
    x: Tensor, y: Tensor, out: Tensor, out_grad: Tensor, axis: int = -1
) -> Any:
    x_grad = out_grad / conj(y)
    return summed_to(x_grad, x), summed_to(-(x_grad * conj(out)), y)


@reverse_of("maximum")
def _maximum_reverse(call: Call) -> list[Any]:
    return list(ops.maximum_grad(*call.args, call.cotangent))


@reverse_of("minimum")
def _minimum_reverse(call: Call) -> list[Any]:
    return list(ops.minimum_grad(*call.args, call.cotangent))


def _gradient_of_chosen(g: Tensor, to: Tensor, *is_chosen: Tensor) -> Tensor:
    """Return the gradient of one of two tensors, half of it where they are equal.

    Args:
        is_chosen: where it is the larger, and where it is larger or equal; neither
            holds for NaN.
    """
    is_larger, with_ties = (ops.cast(condition, g.dtype) for condition in is_chosen)
    return summed_to(g * is_larger + g * 0.5 * (with_ties - is_larger), to)


@formula_of("maximum_grad")
def _maximum_grad_formula(x: Tensor, y: Tensor, out_grad: Tensor) -> Any:
    return _gradient_of_chosen(out_grad, x, x > y, x >= y), _gradient_of_chosen(
        out_grad, y, y > x, y >= x
    )


@formula_of("minimum_grad")
def _minimum_grad_formula(x: Tensor, y: Tensor, out_grad: Tensor) -> Any:
    return _gradient_of_chosen(out_grad, x, x < y, x <= y), _gradient_of_chosen(
        out_grad, y, y < x, y <= x
    )


@formula_of("add_n")
def _add_n_formula(x: Sequence[Tensor]) -> Tensor:
    return functools.reduce(ops.add, x)


# In Taylor series.


@jet_of("Tensor.__add__", "Tensor.__radd__", "add")
def _add_jet(call: JetCall) -> list[Any]:
    x, y = call.args
    if not isinstance(y, list):
        return [[call.out, *x[1:]]]
    return [[call.out, *map(total, _higher_coefficients(call))]]


@jet_of("Tensor.__sub__", "subtract")
def _subtract_jet(call: JetCall) -> list[Any]:
    x, y = call.args
    if not isinstance(y, list):
        return [[call.out, *x[1:]]]
    return [[call.out, *(minus(a, b) for a, b in _higher_coefficients(call))]]


@jet_of("Tensor.__rsub__")
def _subtract_from_jet(call: JetCall) -> list[Any]:
    x, y = call.args
    if not isinstance(y, list):
        return [[call.out, *(minus(None, a) for a in x[1:])]]
    return [[call.out, *(minus(b, a) for a, b in _higher_coefficients(call))]]


def _higher_coefficients(call: JetCall) -> list[tuple[Any, Any]]:
    """Return the coefficients of two arguments beyond their values.

    They have the result's shape.
    """
    shape = call.out.shape

    def expanded(term: Tensor) -> Tensor:
        return term if term.shape == shape else ops.expand(term, shape)

    x, y = (linear_series(expanded, series[1:]) for series in call.args)
    return [*zip(x, y, strict=True)]


@jet_of("Tensor.__mul__", "Tensor.__rmul__", "multiply")
def _multiply_jet(call: JetCall) -> list[Any]:
    x, y = call.args
    if not isinstance(y, list):
        return [[call.out, *linear_series(lambda term: term * y, x[1:])]]
    return [[call.out, *product_series(x, y)[1:]]]


# Of many samples.


@batch_of("add_n")
def _add_n_batch(call: BatchCall) -> list[Any]:
    return [ops.add_n(call.args[0])]


@batch_of("add_grad")
def _add_grad_batch(call: BatchCall) -> list[Any]:
    g = batched_arg(call, 2)
    grads = []
    for i in (0, 1):
        shape = call.args[i].shape[i in call.batched :]
        lead = g.ndim - 1 - len(shape)
        pairs = enumerate(zip(shape, g.shape[lead + 1 :], strict=True), lead + 1)
        axes = [*range(1, lead + 1), *(k for k, (n, m) in pairs if n != m)]
        reduced = ops.sum(g, axes, None, False) if axes else g
        grads.append(ops.reshape(reduced, [call.size, *shape]))
    return grads


def _complex_like(x: Tensor, number: Any) -> Tensor:
    """Return a number as a complex tensor of the precision of another tensor."""
    if isinstance(number, Tensor):
        return number
    double = x.dtype in (paddle.float64, paddle.complex128)
    return paddle.full([], number, paddle.complex128 if double else paddle.complex64)
