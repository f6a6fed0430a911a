"""Tensors written slice by slice: rolled, repeated, on diagonals."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ...tracing.operations import Operation
from ..elements.scalars import NotLowerable
from ..extents import ONE, ZERO, SymInt
from ..ir_builder import TYPES, FunctionBuilder
from ..lowering import Address, Stage, StageBuilder, lowering_rule
from ..views import BufferView, broadcast_strides, diagonal, reshaped, strided_view
from .indices import indices_of


def _int_list(arg: Any) -> list[int]:
    results = [arg] if type(arg) is int else arg
    if type(results) is not list or any(type(n) is not int for n in results):
        raise NotLowerable
    return results


def _require_fixed_size(builder: StageBuilder, size: int) -> None:
    """Require a size that no value of the program has.

    Raises:
        NotLowerable: it would be mistaken for one that varies with the samples.
    """
    if builder.shape_env.extent(size).power:
        raise NotLowerable


@lowering_rule("roll")
def _lower_roll(builder: StageBuilder, op: Operation) -> None:
    x, shifts, axes = op.args
    shifts, axes, shape_env = _int_list(shifts), _int_list(axes), builder.shape_env
    if not x.shape or 0 in x.shape:
        raise NotLowerable
    target = builder.allocate(op.outputs[0])
    if axes:
        source = builder.view(x)
    else:
        if any(shape_env.extent(n).power for n in x.shape):
            raise NotLowerable
        flat = (math.prod(x.shape),)
        source, target = (
            reshaped(v, flat, shape_env) for v in (builder.dense_view(x), target)
        )
        axes = [0]
    totals: dict[int, int] = {}
    for axis, shift in zip(axes, shifts, strict=True):
        axis %= len(source.shape)
        totals[axis] = totals.get(axis, 0) + shift
    if any(shape_env.extent(source.shape[axis]).power for axis in totals):
        raise NotLowerable
    segments = []
    for axis, shift in totals.items():
        size = source.shape[axis]
        shift %= size
        # The axis, the start in the source, in the target, and the count.
        segments.append(
            [(axis, 0, shift, size - shift), (axis, size - shift, 0, shift)]
            if shift
            else [(axis, 0, 0, size)]
        )
    for combination in itertools.product(*segments):
        source_slice, target_slice = source, target
        for axis, start, target_start, count in combination:
            _require_fixed_size(builder, count)
            source_slice, target_slice = (
                _axis_slice(source_slice, axis, start, count),
                _axis_slice(target_slice, axis, target_start, count),
            )
        builder.copy(source_slice, target_slice)


def _axis_slice(view: BufferView, axis: int, start: int, count: int) -> BufferView:
    shape = (*view.shape[:axis], count, *view.shape[axis + 1 :])
    return BufferView(
        view.buffer, view.offset_at(axis, SymInt(start)), shape, view.strides
    )


@lowering_rule("repeat_interleave")
def _lower_repeat_interleave(builder: StageBuilder, op: Operation) -> None:
    x, count, axis, *_ = op.args
    if type(count) is not int or type(axis) is not int or not x.shape:
        raise NotLowerable
    _require_fixed_size(builder, count)
    axis %= len(x.shape)
    source, target = builder.view(x), builder.allocate(op.outputs[0])
    shape = (*x.shape[: axis + 1], count, *x.shape[axis + 1 :])
    strides = (*source.strides[: axis + 1], ZERO, *source.strides[axis + 1 :])
    repeated = BufferView(source.buffer, source.offset, shape, strides)
    builder.copy(
        repeated, BufferView(target.buffer, (), shape, builder.shape_env.strides(shape))
    )


@lowering_rule("meshgrid", "broadcast_tensors")
def _lower_meshgrid(builder: StageBuilder, op: Operation) -> None:
    (operands,) = op.args
    for k, (operand, out) in enumerate(zip(operands, op.outputs, strict=True)):
        view, target = builder.view(operand), builder.allocate(out)
        if op.operator.name == "meshgrid":
            rank = len(operands)
            shape = tuple(
                math.prod(operand.shape) if i == k else 1 for i in range(rank)
            )
            view = reshaped(view, shape, builder.shape_env)
        builder.copy(view, target)


@lowering_rule("diag")
def _lower_diag(builder: StageBuilder, op: Operation) -> None:
    x, offset, padding = op.args
    (out,) = op.outputs
    if padding or len(x.shape) not in (1, 2):
        raise NotLowerable
    if len(x.shape) == 1:
        matrix = builder.zeros(out)
        builder.copy_into(
            x, diagonal(matrix, (offset, 0, 1), x.shape, builder.shape_env)
        )
    else:
        extracted = diagonal(
            builder.view(x), (offset, 0, 1), out.shape, builder.shape_env
        )
        builder.materialize(extracted, out)


@lowering_rule("diag_embed")
def _lower_diag_embed(builder: StageBuilder, op: Operation) -> None:
    x, *offset_and_axes = op.args
    matrix = builder.zeros(op.outputs[0])
    builder.copy_into(x, diagonal(matrix, offset_and_axes, x.shape, builder.shape_env))


@lowering_rule("diagonal_grad")
def _lower_diagonal_grad(builder: StageBuilder, op: Operation) -> None:
    _, g, *offset_and_axes = op.args
    grad = builder.zeros(op.outputs[0])
    builder.copy_into(g, diagonal(grad, offset_and_axes, g.shape, builder.shape_env))


@lowering_rule("strided_slice_grad")
def _lower_strided_slice_grad(builder: StageBuilder, op: Operation) -> None:
    _, g, axes, starts, _, strides = op.args
    grad = builder.zeros(op.outputs[0])
    builder.copy_into(
        g, _strided_slice(builder, grad, axes, starts, strides)._replace(shape=g.shape)
    )


def _strided_slice(
    builder: StageBuilder, view: BufferView, axes: Any, starts: Any, strides: Any
) -> BufferView:
    """Return a slice with these starts and strides.

    The caller must give its shape.
    """
    for axis, start, step in zip(axes, starts, strides, strict=True):
        view = strided_view(
            view, axis % len(view.shape), start, step, builder.shape_env
        )
    return view


@lowering_rule("set_value_with_tensor")
def _lower_set_value_with_tensor(builder: StageBuilder, op: Operation) -> None:
    x, values, starts, ends, strides, axes, removed_axes, new_axes = op.args
    (out,) = op.outputs
    if new_axes or values.dtype != x.dtype:
        raise NotLowerable
    shape = [*x.shape]
    for axis, start, end, step in zip(axes, starts, ends, strides, strict=True):
        if any(type(n) is not int for n in (start, end, step)) or not step:
            raise NotLowerable
        if builder.shape_env.extent(shape[axis]).power:
            raise NotLowerable
        shape[axis] = len(range(*slice(start, end, step).indices(shape[axis])))
        _require_fixed_size(builder, shape[axis])
    if 0 in shape:
        raise NotLowerable
    result = builder.duplicate(x, out)
    target = _strided_slice(builder, result, axes, starts, strides)
    kept_axes = [k for k in range(len(shape)) if k not in removed_axes]
    target = BufferView(
        *(target.buffer, target.offset, tuple(shape[k] for k in kept_axes)),
        tuple(target.strides[k] for k in kept_axes),
    )
    broadcast_strides(builder.view(values), target.shape)  # or it has more dimensions
    builder.copy_into(values, target)


@lowering_rule("one_hot")
def _lower_one_hot(builder: StageBuilder, op: Operation) -> None:
    index, classes = op.args
    (out,) = op.outputs
    if type(classes) is not int:
        raise NotLowerable
    indices = indices_of(builder, index, [classes], wraps=False)
    target = builder.zeros(out)
    kind, row_size = TYPES[out.dtype], builder.shape_env.extent(classes)

    def emit(ir: FunctionBuilder, address: Address) -> None:
        ir.line(f"; {op!r}  {op.where}")
        index_base, rows = address(indices.view), address(target)
        indices.emit_bounds_check(ir, index_base)
        with ir.loop(ir.size_value(indices.tuple_count)) as i:
            class_index = indices.flat_index(ir, index_base, i)
            element_address = ir.indexed_address(
                ir.indexed_address(rows, kind, row_size, i), kind, ONE, class_index
            )
            ir.line(f"store {kind} 1.0, ptr {element_address}")

    reads = (indices.view.buffer,)
    builder.stages.append(Stage(reads, (target.buffer,), {}, emit, may_bail_out=True))
