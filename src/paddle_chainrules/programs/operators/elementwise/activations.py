"""Functions of each element by itself."""

from __future__ import annotations

import math
from typing import Any

import paddle
from paddle import Tensor

from ....paddle_side.dtypes import single
from ....paddle_side.rules.derivatives import formulas
from ....paddle_side.rules.derivatives.formulas import by_rules, where_traced
from ..axes import ELEMENTS, ElementwiseWithShared
from ..calls import BatchCall, Call
from ..entry import (
    TABLE,
    batch_of,
    define,
    formula_of,
    holds_for_complex,
    overwrites,
    reverse_of,
    simpler_of,
    tape_of,
)
from ..shared import conj, ops, phase_gradient
from .activation_formulas import mish, or_nan, selu, softsign

DEFAULTS: dict[str, dict[str, Any]] = {
    "gelu": {"approximate": False},
    "softplus": {"beta": 1.0, "threshold": 20.0},
    "elu": {"alpha": 1.0},
    "leaky_relu": {"alpha": 0.01},
    "selu": {"scale": 1.0507009873554804934193349852946}
    | {"alpha": 1.6732632423543772848170429916717},
    "round": {"decimals": 0},
}

NAMES = (
    *("tanh", "sigmoid", "relu", "sin", "cos", "exp", "log", "sqrt", "rsqrt", "square"),
    *("abs", "silu", "gelu", "softplus", "elu", "leaky_relu", "erf", "sinh", "cosh"),
    *("reciprocal", "log1p", "expm1", "sign", "floor", "ceil", "round", "atan"),
    *("softsign", "logsigmoid", "swish", "mish", "relu6", "hardswish", "clip", "selu"),
    "trunc",
)

for name in NAMES:
    defaults = DEFAULTS.get(name)
    define(name, axes=ELEMENTS, defaults=defaults, cheap=name == "square")
for name in ("relu", "sqrt", "rsqrt", "silu", "gelu", "softplus", "elu", "leaky_relu"):
    define(f"{name}_grad", axes=ELEMENTS)
for name in ("tanh", "sigmoid", "sin", "cos", "square"):
    define(f"{name}_grad", axes=ELEMENTS, linear=(1,))
for name in ("selu", "abs"):
    define(f"{name}_grad", axes=ELEMENTS)
define("clip_grad", axes=ElementwiseWithShared(2, 3))
holds_for_complex("exp", "log", "sqrt", "square", "abs", "sign", "reciprocal", "silu")
holds_for_complex("sin", "cos", "sinh", "cosh", "tanh", "sigmoid", "softsign", "atan")
holds_for_complex("log1p", "expm1")
for name in ("tanh", "sigmoid", "sin", "cos", "sqrt", "square", "silu"):
    holds_for_complex(f"{name}_grad")

for name in ("tanh", "sigmoid", "relu", "sin", "cos", "exp", "sqrt", "rsqrt", "square"):
    overwrites(name, f"{name}_", 0)
for name in ("tanh", "sigmoid", "relu", "sin", "cos", "square", "gelu", "softplus"):
    overwrites(f"{name}_grad", f"{name}_grad_", 1)
overwrites("silu_grad", "silu_grad_", 2)


def _gradient_by_output(name: str) -> None:
    """Define the gradient ``x̄ = name_grad(out, ȳ, ...)``."""

    def reverse(call: Call) -> list[Any]:
        grad = getattr(ops, f"{name}_grad")
        attrs = call.args[1:]
        return [grad(call.out, call.cotangent, *attrs), *(None for _ in attrs)]

    TABLE[name].reverse = reverse


def _gradient_by_input(name: str) -> None:
    """Define the gradient ``x̄ = name_grad(x, ȳ, ...)``."""

    def reverse(call: Call) -> list[Any]:
        grad = getattr(ops, f"{name}_grad")
        x, *attrs = call.args
        return [grad(x, call.cotangent, *attrs), *(None for _ in attrs)]

    TABLE[name].reverse = reverse


