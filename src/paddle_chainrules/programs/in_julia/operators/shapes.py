"""Operators that arrange elements, in Julia."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ...operators.calls import NoRule
from ...operators.manipulation.brackets import parse_basic_index
from .call import (
    Infix,
    JuliaCall,
    Shape,
    TupleExpression,
    dim,
    julia_of,
    reshaped_text,
    size_text,
    tuple_text,
)


@julia_of("reshape", "unsqueeze", "squeeze", "flatten")
def _reshape_julia(call: JuliaCall) -> str:
    return reshaped_text(call.args[0], call)


@julia_of("linspace")
def _linspace_julia(call: JuliaCall) -> str:
    start, stop = call.args[:2]
    if {*call.dtypes[:2]} != {call.dtype} or not call.dtype.startswith("float"):
        raise NoRule("numbers in a row of another type than floating ends; cast these")
    (count,) = call.out
    span = f"({stop} .- {start}) ./ {max(count - 1, 1)}"
    return Infix(f"{start} .+ {span} .* (0:{count - 1})")


@julia_of("copy", "assign")
def _copy_julia(call: JuliaCall) -> str:
    return f"copy({call.args[0]})"


@julia_of("transpose")
def _transpose_julia(call: JuliaCall) -> str:
    x, perm = call.args
    n = len(perm)
    order = [dim(perm[n - j], n) for j in range(1, n + 1)]
    if order == [2, 1] and "complex" not in call.dtype:
        return f"transpose({x})"
    return f"permutedims({x}, {tuple_text(order)})"


@julia_of("concat")
def _concat_julia(call: JuliaCall) -> str:
    operands, axis = call.args
    dimension = dim(int(axis), len(call.out))
    if dimension <= 2 and len(call.out) >= dimension:
        return f"{('vcat', 'hcat')[dimension - 1]}({', '.join(operands)})"
    return f"cat({', '.join(operands)}; dims = Val({dimension}))"


@julia_of("stack")
def _stack_julia(call: JuliaCall) -> str:
    operands, axis = call.args
    dimension = dim(int(axis), len(call.out))
    shape = list(reversed(call.out))
    shape[dimension - 1] = 1
    reshaped = [f"reshape({operand}, {tuple_text(shape)})" for operand in operands]
    return f"cat({', '.join(reshaped)}; dims = Val({dimension}))"


def _views_along_axis(call: JuliaCall, axis: int, spans: Sequence[str]) -> str:
    """Write views of the first argument, by spans along an axis."""
    n = call.ndim()
    views = []
    for span in spans:
        index = [":"] * n
        index[dim(axis, n) - 1] = span
        views.append(f"view({call.args[0]}, {', '.join(index)})")
    return TupleExpression(tuple_text(views))


@julia_of("split", "split_with_num")
def _split_julia(call: JuliaCall) -> str:
    axis = int(call.args[2])
    stops = [*itertools.accumulate(out[axis] for out in call.outs)]
    starts = [0, *stops[:-1]]
    pairs = zip(starts, stops, strict=True)
    return _views_along_axis(
        call, axis, [f"{start + 1}:{stop}" for start, stop in pairs]
    )


@julia_of("unbind", "unstack")
def _unbind_julia(call: JuliaCall) -> str:
    numbers = [str(i + 1) for i in range(len(call.outs))]
    return _views_along_axis(call, int(call.args[1]), numbers)


@julia_of("expand", "expand_as", "tile")
def _expand_julia(call: JuliaCall) -> str:
    x, shape, out = call.args[0], call.shapes[0], call.out
    full = (1,) * (len(out) - len(shape)) + tuple(shape)
    times = [n // m for n, m in zip(reversed(out), reversed(full), strict=True)]
    if len(full) != len(shape):
        x = f"reshape({x}, {size_text(full)})"
    return f"repeat({x}, {', '.join(map(str, times))})"


@julia_of("Tensor._getitem_dygraph")
def _getitem_julia(call: JuliaCall) -> str:
    x, index = call.args
    shape = [*call.shapes[0]]
    parsed = parse_basic_index(index, shape)
    if parsed is None:
        raise NoRule("tensors and lists as indices in Julia; use paddle.gather")
    spans = [":"] * len(shape)
    ranges = zip(parsed.axes, parsed.starts, parsed.steps, strict=True)
    for axis, start, step in ranges:
        last = start + (parsed.kept_shape[axis] - 1) * step
        stride = "" if step == 1 else f"{step}:"
        is_dropped = axis in parsed.dropped_axes
        spans[axis] = (
            f"{start + 1}" if is_dropped else f"{start + 1}:{stride}{last + 1}"
        )
    text = f"view({x}, {', '.join(reversed(spans))})" if parsed.axes else str(x)
    return reshaped_text(text, call) if parsed.has_new else text


def _slice_indices(shape: Shape, attrs: Sequence[Any]) -> str:
    """Write Julia's indices for the arguments of ``slice``."""
    axes, starts, ends, _, dropped = attrs
    spans = [":"] * len(shape)
    for axis, *bounds in zip(axes, starts, ends, strict=True):
        n = shape[axis]
        first, last = (min(max(k + n * (k < 0), 0), n) for k in bounds)
        spans[axis] = (
            f"{first + 1}" if axis in (dropped or ()) else f"{first + 1}:{last}"
        )
    return ", ".join(reversed(spans))


