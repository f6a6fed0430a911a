"""Functions of each element, as rules of loops.

In float64 they are at most 2 ulp from the true value. In float32, where we compute in
float64 too, the error is hardly more than half an ulp. Some are computed in float32:
the exact gelu, sigmoid and silu, which are at most 4 ulp off, and tanh, which has the
bits of Paddle's tanh.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ....paddle_side.dtypes import single
from ...operators.table import TABLE
from . import exponentials, gaussian, trigonometric
from .number import ElementValue
from .scalars import ElementCall, NotLowerable, element_rule

EXPENSIVE = 20
"""The cost of a function made of polynomials."""


def _register_formula(
    *names: str,
    formula: Callable[..., ElementValue],
    cost: int = EXPENSIVE,
    exact: bool = False,
    narrow: Callable[..., ElementValue | None] = lambda *args: None,
) -> None:
    """Compute operators by a formula of their arguments.

    Args:
        narrow: for float32, a formula in float32, or None where there is none.
        exact: whether it is computed in the arguments' dtype, with Paddle's bits.
    """

    @element_rule(*names, cost=cost)
    def rule(call: ElementCall) -> str:
        args = call.operands()
        if exact or call.dtype == "float64":
            return formula(*args).name
        if result := narrow(*args):
            return result.name
        widened = (
            x.to("fpext", "double") if isinstance(x, ElementValue) else x for x in args
        )
        return formula(*widened).to("fptrunc", "float").name


def _constant_argument(value: Any) -> float:
    """Return a constant argument.

    Raises:
        NotLowerable: it is a tensor, or not a real number.
    """
    if type(value) not in (int, float):
        raise NotLowerable
    return float(value)


for name, formula in {
    "exp": exponentials.exp,
    "expm1": exponentials.expm1,
    "log": exponentials.log,
    "log1p": exponentials.log1p,
    "logsigmoid": exponentials.logsigmoid,
    "sinh": exponentials.sinh,
    "cosh": exponentials.cosh,
    "sin": trigonometric.sin,
    "cos": trigonometric.cos,
    "atan": trigonometric.atan,
    "erf": gaussian.erf,
    "rsqrt": lambda x: 1 / x.sqrt(),
}.items():
    _register_formula(name, formula=formula)
_register_formula(
    "sigmoid", formula=exponentials.sigmoid, narrow=exponentials.sigmoid_narrow
)


def _silu(x: ElementValue) -> ElementValue:
    return exponentials.times_sigmoid(x, x)


_register_formula("silu", "swish", formula=_silu, narrow=exponentials.silu_narrow)


@element_rule("tanh", cost=EXPENSIVE)
def _tanh_element(call: ElementCall) -> str:
    (x,) = call.operands()
    is_single = call.dtype == "float32"
    return (exponentials.eigen_tanh if is_single else exponentials.tanh)(x).name


@element_rule("tanh_shrink", cost=EXPENSIVE)
def _tanh_shrink_element(call: ElementCall) -> str:
    (x,) = call.operands()
    is_single = call.dtype == "float32"
    return (x - (exponentials.eigen_tanh if is_single else exponentials.tanh)(x)).name


def _log_of_base(base: float) -> Callable[[ElementValue], ElementValue]:
    """Return a logarithm, for float32 only, since the quotient is rounded twice."""

    def logarithm(x: ElementValue) -> ElementValue:
        if not x.is_single:
            raise NotLowerable
        return exponentials.log(x) * (1 / math.log(base))

    return logarithm


_register_formula("log2", formula=_log_of_base(2.0))
_register_formula("log10", formula=_log_of_base(10.0))


def _power_of_constant(x: ElementValue, base: Any) -> ElementValue:
    """Return a power of a constant, for float32 only, since it amplifies errors."""
    base = single(_constant_argument(base))
    if not x.is_single or not 0 < base < math.inf:
        raise NotLowerable
    return exponentials.exp(x * math.log(base))


_register_formula("Tensor.__rpow__", formula=_power_of_constant)


def _power_of_tensors(x: ElementValue, y: Any) -> ElementValue:
    """Return a power of tensors, for float32 only."""
    if not isinstance(y, ElementValue) or not x.is_single:
        raise NotLowerable
    return exponentials.elementwise_power(x, y)


_register_formula("elementwise_pow", formula=_power_of_tensors, cost=2 * EXPENSIVE)


def _gelu(x: ElementValue, approximate: bool) -> ElementValue:
    return (gaussian.gelu_tanh if approximate else gaussian.gelu)(x)


def _gelu_narrow(x: ElementValue, approximate: bool) -> ElementValue | None:
    return None if approximate else gaussian.gelu_narrow(x)


def _softplus(x: ElementValue, beta: Any, threshold: Any) -> ElementValue:
    """Return Paddle's softplus. The threshold has the dtype of the compared value."""
    beta, threshold = _constant_argument(beta), _constant_argument(threshold)
    y = x * beta
    result = exponentials.softplus(y)
    return (y > threshold).where(x, result if beta == 1 else result / beta)


