"""Normalization, in Julia."""

from __future__ import annotations

from ...paddle_side.dtypes import single
from ..operators.calls import NoRule
from .call import JuliaCall, Several, julia_of


@julia_of("layer_norm")
def _(call: JuliaCall) -> str:
    x, scale, bias, epsilon, axis = call.args
    inner = len(call.out) - axis
    shift = call.number(single(epsilon))
    return f"layer_norm({x}, {_or(scale)}, {_or(bias)}, {shift}, Val({inner}))"


def _or(text: str | None) -> str:
    return "nothing" if text is None else text


def _channel(call: JuliaCall, layout: str) -> int:
    """The dimension of the channels."""
    n = call.ndim()
    return n - 1 if layout.startswith("NC") or n == 2 else 1


@julia_of("batch_norm")
def _(call: JuliaCall) -> str:
    x, mean, variance, scale, bias, *how = call.args
    is_test, momentum, epsilon, layout, given, _ = how
    shift = call.number(single(epsilon))
    place = _channel(call, layout)
    if is_test or given:
        text = f"batch_norm({x}, {mean}, {variance}, {_or(scale)}, {_or(bias)}"
        return Several(f"({text}, {shift}, {place}), {mean}, {variance})")
    keep = call.number(single(momentum))
    text = f"batch_norm_trained({x}, {mean}, {variance}, {_or(scale)}, {_or(bias)}"
    return Several(f"{text}, {shift}, {keep}, {place})")


@julia_of("group_norm")
def _(call: JuliaCall) -> str:
    x, scale, bias, epsilon, groups, layout = call.args
    if not layout.startswith("NC"):
        raise NoRule("group_norm with channels last in Julia; put channels first")
    shift = call.number(single(epsilon))
    return f"group_norm({x}, {_or(scale)}, {_or(bias)}, {shift}, {groups})"


@julia_of("instance_norm")
def _(call: JuliaCall) -> str:
    x, scale, bias, epsilon = call.args
    shift = call.number(single(epsilon))
    return f"group_norm({x}, {_or(scale)}, {_or(bias)}, {shift}, {call.out[1]})"
