"""Sums and similar reductions, in Julia."""

from __future__ import annotations

from typing import Any

from ...operators.calls import NoRule
from .call import JuliaCall, dim, dims, julia_of, reshaped_text


def _reduction_text(text: str, over: str, call: JuliaCall, axes: Any) -> str:
    """Write a reduction over dimensions, or of the array where all are reduced."""
    if call.out == () and not axes and text.startswith("sum"):
        return f"fill({text})"
    result = f"{text[:-1]}; dims = {over})"
    n, m = call.ndim(), len(call.out)
    return result if n == m else reshaped_text(result, call)


for name, julia in {
    "sum": "sum",
    "mean": "mean",
    "max": "maximum",
    "min": "minimum",
    "amax": "maximum",
    "amin": "minimum",
    "any": "any",
    "all": "all",
}.items():

    def _rule(call: JuliaCall, julia: str = julia) -> str:
        x, axes = call.args[:2]
        return _reduction_text(f"{julia}({x})", dims(axes, call.ndim()), call, axes)

    julia_of(name)(_rule)


@julia_of("prod")
def _prod_julia(call: JuliaCall) -> str:
    x, axes, _, reduce_all = call.args
    axes = [] if reduce_all else axes
    return _reduction_text(f"prod({x})", dims(axes, call.ndim()), call, axes)


@julia_of("logsumexp")
def _logsumexp_julia(call: JuliaCall) -> str:
    x, axes = call.args[:2]
    return reshaped_text(f"logsumexp({x}, {dims(axes, call.ndim())})", call)


for name in ("softmax", "log_softmax"):

    def _of_axis(call: JuliaCall, name: str = name) -> str:
        x, axis = call.args
        return f"{name}({x}, {dim(axis, call.ndim())})"

    julia_of(name)(_of_axis)


@julia_of("cumsum")
def _cumsum_julia(call: JuliaCall) -> str:
    x, axis, flatten, exclusive, reverse = call.args
    if flatten or exclusive or reverse:
        raise NoRule("sums of other kinds than along an axis in Julia; name the axis")
    return f"cumsum({x}; dims = {dim(int(axis), call.ndim())})"