def _elu(x: ElementValue, alpha: Any) -> ElementValue:
    low = exponentials.expm1(x) * single(_constant_argument(alpha))
    return (x < 0).where(low, x)


_register_formula("gelu", formula=_gelu, narrow=_gelu_narrow)
_register_formula("softplus", formula=_softplus)
_register_formula("elu", formula=_elu)


def _root(x: ElementValue) -> ElementValue:
    """Return the power of 1/2, which differs from the root at -0 and -infinity."""
    return x.equals(-math.inf).where(math.inf, (x + 0.0).sqrt())


def _power(x: ElementValue, exponent: Any) -> ElementValue:
    """Return the power with a constant exponent.

    Raises:
        NotLowerable: in float64, the exponent is not one of a few; its power would have
            larger errors.
    """
    exponent = single(_constant_argument(exponent))
    if x.is_single:
        return exponentials.power(x, exponent)
    square = x * x
    result = {
        0.0: lambda: x.constant(1),
        1.0: lambda: x,
        2.0: lambda: square,
        3.0: lambda: square * x,
        4.0: lambda: square * square,
        -1.0: lambda: 1 / x,
        0.5: lambda: _root(x),
        -0.5: lambda: 1 / _root(x),
    }.get(exponent)
    if result is None:
        raise NotLowerable
    return result()


def _power_narrow(x: ElementValue, exponent: Any) -> ElementValue | None:
    """Return a power that one operation gives, rounded once in float32 too."""
    results = {1.0: lambda: x, 2.0: lambda: x * x, -1.0: lambda: 1 / x}
    results |= {0.5: lambda: _root(x)}
    return results.get(single(_constant_argument(exponent)), lambda: None)()


_register_formula("pow", "Tensor.__pow__", formula=_power, narrow=_power_narrow)


# Functions that round once, or not at all.


def _register_exact(
    *names: str, formula: Callable[..., ElementValue], cost: int = 1
) -> None:
    _register_formula(*names, formula=formula, cost=cost, exact=True)


def _formula_of(name: str) -> Callable[..., Any]:
    result = TABLE[name].formula
    assert result is not None
    return result


def _round(x: ElementValue, decimals: Any) -> ElementValue:
    """Return the nearest integer, the even one where there are two."""
    if decimals != 0:
        raise NotLowerable
    return x.intrinsic("rint")


def _sign(x: ElementValue) -> ElementValue:
    return (x > 0).where(1.0, (x < 0).where(x.constant(-1), x))


def _leaky_relu(x: ElementValue, alpha: Any) -> ElementValue:
    return (x < 0).where(x * _constant_argument(alpha), x)


def _clip(x: ElementValue, low: Any, high: Any) -> ElementValue:
    return exponentials.clamp(x, _constant_argument(low), _constant_argument(high))


def _largest(x: ElementValue, y: ElementValue) -> ElementValue:
    """Return the larger one. NaN beats all numbers, the first NaN the second."""
    return (x.is_nan() | (x > y)).where(x, y)


def _smallest(x: ElementValue, y: ElementValue) -> ElementValue:
    return (x.is_nan() | (x < y)).where(x, y)


_register_exact("square", formula=lambda x: x * x)
_register_exact("reciprocal", formula=lambda x: 1 / x)
_register_exact("abs", formula=abs)
_register_exact("sqrt", formula=ElementValue.sqrt, cost=5)
_register_exact("floor", formula=lambda x: x.intrinsic("floor"))
_register_exact("ceil", formula=lambda x: x.intrinsic("ceil"))
_register_exact("trunc", formula=lambda x: x.intrinsic("trunc"))
_register_exact("round", formula=_round)
_register_exact("sign", formula=_sign)
_register_exact(
    "relu", formula=lambda x: (x > 0).where(x, 0.0)
)  # what is no number is 0
_register_exact("leaky_relu", formula=_leaky_relu)
_register_exact("clip", formula=_clip)
_register_exact("maximum", formula=_largest)
_register_exact("minimum", formula=_smallest)


