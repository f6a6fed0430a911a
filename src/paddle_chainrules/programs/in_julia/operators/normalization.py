"""Normalization, in Julia.

Paddle's operators also give means and the like for the backward pass. In Julia they are
``nothing``, and computed again.
"""

from __future__ import annotations

from typing import Any

from ....paddle_side.dtypes import single
from ...operators.calls import NoRule
from .call import JuliaCall, TupleExpression, julia_of


def _or_nothing(text: str | None) -> str:
    return "nothing" if text is None else text


def _epsilon_text(call: JuliaCall, epsilon: Any) -> str:
    return call.number(single(epsilon))


def _with_nothing(call: JuliaCall, text: str) -> str:
    """Write the shown result, and ``nothing`` for the others."""
    if not any(call.used[1:]):
        return text
    others = ", nothing" * (len(call.outs) - 1)
    return TupleExpression(f"({text}{others})")


@julia_of("layer_norm")
def _layer_norm_julia(call: JuliaCall) -> str:
    x, scale, bias, epsilon, axis = call.args
    inner, shift = call.ndim() - axis, _epsilon_text(call, epsilon)
    text = (
        f"layer_norm({x}, {_or_nothing(scale)}, {_or_nothing(bias)}, "
        f"{shift}, Val({inner}))"
    )
    return _with_nothing(call, text)


@julia_of("layer_norm_grad")
def _layer_norm_grad_julia(call: JuliaCall) -> str:
    x, scale, bias, _, _, cotangent, epsilon, axis = call.args
    inner, shift = call.ndim() - axis, _epsilon_text(call, epsilon)
    arguments = (
        f"{_or_nothing(scale)}, {_or_nothing(bias)}, {cotangent}, {shift}, Val({inner})"
    )
    return TupleExpression(f"layer_norm_grad({x}, {arguments})")


def _channel_dimension(call: JuliaCall, layout: str) -> int:
    n = call.ndim()
    return n - 1 if layout.startswith("NC") or n == 2 else 1


@julia_of("batch_norm")
def _batch_norm_julia(call: JuliaCall) -> str:
    x, mean, variance, scale, bias, *attrs = call.args
    is_test, momentum, epsilon, layout, use_global, _ = attrs
    shift, channel_dim = _epsilon_text(call, epsilon), _channel_dimension(call, layout)
    text = (
        f"({x}, {mean}, {variance}, {_or_nothing(scale)}, {_or_nothing(bias)}, {shift}"
    )
    if is_test or use_global:
        others = ", nothing" * (len(call.outs) - 3)
        return TupleExpression(
            f"(batch_norm{text}, {channel_dim}), {mean}, {variance}{others})"
        )
    keep = call.number(single(momentum))
    others = ", nothing" * (len(call.outs) - 3)
    return TupleExpression(
        f"(batch_norm_trained{text}, {keep}, {channel_dim})...{others})"
    )


@julia_of("batch_norm_grad")
def _batch_norm_grad_julia(call: JuliaCall) -> str:
    x, scale, bias, mean, variance, _, _, _, cotangent, *attrs = call.args
    _, epsilon, layout, is_test, use_global, _ = attrs
    shift, channel_dim = _epsilon_text(call, epsilon), _channel_dimension(call, layout)
    statistics = f"{mean}, {variance}" if is_test or use_global else "nothing, nothing"
    arguments = (
        f"{statistics}, {_or_nothing(scale)}, {_or_nothing(bias)}, "
        f"{cotangent}, {shift}, {channel_dim}"
    )
    return TupleExpression(f"batch_norm_grad({x}, {arguments})")


def _check_layout(layout: str) -> None:
    if not layout.startswith("NC"):
        raise NoRule("group_norm with channels last in Julia; put channels first")


@julia_of("group_norm")
def _group_norm_julia(call: JuliaCall) -> str:
    x, scale, bias, epsilon, groups, layout = call.args
    _check_layout(layout)
    arguments = (
        f"{_or_nothing(scale)}, {_or_nothing(bias)}, {call.number(epsilon)}, {groups}"
    )
    return _with_nothing(call, f"group_norm({x}, {arguments})")


@julia_of("group_norm_grad")
def _group_norm_grad_julia(call: JuliaCall) -> str:
    x, scale, bias, _, _, _, cotangent, epsilon, groups, layout = call.args
    _check_layout(layout)
    arguments = (
        f"{_or_nothing(scale)}, {_or_nothing(bias)}, "
        f"{cotangent}, {call.number(epsilon)}, {groups}"
    )
    return TupleExpression(f"group_norm_grad({x}, {arguments})")


@julia_of("instance_norm")
def _instance_norm_julia(call: JuliaCall) -> str:
    x, scale, bias, epsilon = call.args
    groups = call.shapes[0][1]
    arguments = (
        f"{_or_nothing(scale)}, {_or_nothing(bias)}, "
        f"{_epsilon_text(call, epsilon)}, {groups}"
    )
    return _with_nothing(call, f"group_norm({x}, {arguments})")


@julia_of("instance_norm_grad")
def _instance_norm_grad_julia(call: JuliaCall) -> str:
    x, scale, bias, _, _, cotangent, epsilon = call.args
    groups = call.shapes[0][1]
    arguments = (
        f"{_or_nothing(scale)}, {_or_nothing(bias)}, "
        f"{cotangent}, {_epsilon_text(call, epsilon)}, {groups}"
    )
    return TupleExpression(f"group_norm_grad({x}, {arguments})")
