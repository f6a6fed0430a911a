"""Values within others: padding by a number, and its backward pass."""

from __future__ import annotations

import struct
from typing import Any

from ....paddle_side.dtypes import FLOATS, single
from ...tracing.operations import Operation, Value
from ..elements.scalars import NotLowerable, Shape
from ..extents import SymInt
from ..ir_builder import FunctionBuilder
from ..lowering import Address, Stage, StageBuilder, lowering_rule
from ..nest import emit_fill
from ..views import BufferView


@lowering_rule("pad")
def _lower_pad(builder: StageBuilder, op: Operation) -> None:
    x, paddings, value = op.args
    pairs = [*zip(paddings[::2], paddings[1::2], strict=True)]
    _add_pad(builder, op, x, pairs, value)


@lowering_rule("pad3d")
def _lower_pad3d(builder: StageBuilder, op: Operation) -> None:
    x, paddings, mode, value, layout = op.args
    _add_pad(builder, op, x, _axis_paddings(paddings, mode, layout), value)


@lowering_rule("pad3d_grad")
def _lower_pad3d_grad(builder: StageBuilder, op: Operation) -> None:
    _, g, paddings, mode, _, layout = op.args
    axis_paddings = _axis_paddings(paddings, mode, layout)
    (out,) = op.outputs
    if any(n < 0 for pair in axis_paddings for n in pair):
        raise NotLowerable
    builder.materialize(_interior(builder.view(g), axis_paddings, out.shape), out)


def _axis_paddings(paddings: Any, mode: str, layout: str) -> list[tuple[int, int]]:
    """Return the padding of each dimension. Paddle gives the last dimension first."""
    if mode != "constant" or layout != "NCDHW" or type(paddings) is not list:
        raise NotLowerable
    pairs = [*zip(paddings[::2], paddings[1::2], strict=True)]
    return [(0, 0), (0, 0), *pairs[::-1]]


def _add_pad(
    builder: StageBuilder,
    op: Operation,
    x: Value,
    axis_paddings: list[tuple[int, int]],
    value: Any,
) -> None:
    """Add stages that pad a value with a constant."""
    is_valid = all(type(n) is int and n >= 0 for pair in axis_paddings for n in pair)
    if not is_valid or type(value) not in (int, float):
        raise NotLowerable
    varies = (builder.shape_env.extent(n).power for n in x.shape)
    if any(p and any(pair) for p, pair in zip(varies, axis_paddings, strict=True)):
        raise NotLowerable  # which adds to the number of samples
    (out,) = op.outputs
    padded = _add_constant(builder, out, value) if value else builder.zeros(out)
    builder.copy_into(x, _interior(padded, axis_paddings, x.shape))


def _add_constant(builder: StageBuilder, value: Value, number: float) -> BufferView:
    """Add a stage that fills a value with a constant."""
    if value.dtype not in FLOATS:
        raise NotLowerable
    view, shape_env = builder.allocate(value), builder.shape_env
    rounded = single(number) if value.dtype == "float32" else float(number)
    constant = f"0x{struct.pack('>d', rounded).hex().upper()}"

    def emit(ir: FunctionBuilder, address: Address) -> None:
        emit_fill(ir, view, address(view), shape_env, constant)

    builder.stages.append(Stage((), (view.buffer,), {}, emit))
    return view


def _interior(
    padded: BufferView, axis_paddings: list[tuple[int, int]], shape: Shape
) -> BufferView:
    starts = [
        padded.strides[k].times(SymInt(pad_before))
        for k, (pad_before, _) in enumerate(axis_paddings)
        if pad_before
    ]
    return BufferView(padded.buffer, (*padded.offset, *starts), shape, padded.strides)