for name in ("tanh", "sigmoid", "relu", "sqrt", "rsqrt", "selu"):
    _gradient_by_output(name)
for name in ("sin", "cos", "square", "gelu", "softplus", "leaky_relu"):
    _gradient_by_input(name)


@simpler_of("gelu")
def _gelu_simpler(x: Any, approximate: Any) -> Any:
    """Take the approximation by its name, as Paddle's operator does."""
    names = {"none": False, "tanh": True}
    if not isinstance(approximate, str) or approximate not in names:
        return None
    return "gelu", (x, names[approximate])


@reverse_of("silu", "swish")
def _silu_reverse(call: Call) -> list[Any]:
    x, out, g = call.args[0], call.out, call.cotangent
    if x.is_complex():
        return [ops.silu_grad(x, out, g)]
    # silu_grad is no number where exp(-x) is infinite, and swish_grad slow.
    gate = ops.sigmoid(x)
    return [g * (gate + out * (1.0 - gate))]


@reverse_of("elu")
def _elu_reverse(call: Call) -> list[Any]:
    x, alpha = call.args
    return [ops.elu_grad(x, call.out, call.cotangent, alpha), None]


@reverse_of("exp")
def _exp_reverse(call: Call) -> list[Any]:
    return [call.cotangent * conj(call.out)]


@reverse_of("log")
def _log_reverse(call: Call) -> list[Any]:
    return [call.cotangent / conj(call.args[0])]


@reverse_of("trunc")
def _trunc_reverse(call: Call) -> list[Any]:
    g = call.cotangent  # kept, so that the program knows that it passes here
    return [ops.where(paddle.zeros_like(g, "bool"), g, paddle.zeros_like(g))]


@reverse_of("sign", "floor", "ceil", "round")
def _sign_reverse(call: Call) -> list[Any]:
    if call.out.is_complex():
        speed = ops.imag(ops.conj(call.out) * call.cotangent)
        return [phase_gradient(call.out, speed, ops.abs(call.args[0]))]
    return [call.cotangent * 0.0, *(None for _ in call.args[1:])]


@reverse_of("erf")
def _erf_reverse(call: Call) -> list[Any]:
    x = call.args[0]
    return [call.cotangent * ops.exp(-(x * x)) * (2 / math.sqrt(math.pi))]


@reverse_of("sinh")
def _sinh_reverse(call: Call) -> list[Any]:
    return [call.cotangent * conj(ops.cosh(call.args[0]))]


@reverse_of("cosh")
def _cosh_reverse(call: Call) -> list[Any]:
    return [call.cotangent * conj(ops.sinh(call.args[0]))]


@reverse_of("reciprocal")
def _reciprocal_reverse(call: Call) -> list[Any]:
    out = conj(call.out)
    return [-(call.cotangent * out * out)]


@reverse_of("log1p")
def _log1p_reverse(call: Call) -> list[Any]:
    return [call.cotangent / (conj(call.args[0]) + 1.0)]


@reverse_of("expm1")
def _expm1_reverse(call: Call) -> list[Any]:
    return [call.cotangent * conj(call.out) + call.cotangent]


@reverse_of("atan")
def _atan_reverse(call: Call) -> list[Any]:
    x = conj(call.args[0])
    return [call.cotangent / (x * x + 1.0)]


# Of these gradients, to be differentiated more often. They conjugate the first argument
# where it is complex: what is linear in the cotangent is given back with it as it is.


@reverse_of("tanh_grad")
def _tanh_grad_reverse(call: Call) -> list[Any]:  # g (1 - out out)
    out, g = call.args
    c = call.cotangent
    by_out = g * conj(c) * conj(out) * -2.0 if 0 in call.wanted else None
    return [by_out, ops.tanh_grad(conj(out), c) if 1 in call.wanted else None]


