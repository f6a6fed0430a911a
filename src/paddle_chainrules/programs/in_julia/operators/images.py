"""Convolution and pooling, in Julia by NNlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...operators.calls import NoRule
from ...operators.table import TABLE
from .call import JuliaCall, Shape, TupleExpression, julia_of, tuple_text


def _padding(paddings: Sequence[int], algorithm: str, n: int) -> list[int]:
    """Return the padding before and after each Julia dimension."""
    if algorithm == "VALID":
        return [0] * (2 * n)
    if algorithm != "EXPLICIT":
        raise NoRule(f"padding {algorithm} in Julia; give numbers")
    pairs = (
        [(p, p) for p in paddings]
        if len(paddings) == n
        else [*zip(paddings[::2], paddings[1::2], strict=True)]
    )
    return [p for pair in reversed(pairs) for p in pair]


def _options_text(
    strides: Any, paddings: list[int], dilations: Any, groups: int = 1
) -> str:
    options = [
        f"stride = {tuple_text([*reversed(strides)])}" if {*strides} != {1} else "",
        f"pad = {tuple_text(paddings)}" if {*paddings} != {0} else "",
        f"dilation = {tuple_text([*reversed(dilations)])}"
        if {*dilations} != {1}
        else "",
        f"groups = {groups}" if groups != 1 else "",
    ]
    return ", ".join([*filter(None, options), "flipped = true"])


def _convolution(call: JuliaCall, names: Sequence[str]) -> str:
    named = dict(zip(names, call.args, strict=False))
    layout = named["data_format"]
    if not layout.startswith("NC"):
        raise NoRule("convolution with channels last in Julia; put channels first")
    n = call.ndim() - 2
    padding = _padding(named["paddings"], named["padding_algorithm"], n)
    groups = named["groups"]
    options = _options_text(named["strides"], padding, named["dilations"], groups)
    if "out_grad" not in named:
        return f"conv({call.args[0]}, {call.args[1]}; {options})"
    return TupleExpression(f"conv_grad({', '.join(call.args[:3])}; {options})")


def _register_convolution(name: str) -> None:
    @julia_of(name)
    def rule(call: JuliaCall) -> str:
        return _convolution(call, TABLE[name].arguments)


for name in ("conv2d", "depthwise_conv2d", "conv3d"):
    _register_convolution(name)
    _register_convolution(f"{name}_grad")


@julia_of("pool2d", "pool3d")
def _pool2d_julia(call: JuliaCall) -> str:
    x, *attrs = call.args
    name, window, is_partial = _pooling_window(call, call.out, attrs)
    if not is_partial:
        return f"{name}({x}, {window})"
    ones = f"fill!(similar({x}), 1)"
    return f"{name}({x}, {window}) ./ {name}({ones}, {window})"


@julia_of("pool2d_grad", "pool3d_grad")
def _pool2d_grad_julia(call: JuliaCall) -> str:
    x, out, cotangent, *attrs = call.args
    name, window, is_partial = _pooling_window(call, call.shapes[1], attrs)
    if is_partial:
        raise NoRule("gradients of means without their padding in Julia; use Zygote")
    return f"{name}_grad({cotangent}, {out}, {x}, {window})"


def _pooling_window(
    call: JuliaCall, out: Shape, attrs: Sequence[Any]
) -> tuple[str, str, bool]:
    """Return the function, the window with options, and whether means are partial.

    The last is true where means are only of pixels that are not padding.
    """
    kernel, strides, paddings, _, exclusive, layout, kind, *pooling_modes = attrs
    is_global, adaptive, algorithm = pooling_modes
    if not layout.startswith("NC"):
        raise NoRule("pooling with channels last in Julia; put channels first")
    n = call.ndim() - 2
    before, after = call.shapes[0][2:], out[2:]
    if is_global:
        kernel, strides, padding = before, before, [0] * (2 * n)
    elif adaptive:
        if any(b % a for b, a in zip(before, after, strict=True)):
            raise NoRule("adaptive pooling into uneven parts in Julia; use even ones")
        kernel = [b // a for b, a in zip(before, after, strict=True)]
        strides, padding = kernel, [0] * (2 * n)
    else:
        padding = _padding(paddings, algorithm, n)
    total_padding = [p + q for p, q in zip(padding[::2], padding[1::2], strict=True)]
    window_counts = [
        (b + p - k) // s + 1
        for b, p, k, s in zip(
            before, reversed(total_padding), kernel, strides, strict=True
        )
    ]
    if window_counts != [*after]:
        raise NoRule("pooling with ceil_mode in Julia; pad to whole windows")
    if kind == "avg" and padding[::2] != padding[1::2]:
        raise NoRule("means over unevenly padded windows in Julia; pad evenly")
    options = f"; stride = {tuple_text([*reversed(strides)])}"
    if any(padding):
        options += f", pad = {tuple_text(padding)}"
    name = {"max": "maxpool", "avg": "meanpool"}[kind]
    is_partial = any(padding) and kind == "avg" and exclusive
    return name, tuple_text([*reversed(kernel)]) + options, is_partial