@julia_of("slice")
def _slice_julia(call: JuliaCall) -> str:
    x, *attrs = call.args
    return f"view({x}, {_slice_indices(call.shapes[0], attrs)})"


@julia_of("slice_grad")
def _slice_grad_julia(call: JuliaCall) -> str:
    _, cotangent, *attrs = call.args
    shape = call.shapes[0]
    return f"placed({cotangent}, {size_text(shape)}, ({_slice_indices(shape, attrs)},))"


@julia_of("flip")
def _flip_julia(call: JuliaCall) -> str:
    x, axes = call.args
    n = call.ndim()
    dimensions = sorted(dim(int(a), n) for a in axes)
    return f"reverse({x}; dims = {tuple_text(dimensions)})"


@julia_of("embedding")
def _embedding_julia(call: JuliaCall) -> str:
    x, weight, padding = call.args[:3]
    rows = call.shapes[1][0]
    none = padding is None or padding < 0
    return f"embedding({weight}, {x}{'' if none else f', {padding % rows}'})"


@julia_of("gather", "index_select")
def _gather_julia(call: JuliaCall) -> str:
    x, index, axis = call.args
    if isinstance(axis, str) or len(call.shapes[1]) > 1:
        raise NoRule("rows by a tensor of more dimensions in Julia; use one dimension")
    n = call.ndim()
    spans = [":"] * n
    dimension, length = dim(int(axis), n), call.shapes[0][int(axis)]
    indices = f"vec({index})" if call.shapes[1] else f"only({index})"
    spans[dimension - 1] = f"mod.({indices}, {length}) .+ 1"
    return f"{x}[{', '.join(spans)}]"


@julia_of("masked_select")
def _masked_select_julia(call: JuliaCall) -> str:
    x, mask, _ = call.args
    if call.shapes[0] != call.shapes[1]:
        raise NoRule("a mask of another shape in Julia; expand it to the tensor's")
    return f"{x}[{mask}]"


@julia_of("gather_grad")
def _gather_grad_julia(call: JuliaCall) -> str:
    _, index, cotangent, axis = call.args
    n = call.ndim()
    dimension, length = dim(int(axis), n), call.shapes[0][int(axis)]
    indices = f"mod.(vec({index}), {length}) .+ 1"
    return f"added_at({cotangent}, {indices}, Val({dimension}), {length})"


@julia_of("as_complex")
def _as_complex_julia(call: JuliaCall) -> str:
    x, spans = call.args[0], ", :" * (call.ndim() - 1)
    return f"complex.(view({x}, 1{spans}), view({x}, 2{spans}))"


@julia_of("as_real")
def _as_real_julia(call: JuliaCall) -> str:
    x = call.args[0]
    shape = tuple_text([1, *reversed(call.shapes[0])])
    components = (
        f"reshape(map({component}, {x}), {shape})" for component in ("real", "imag")
    )
    return f"vcat({', '.join(components)})"


@julia_of("pad")
def _pad_julia(call: JuliaCall) -> str:
    x, paddings, value = call.args
    n = call.ndim()
    if len(paddings) != 2 * n:
        raise NoRule("padding of the last axes alone in Julia; name all axes")
    spans = [
        f"{paddings[2 * k] + 1}:{paddings[2 * k] + call.shapes[0][k]}" for k in range(n)
    ]
    region = tuple_text([*reversed(spans)])
    fill = f", {call.number(value)}" if value else ""
    return f"placed({x}, {size_text(call.out)}, {region}{fill})"