# Gradients, in the terms of Paddle's kernels where these round little.


def _leaky_relu_grad(x: ElementValue, g: ElementValue, alpha: Any) -> ElementValue:
    slope = (x < 0).where(
        x.constant(_constant_argument(alpha)), (x >= 0).where(x.constant(1), 0)
    )
    return g * slope


def _elu_grad(
    x: ElementValue, out: ElementValue, g: ElementValue, alpha: Any
) -> ElementValue:
    alpha = single(_constant_argument(alpha))
    if alpha < 0:
        raise NotLowerable
    return (out > 0).where(g, g * (out + alpha))


def _selu_grad(
    out: ElementValue, g: ElementValue, scale: Any, alpha: Any
) -> ElementValue:
    scale, alpha = single(_constant_argument(scale)), single(_constant_argument(alpha))
    return g * (out <= 0).where(out + single(scale * alpha), scale)


def _clip_grad(x: ElementValue, g: ElementValue, low: Any, high: Any) -> ElementValue:
    is_inside = (x >= _constant_argument(low)) & (x <= _constant_argument(high))
    return is_inside.where(g, 0.0)


def _abs_grad(x: ElementValue, g: ElementValue) -> ElementValue:
    return ((x <= 0) & (x >= 0)).where(0.0, g * (x / abs(x)))


def _relu_grad(out: ElementValue, g: ElementValue) -> ElementValue:
    return g * (out > 0).where(out.constant(1), 0.0)


_register_exact("square_grad", formula=lambda x, g: g * 2 * x)
_register_exact("tanh_grad", formula=lambda out, g: g * (1 - out * out))
_register_exact("sigmoid_grad", formula=lambda out, g: g * out * (1 - out))
_register_exact("relu_grad", formula=_relu_grad)
_register_exact("abs_grad", formula=_abs_grad, cost=3)
# Those on tensors, of numbers.
_register_exact("sqrt_grad", formula=_formula_of("sqrt_grad"), cost=2)
_register_exact("rsqrt_grad", formula=_formula_of("rsqrt_grad"), cost=4)
_register_exact("leaky_relu_grad", formula=_leaky_relu_grad, cost=2)
_register_exact("elu_grad", formula=_elu_grad, cost=2)
_register_exact("selu_grad", formula=_selu_grad, cost=2)
_register_exact("clip_grad", formula=_clip_grad)


def _silu_grad(x: ElementValue, out: ElementValue, g: ElementValue) -> ElementValue:
    share = exponentials.sigmoid(x)
    return g * (share * (x * exponentials.sigmoid(-x) + 1))


def _silu_grad_narrow(
    x: ElementValue, out: ElementValue, g: ElementValue
) -> ElementValue:
    return g * exponentials.silu_slope_narrow(x)


def _softplus_grad(
    x: ElementValue, g: ElementValue, beta: Any, threshold: Any
) -> ElementValue:
    y = x * _constant_argument(beta)
    return (y > _constant_argument(threshold)).where(g, g * exponentials.sigmoid(y))


def _softplus_grad_narrow(
    x: ElementValue, g: ElementValue, beta: Any, threshold: Any
) -> ElementValue | None:
    """Return the same if beta is 1. The rounding error of another product grows."""
    if beta != 1:
        return None
    return (x > _constant_argument(threshold)).where(
        g, g * exponentials.sigmoid_narrow(x)
    )


def _gelu_grad(x: ElementValue, g: ElementValue, approximate: bool) -> ElementValue:
    return g * (gaussian.gelu_tanh_slope if approximate else gaussian.gelu_slope)(x)


def _gelu_grad_narrow(
    x: ElementValue, g: ElementValue, approximate: bool
) -> ElementValue | None:
    return None if approximate else g * gaussian.gelu_slope_narrow(x)


_register_formula("sin_grad", formula=lambda x, g: g * trigonometric.cos(x))
_register_formula("cos_grad", formula=lambda x, g: -(g * trigonometric.sin(x)))
_register_formula("silu_grad", formula=_silu_grad, narrow=_silu_grad_narrow)
_register_formula("softplus_grad", formula=_softplus_grad, narrow=_softplus_grad_narrow)
_register_formula("gelu_grad", formula=_gelu_grad, narrow=_gelu_grad_narrow)
