"""Operators of scalars, elementwise, in Julia."""

from __future__ import annotations

import math

from ....paddle_side.dtypes import single
from ...operators.calls import NoRule
from .call import FLOATS, TYPES, ElementwiseExpression, Infix, JuliaCall, elementwise

INFIX = {
    **dict.fromkeys(("Tensor.__add__", "Tensor.__radd__", "add"), "+"),
    **dict.fromkeys(("Tensor.__sub__", "subtract"), "-"),
    **dict.fromkeys(("Tensor.__mul__", "Tensor.__rmul__", "multiply"), "*"),
    **dict.fromkeys(("Tensor.__truediv__", "divide"), "/"),
    **dict.fromkeys(("Tensor.__lt__", "less_than"), "<"),
    **dict.fromkeys(("Tensor.__le__", "less_equal"), "<="),
    **dict.fromkeys(("Tensor.__gt__", "greater_than"), ">"),
    **dict.fromkeys(("Tensor.__ge__", "greater_equal"), ">="),
    **dict.fromkeys(("Tensor.__eq__", "equal"), "=="),
    **dict.fromkeys(("Tensor.__ne__", "not_equal"), "!="),
}
REFLECTED = {"Tensor.__rsub__": "-", "Tensor.__rtruediv__": "/", "Tensor.__rpow__": "^"}


def _infix(name: str, sign: str, is_reflected: bool = False) -> None:
    @elementwise(name)
    def rule(call: JuliaCall) -> str:
        dtypes = {d for d in call.dtypes if d is not None}
        dtype = dtypes.pop() if len(dtypes) == 1 else call.dtype
        if not all(d in TYPES or "complex" in d for d in (dtype, call.dtype)):
            raise NoRule(f"numbers of type {dtype} in Julia; use float32 or float64")
        x, y = (
            arg if shape is not None else call.number(arg, _real(dtype))
            for arg, shape in zip(call.args, call.shapes, strict=True)
        )
        if is_reflected:
            x, y = (f"({y})" if sign == "^" else y), x  # a sign binds less
        return Infix(f"{x} .{sign} {y}")


def _real(dtype: str) -> str:
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


for name, sign in INFIX.items():
    _infix(name, sign)
for name, sign in REFLECTED.items():
    _infix(name, sign, is_reflected=True)


@elementwise("Tensor.__pow__", "pow")
def _power_julia(call: JuliaCall) -> str:
    x, power = call.args
    if call.shapes[1] == ():
        return Infix(f"{x} .^ as_float.(Float32, {power})")
    if call.shapes[1] is not None:
        return Infix(f"{x} .^ {power}")
    power = single(power) if call.dtype in FLOATS else power
    if power == 0.5:
        return ElementwiseExpression(f"sqrt.({x})")
    return Infix(f"{x} .^ {call.number(power)}")


@elementwise("share")
def _share_julia(call: JuliaCall) -> str:
    x, sizes = call.args
    count = call.number(math.prod(sizes), _real(call.dtype))
    return Infix(f"{x} ./ {count}")


@elementwise("scale")
def _scale_julia(call: JuliaCall) -> str:
    x, factor, bias, bias_after_scale = call.args
    if call.shapes[1] is not None:
        factor = f"only({factor})"
    else:
        factor = None if factor == 1 else call.number(factor)
    shift = call.number(bias) if bias else None
    if factor is None:
        return Infix(f"{x} .+ {shift or 0}")
    if shift is None:
        return Infix(f"{x} .* {factor}")
    if bias_after_scale:
        return Infix(f"{x} .* {factor} .+ {shift}")
    return Infix(f"({x} .+ {shift}) .* {factor}")


def _register_function(name: str, julia: str, *singles: int) -> None:
    """Register a function of the same arguments; some of them are float32 in Paddle."""

    @elementwise(name)
    def rule(call: JuliaCall) -> str:
        args = [
            call.number(single(arg))
            if i in singles and call.shapes[i] is None
            else call.operand(i)
            for i, arg in enumerate(call.args)
        ]
        return ElementwiseExpression(f"{julia}.({', '.join(args)})")


SAME_NAME = [
    *("tanh", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh"),
    *("acosh", "atanh", "exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "abs"),
    *("sign", "floor", "ceil", "sigmoid", "relu", "relu6", "silu", "logsigmoid", "erf"),
    *("square", "tanh_grad", "sigmoid_grad", "relu_grad", "sin_grad", "cos_grad"),
    *("square_grad", "abs_grad"),
]
"""Functions that have the same name in Julia as in Paddle."""

for name in SAME_NAME:
    _register_function(name, name)
for name, julia in {
    "trunc": "trunc",
    "rsqrt": "rsqrt",
    "reciprocal": "inv",
    "tanh_shrink": "tanh_shrink",
    "swish": "silu",
    "maximum": "max",
    "minimum": "min",
    "atan2": "atan",
    "where": "ifelse",
    "logical_not": "(!)",
    "conj": "conj",
    "real": "real",
    "imag": "imag",
    "complex": "complex",
    "isnan": "isnan",
    "isfinite": "isfinite",
    "isinf": "isinf",
}.items():
    _register_function(name, julia)
for name, julia, *float32_args in (
    ("leaky_relu", "leaky_relu"),
    ("elu", "elu", 1),
    ("celu", "celu", 1),
    ("selu", "selu", 1, 2),
    ("softplus", "softplus"),
    ("hardsigmoid", "hardsigmoid", 1, 2),
    ("hardtanh", "clamp", 1, 2),
    ("softshrink", "softshrink", 1),
    ("thresholded_relu", "thresholded_relu", 1, 2),
    ("clip", "clamp"),
    ("hardshrink", "hardshrink", 1),
    ("leaky_relu_grad", "leaky_relu_grad"),
):
    _register_function(name, julia, *float32_args)


@elementwise("gelu")
def _gelu_julia(call: JuliaCall) -> str:
    x, approximate = call.args
    return ElementwiseExpression(f"{'gelu_tanh' if approximate else 'gelu'}.({x})")


@elementwise("logical_and", "Tensor.__and__", "bitwise_and")
def _logical_and_julia(call: JuliaCall) -> str:
    return Infix(f"{call.args[0]} .& {call.args[1]}")


@elementwise("logical_or", "Tensor.__or__", "bitwise_or")
def _logical_or_julia(call: JuliaCall) -> str:
    return Infix(f"{call.args[0]} .| {call.args[1]}")


@elementwise("cast")
def _cast_julia(call: JuliaCall) -> str:
    x, dtype = call.args[0], call.dtype
    before = call.dtypes[0]
    if dtype not in TYPES or before not in TYPES:
        raise NoRule(f"conversion of {before} to {dtype} in Julia; use real numbers")
    if dtype == "bool":
        return Infix(f"{x} .!= 0")
    if dtype in FLOATS:
        kind = "T" if dtype == call.kind else TYPES[dtype]
        if before in FLOATS:  # dual numbers stay
            return ElementwiseExpression(f"as_float.({kind}, {x})")
        return ElementwiseExpression(f"{kind}.({x})")
    if before in FLOATS:
        return ElementwiseExpression(f"trunc.({TYPES[dtype]}, {x})")
    return ElementwiseExpression(f"{TYPES[dtype]}.({x})")