@reverse_of("sigmoid_grad")
def _sigmoid_grad_reverse(call: Call) -> list[Any]:  # g out (1 - out)
    out, g = call.args
    c = call.cotangent
    by_out = g * conj(c) * (1.0 - conj(out) * 2.0) if 0 in call.wanted else None
    return [by_out, ops.sigmoid_grad(conj(out), c) if 1 in call.wanted else None]


@reverse_of("sin_grad")
def _sin_grad_reverse(call: Call) -> list[Any]:  # g cos(x)
    x, g = call.args
    c = call.cotangent
    x_grad = ops.cos_grad(x, g * conj(c)) if 0 in call.wanted else None
    return [x_grad, ops.sin_grad(conj(x), c) if 1 in call.wanted else None]


@reverse_of("cos_grad")
def _cos_grad_reverse(call: Call) -> list[Any]:  # -g sin(x)
    x, g = call.args
    c = call.cotangent
    x_grad = -ops.sin_grad(x, g * conj(c)) if 0 in call.wanted else None
    return [x_grad, ops.cos_grad(conj(x), c) if 1 in call.wanted else None]


@reverse_of("square_grad")
def _square_grad_reverse(call: Call) -> list[Any]:  # 2 x g
    x, g = call.args
    c = call.cotangent
    x_grad = ops.square_grad(conj(g), conj(c)) if 0 in call.wanted else None
    return [x_grad, ops.square_grad(conj(x), c) if 1 in call.wanted else None]


@reverse_of("abs")
def _abs_reverse(call: Call) -> list[Any]:
    x, g = call.args[0], call.cotangent
    return [g * ops.sign(x) if x.is_complex() else ops.abs_grad(x, g)]


@reverse_of("abs_grad")
def _abs_grad_reverse(call: Call) -> list[Any]:  # g sign(x), and 0 where x is
    x, _ = call.args
    c = call.cotangent
    x_grad = paddle.zeros_like(c) if 0 in call.wanted else None
    return [x_grad, ops.abs_grad(x, c) if 1 in call.wanted else None]


# In operators that have rules, for the same.


@reverse_of("relu_grad")
def _relu_grad_reverse(call: Call) -> list[Any]:
    out = call.args[0]
    return [None, ops.relu_grad(out, call.cotangent)]


@formula_of("sqrt_grad")
def _sqrt_grad_formula(out: Tensor, out_grad: Tensor) -> Tensor:
    return out_grad * 0.5 / conj(out)


@formula_of("rsqrt_grad")
def _rsqrt_grad_formula(out: Tensor, out_grad: Tensor) -> Tensor:
    return out_grad * -0.5 * out * out * out


@formula_of("silu_grad")
def _silu_grad_formula(x: Tensor, out: Tensor, out_grad: Tensor) -> Tensor:
    x = conj(x)
    s = ops.sigmoid(x)
    return out_grad * s * (1.0 + x * (1.0 - s))


@formula_of("gelu_grad")
def _gelu_grad_formula(x: Tensor, out_grad: Tensor, approximate: bool) -> Tensor:
    if approximate:
        a, b = math.sqrt(2 / math.pi), 0.044715
        t = ops.tanh((x + x * x * x * b) * a)
        slope = (1.0 - t * t) * (1.0 + x * x * (3 * b)) * a
        return out_grad * 0.5 * (1.0 + t + x * slope)
    phi = ops.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    return out_grad * (0.5 * (1.0 + ops.erf(x * math.sqrt(0.5))) + x * phi)


@formula_of("softplus_grad")
def _softplus_grad_formula(
    x: Tensor, out_grad: Tensor, beta: float, threshold: float
) -> Tensor:
    slope = ops.sigmoid(x * beta)
    return out_grad * ops.where(x * beta > threshold, paddle.ones_like(x), slope)


