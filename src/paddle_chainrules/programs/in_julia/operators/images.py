"""Convolution and pooling, in Julia by NNlib."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...operators.calls import NoRule
from ...operators.table import TABLE
from .call import JuliaCall, Shape, TupleExpression, julia_of, row


def _padding(how: Sequence[int], algorithm: str, n: int) -> list[int]:
    """Return the padding before and after each Julia dimension."""
    if algorithm == "VALID":
        return [0] * (2 * n)
    if algorithm != "EXPLICIT":
        raise NoRule(f"padding {algorithm} in Julia; give numbers")
    pairs = (
        [(p, p) for p in how]
        if len(how) == n
        else [*zip(how[::2], how[1::2], strict=True)]
    )
    return [p for pair in reversed(pairs) for p in pair]


def _how(strides: Any, paddings: list[int], dilations: Any, groups: int = 1) -> str:
    every = [
        f"stride = {row([*reversed(strides)])}" if {*strides} != {1} else "",
        f"pad = {row(paddings)}" if {*paddings} != {0} else "",
        f"dilation = {row([*reversed(dilations)])}" if {*dilations} != {1} else "",
        f"groups = {groups}" if groups != 1 else "",
    ]
    return ", ".join([*filter(None, every), "flipped = true"])


def _convolution(call: JuliaCall, names: Sequence[str]) -> str:
    given = dict(zip(names, call.args, strict=False))
    layout = given["data_format"]
    if not layout.startswith("NC"):
        raise NoRule("convolution with channels last in Julia; put channels first")
    n = call.ndim() - 2
    around = _padding(given["paddings"], given["padding_algorithm"], n)
    groups = given["groups"]
    attrs = _how(given["strides"], around, given["dilations"], groups)
    if "out_grad" not in given:
        return f"conv({call.args[0]}, {call.args[1]}; {attrs})"
    return TupleExpression(f"conv_grad({', '.join(call.args[:3])}; {attrs})")


def _of(name: str) -> None:
    @julia_of(name)
    def rule(call: JuliaCall) -> str:
        return _convolution(call, TABLE[name].arguments)


for name in ("conv2d", "depthwise_conv2d", "conv3d"):
    _of(name)
    _of(f"{name}_grad")


@julia_of("pool2d", "pool3d")
def _pool2d_julia(call: JuliaCall) -> str:
    x, *attrs = call.args
    name, window, is_partial = _window(call, call.out, attrs)
    if not is_partial:
        return f"{name}({x}, {window})"
    ones = f"fill!(similar({x}), 1)"
    return f"{name}({x}, {window}) ./ {name}({ones}, {window})"


@julia_of("pool2d_grad", "pool3d_grad")
def _pool2d_grad_julia(call: JuliaCall) -> str:
    x, out, cotangent, *attrs = call.args
    name, window, is_partial = _window(call, call.shapes[1], attrs)
    if is_partial:
        raise NoRule("gradients of means without their padding in Julia; use Zygote")
    return f"{name}_grad({cotangent}, {out}, {x}, {window})"


def _window(call: JuliaCall, out: Shape, how: Sequence[Any]) -> tuple[str, str, bool]:
    """Return the function, the window with options, and how means count padding.

    The last is true where means are only of places that are not padding.
    """
    kernel, strides, paddings, _, exclusive, layout, kind, *rest = how
    everywhere, adaptive, algorithm = rest
    if not layout.startswith("NC"):
        raise NoRule("pooling with channels last in Julia; put channels first")
    n = call.ndim() - 2
    before, after = call.shapes[0][2:], out[2:]
    if everywhere:
        kernel, strides, around = before, before, [0] * (2 * n)
    elif adaptive:
        if any(b % a for b, a in zip(before, after, strict=True)):
            raise NoRule("adaptive pooling into uneven parts in Julia; use even ones")
        kernel = [b // a for b, a in zip(before, after, strict=True)]
        strides, around = kernel, [0] * (2 * n)
    else:
        around = _padding(paddings, algorithm, n)
    pads = [p + q for p, q in zip(around[::2], around[1::2], strict=True)]
    whole = [
        (b + p - k) // s + 1
        for b, p, k, s in zip(before, reversed(pads), kernel, strides, strict=True)
    ]
    if whole != [*after]:
        raise NoRule("pooling with ceil_mode in Julia; pad to whole windows")
    if kind == "avg" and around[::2] != around[1::2]:
        raise NoRule("means over unevenly padded windows in Julia; pad evenly")
    options = f"; stride = {row([*reversed(strides)])}"
    if any(around):
        options += f", pad = {row(around)}"
    name = {"max": "maxpool", "avg": "meanpool"}[kind]
    is_partial = any(around) and kind == "avg" and exclusive
    return name, row([*reversed(kernel)]) + options, is_partial
