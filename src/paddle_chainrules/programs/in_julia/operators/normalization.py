"""Normalization, in Julia.

Paddle's operators also give means and the like for the backward pass. In Julia they are
``nothing``, and computed again.
"""

from __future__ import annotations

from typing import Any

from ....paddle_side.dtypes import single
from ...operators.calls import NoRule
from .call import JuliaCall, TupleExpression, julia_of


def _or(text: str | None) -> str:
    return "nothing" if text is None else text


def _shift(call: JuliaCall, epsilon: Any) -> str:
    return call.number(single(epsilon))


def _with_rest(call: JuliaCall, text: str) -> str:
    """Write the shown result, and ``nothing`` for the others."""
    if not any(call.used[1:]):
        return text
    rest = ", nothing" * (len(call.outs) - 1)
    return TupleExpression(f"({text}{rest})")


@julia_of("layer_norm")
def _layer_norm_julia(call: JuliaCall) -> str:
    x, scale, bias, epsilon, axis = call.args
    inner, shift = call.ndim() - axis, _shift(call, epsilon)
    text = f"layer_norm({x}, {_or(scale)}, {_or(bias)}, {shift}, Val({inner}))"
    return _with_rest(call, text)


@julia_of("layer_norm_grad")
def _layer_norm_grad_julia(call: JuliaCall) -> str:
    x, scale, bias, _, _, cotangent, epsilon, axis = call.args
    inner, shift = call.ndim() - axis, _shift(call, epsilon)
    rest = f"{_or(scale)}, {_or(bias)}, {cotangent}, {shift}, Val({inner})"
    return TupleExpression(f"layer_norm_grad({x}, {rest})")


def _channel(call: JuliaCall, layout: str) -> int:
    """Return the dimension of the channels."""
    n = call.ndim()
    return n - 1 if layout.startswith("NC") or n == 2 else 1


@julia_of("batch_norm")
def _batch_norm_julia(call: JuliaCall) -> str:
    x, mean, variance, scale, bias, *attrs = call.args
    is_test, momentum, epsilon, layout, given, _ = attrs
    shift, place = _shift(call, epsilon), _channel(call, layout)
    text = f"({x}, {mean}, {variance}, {_or(scale)}, {_or(bias)}, {shift}"
    if is_test or given:
        rest = ", nothing" * (len(call.outs) - 3)
        return TupleExpression(
            f"(batch_norm{text}, {place}), {mean}, {variance}{rest})"
        )
    keep = call.number(single(momentum))
    rest = ", nothing" * (len(call.outs) - 3)
    return TupleExpression(f"(batch_norm_trained{text}, {keep}, {place})...{rest})")


@julia_of("batch_norm_grad")
def _batch_norm_grad_julia(call: JuliaCall) -> str:
    x, scale, bias, mean, variance, _, _, _, cotangent, *attrs = call.args
    _, epsilon, layout, is_test, given, _ = attrs
    shift, place = _shift(call, epsilon), _channel(call, layout)
    held = f"{mean}, {variance}" if is_test or given else "nothing, nothing"
    rest = f"{held}, {_or(scale)}, {_or(bias)}, {cotangent}, {shift}, {place}"
    return TupleExpression(f"batch_norm_grad({x}, {rest})")


def _check_layout(layout: str) -> None:
    if not layout.startswith("NC"):
        raise NoRule("group_norm with channels last in Julia; put channels first")


@julia_of("group_norm")
def _group_norm_julia(call: JuliaCall) -> str:
    x, scale, bias, epsilon, groups, layout = call.args
    _check_layout(layout)
    rest = f"{_or(scale)}, {_or(bias)}, {call.number(epsilon)}, {groups}"
    return _with_rest(call, f"group_norm({x}, {rest})")


@julia_of("group_norm_grad")
def _group_norm_grad_julia(call: JuliaCall) -> str:
    x, scale, bias, _, _, _, cotangent, epsilon, groups, layout = call.args
    _check_layout(layout)
    rest = f"{_or(scale)}, {_or(bias)}, {cotangent}, {call.number(epsilon)}, {groups}"
    return TupleExpression(f"group_norm_grad({x}, {rest})")


@julia_of("instance_norm")
def _instance_norm_julia(call: JuliaCall) -> str:
    x, scale, bias, epsilon = call.args
    groups = call.shapes[0][1]
    rest = f"{_or(scale)}, {_or(bias)}, {_shift(call, epsilon)}, {groups}"
    return _with_rest(call, f"group_norm({x}, {rest})")


@julia_of("instance_norm_grad")
def _instance_norm_grad_julia(call: JuliaCall) -> str:
    x, scale, bias, _, _, cotangent, epsilon = call.args
    groups = call.shapes[0][1]
    rest = f"{_or(scale)}, {_or(bias)}, {cotangent}, {_shift(call, epsilon)}, {groups}"
    return TupleExpression(f"group_norm_grad({x}, {rest})")