@formula_of("elu_grad")
def _elu_grad_formula(x: Tensor, out: Tensor, out_grad: Tensor, alpha: float) -> Tensor:
    low = ops.exp(ops.where(x > 0, paddle.zeros_like(x), x)) * single(alpha)
    return out_grad * ops.where(x > 0, paddle.ones_like(x), low)


@reverse_of("leaky_relu_grad")
def _leaky_relu_grad_reverse(call: Call) -> list[Any]:
    x, _, alpha = call.args
    return [None, ops.leaky_relu_grad(x, call.cotangent, alpha), None]


@formula_of("logsigmoid")
def _logsigmoid_formula(x: Tensor) -> Tensor:
    return -ops.softplus(-x, 1.0, 80.0)


formula_of("softsign")(softsign)
formula_of("mish")(mish)
formula_of("selu")(selu)


@reverse_of("softsign")
def _softsign_reverse(call: Call) -> list[Any]:
    x, g = call.args[0], call.cotangent
    inverse = ops.reciprocal(ops.abs(x) + 1.0)
    if not x.is_complex():
        return [g * ops.square(inverse)]
    size_grad = ops.real(g * conj(x)) * ops.square(inverse)
    return [g * inverse - size_grad * ops.sign(x)]


@formula_of("relu6")
def _relu6_formula(x: Tensor) -> Tensor:
    return ops.where(x < 6.0, ops.relu(x), or_nan(x, paddle.full_like(x, 6.0)))


@reverse_of("clip")
def _clip_reverse(call: Call) -> list[Any]:
    x, low, high = call.args
    g, zero = call.cotangent, paddle.zeros_like(call.cotangent)
    x_gradient = ops.clip_grad if call.wanted == {0} else _clip_grad_formula
    grads = [x_gradient(x, g, low, high)]
    for k, bound, is_beyond in ((1, low, ops.less_than), (2, high, ops.greater_than)):
        grad = None
        if k in call.wanted:
            masked = ops.where(is_beyond(x, _bound(bound, x)), g, zero)
            grad = ops.reshape(ops.sum(masked, [], None, False), bound.shape)
        grads.append(grad)
    return grads


def _bound(bound: Any, x: Tensor) -> Tensor:
    if isinstance(bound, Tensor):
        bound = ops.reshape(bound, [])
        return bound if bound.dtype == x.dtype else ops.cast(bound, x.dtype)
    return paddle.full([], bound, x.dtype)


@formula_of("clip_grad")
def _clip_grad_formula(x: Tensor, grad_out: Tensor, min: Any, max: Any) -> Tensor:
    inside = ops.logical_and(x >= _bound(min, x), x <= _bound(max, x))
    return ops.where(inside, grad_out, paddle.zeros_like(grad_out))


@formula_of("hardswish")
def _hardswish_formula(x: Tensor) -> Tensor:
    return x * ops.relu6(x + 3.0) / 6.0


@formula_of("selu_grad")
def _selu_grad_formula(
    out: Tensor, out_grad: Tensor, scale: float, alpha: float
) -> Tensor:
    low = out + single(single(scale) * single(alpha))
    return out_grad * ops.where(out > 0, paddle.full_like(out, single(scale)), low)


# Of many samples.


@batch_of("clip")
def _clip_batch(call: BatchCall) -> list[Any]:
    x, *bounds = call.args
    if call.batched == {0}:
        return [ops.clip(x, *bounds)]
    ones = [1] * call.ndim(0)
    lower, upper = (
        ops.reshape(bound, [call.size, *ones])
        if k in call.batched
        else _bound(bound, x)
        for k, bound in enumerate(bounds, 1)
    )
    return [ops.minimum(ops.maximum(x, lower), upper)]


tape_of("silu", "swish")(where_traced(formulas.silu, 0))

tape_of("clip")(by_rules("clip", 1, 2))

tape_of("sign")(by_rules("sign", of_complex=True))

tape_of("softsign")(by_rules("softsign", of_complex=True))
