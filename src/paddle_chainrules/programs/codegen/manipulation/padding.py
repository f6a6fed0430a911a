"""Values within others: padding by a number, and its backward pass."""

from __future__ import annotations

import struct
from typing import Any

from ....paddle_side.dtypes import single
from ...tracing.operations import Operation, Value
from ..elements.scalars import FLOATS, NotLowerable, Shape
from ..extents import SymInt
from ..ir_builder import FunctionBuilder
from ..lowering import Address, Stage, StageBuilder, lowers
from ..nest import emit_fill
from ..views import BufferView


@lowers("pad")
def _pad_loop(builder: StageBuilder, op: Operation) -> None:
    x, paddings, value = op.args
    pairs = [*zip(paddings[::2], paddings[1::2], strict=True)]
    _pad(builder, op, x, pairs, value)


@lowers("pad3d")
def _pad3d_loop(builder: StageBuilder, op: Operation) -> None:
    x, paddings, mode, value, layout = op.args
    _pad(builder, op, x, _in_space(paddings, mode, layout), value)


@lowers("pad3d_grad")
def _pad3d_grad_loop(builder: StageBuilder, op: Operation) -> None:
    _, g, paddings, mode, _, layout = op.args
    around = _in_space(paddings, mode, layout)
    (out,) = op.outputs
    if any(n < 0 for pair in around for n in pair):
        raise NotLowerable
    builder.materialize(_inside(builder.view(g), around, out.shape), out)


def _in_space(paddings: Any, mode: str, layout: str) -> list[tuple[int, int]]:
    """Return the padding of each dimension. Paddle gives the last dimension first."""
    if mode != "constant" or layout != "NCDHW" or type(paddings) is not list:
        raise NotLowerable
    pairs = [*zip(paddings[::2], paddings[1::2], strict=True)]
    return [(0, 0), (0, 0), *pairs[::-1]]


def _pad(
    builder: StageBuilder,
    op: Operation,
    x: Value,
    around: list[tuple[int, int]],
    value: Any,
) -> None:
    """Put a value within numbers that are all the same."""
    is_list = all(type(n) is int and n >= 0 for pair in around for n in pair)
    if not is_list or type(value) not in (int, float):
        raise NotLowerable
    varies = (builder.shape_env.extent(n).power for n in x.shape)
    if any(p and any(pair) for p, pair in zip(varies, around, strict=True)):
        raise NotLowerable  # which adds to the number of samples
    (out,) = op.outputs
    whole = _filled(builder, out, value) if value else builder.zeros(out)
    builder.copy_into(x, _inside(whole, around, x.shape))


def _filled(builder: StageBuilder, value: Value, number: float) -> BufferView:
    """Make a value that is one number everywhere."""
    if value.dtype not in FLOATS:
        raise NotLowerable
    view, sizes = builder.allocate(value), builder.shape_env
    rounded = single(number) if value.dtype == "float32" else float(number)
    constant = f"0x{struct.pack('>d', rounded).hex().upper()}"

    def write(ir: FunctionBuilder, address: Address) -> None:
        emit_fill(ir, view, address(view), sizes, constant)

    builder.stages.append(Stage((), (view.buffer,), {}, write))
    return view


def _inside(
    whole: BufferView, around: list[tuple[int, int]], shape: Shape
) -> BufferView:
    starts = [
        whole.strides[k].times(SymInt(before))
        for k, (before, _) in enumerate(around)
        if before
    ]
    return BufferView(whole.buffer, (*whole.offset, *starts), shape, whole.strides)
