"""Tensors written part by part: rolled, repeated, on diagonals, by slices."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ...tracing.operations import Operation
from ..elements.scalars import NotLowerable
from ..extents import ONE, ZERO, SymInt
from ..ir_builder import TYPES, FunctionBuilder
from ..lowering import Address, Stage, StageBuilder, lowers
from ..views import BufferView, broadcast_strides, diagonal, reshaped, strided_view
from .indices import indices_of


def _ints(given: Any) -> list[int]:
    results = [given] if type(given) is int else given
    if type(results) is not list or any(type(n) is not int for n in results):
        raise NotLowerable
    return results


def _fixed(builder: StageBuilder, size: int) -> None:
    """Require a size that no value of the program has.

    Raises:
        NotLowerable: it would be mistaken for one that varies with the samples.
    """
    if builder.shape_env.extent(size).power:
        raise NotLowerable


@lowers("roll")
def _roll_loop(builder: StageBuilder, op: Operation) -> None:
    x, shifts, axes = op.args
    shifts, axes, sizes = _ints(shifts), _ints(axes), builder.shape_env
    if not x.shape or 0 in x.shape:
        raise NotLowerable
    to = builder.allocate(op.outputs[0])
    if axes:
        source = builder.view(x)
    else:
        if any(sizes.extent(n).power for n in x.shape):
            raise NotLowerable
        flat = (math.prod(x.shape),)
        source, to = (reshaped(v, flat, sizes) for v in (builder.dense_view(x), to))
        axes = [0]
    totals: dict[int, int] = {}
    for axis, shift in zip(axes, shifts, strict=True):
        axis %= len(source.shape)
        totals[axis] = totals.get(axis, 0) + shift
    if any(sizes.extent(source.shape[axis]).power for axis in totals):
        raise NotLowerable
    parts = []
    for axis, shift in totals.items():
        size = source.shape[axis]
        shift %= size
        # From which place, to which, and how many.
        parts.append(
            [(axis, 0, shift, size - shift), (axis, size - shift, 0, shift)]
            if shift
            else [(axis, 0, 0, size)]
        )
    for chosen in itertools.product(*parts):
        here, there = source, to
        for axis, start, end, count in chosen:
            _fixed(builder, count)
            here, there = (
                _part(here, axis, start, count),
                _part(there, axis, end, count),
            )
        builder.copy(here, there)


def _part(view: BufferView, axis: int, start: int, count: int) -> BufferView:
    """Return this many places along a dimension."""
    shape = (*view.shape[:axis], count, *view.shape[axis + 1 :])
    return BufferView(
        view.buffer, view.offset_at(axis, SymInt(start)), shape, view.strides
    )


@lowers("repeat_interleave")
def _repeat_interleave_loop(builder: StageBuilder, op: Operation) -> None:
    x, count, axis, *_ = op.args
    if type(count) is not int or type(axis) is not int or not x.shape:
        raise NotLowerable
    _fixed(builder, count)
    axis %= len(x.shape)
    source, to = builder.view(x), builder.allocate(op.outputs[0])
    shape = (*x.shape[: axis + 1], count, *x.shape[axis + 1 :])
    strides = (*source.strides[: axis + 1], ZERO, *source.strides[axis + 1 :])
    repeated = BufferView(source.buffer, source.offset, shape, strides)
    builder.copy(
        repeated, BufferView(to.buffer, (), shape, builder.shape_env.strides(shape))
    )


@lowers("meshgrid", "broadcast_tensors")
def _meshgrid_loop(builder: StageBuilder, op: Operation) -> None:
    (parts,) = op.args
    for k, (part, out) in enumerate(zip(parts, op.outputs, strict=True)):
        view, to = builder.view(part), builder.allocate(out)
        if op.operator.name == "meshgrid":
            rank = len(parts)
            shape = tuple(math.prod(part.shape) if i == k else 1 for i in range(rank))
            view = reshaped(view, shape, builder.shape_env)
        builder.copy(view, to)


@lowers("diag")
def _diag_loop(builder: StageBuilder, op: Operation) -> None:
    x, offset, padding = op.args
    (out,) = op.outputs
    if padding or len(x.shape) not in (1, 2):
        raise NotLowerable
    if len(x.shape) == 1:
        whole = builder.zeros(out)
        builder.copy_into(
            x, diagonal(whole, (offset, 0, 1), x.shape, builder.shape_env)
        )
    else:
        taken = diagonal(builder.view(x), (offset, 0, 1), out.shape, builder.shape_env)
        builder.materialize(taken, out)


@lowers("diag_embed")
def _diag_embed_loop(builder: StageBuilder, op: Operation) -> None:
    x, *where = op.args
    whole = builder.zeros(op.outputs[0])
    builder.copy_into(x, diagonal(whole, where, x.shape, builder.shape_env))


@lowers("diagonal_grad")
def _diagonal_grad_loop(builder: StageBuilder, op: Operation) -> None:
    _, g, *where = op.args
    whole = builder.zeros(op.outputs[0])
    builder.copy_into(g, diagonal(whole, where, g.shape, builder.shape_env))


@lowers("strided_slice_grad")
def _strided_slice_grad_loop(builder: StageBuilder, op: Operation) -> None:
    _, g, axes, starts, _, strides = op.args
    whole = builder.zeros(op.outputs[0])
    builder.copy_into(
        g, _sliced(builder, whole, axes, starts, strides)._replace(shape=g.shape)
    )


def _sliced(
    builder: StageBuilder, view: BufferView, axes: Any, starts: Any, strides: Any
) -> BufferView:
    """Return a view that begins at these places with these strides.

    The caller must give its shape.
    """
    for axis, start, step in zip(axes, starts, strides, strict=True):
        view = strided_view(
            view, axis % len(view.shape), start, step, builder.shape_env
        )
    return view


@lowers("set_value_with_tensor")
def _set_value_with_tensor_loop(builder: StageBuilder, op: Operation) -> None:
    x, part, starts, ends, strides, axes, gone, new = op.args
    (out,) = op.outputs
    if new or part.dtype != x.dtype:
        raise NotLowerable
    shape = [*x.shape]
    for axis, start, end, step in zip(axes, starts, ends, strides, strict=True):
        if any(type(n) is not int for n in (start, end, step)) or not step:
            raise NotLowerable
        if builder.shape_env.extent(shape[axis]).power:
            raise NotLowerable
        shape[axis] = len(range(*slice(start, end, step).indices(shape[axis])))
        _fixed(builder, shape[axis])
    if 0 in shape:
        raise NotLowerable
    whole = builder.duplicate(x, out)
    place = _sliced(builder, whole, axes, starts, strides)
    kept = [k for k in range(len(shape)) if k not in gone]
    place = BufferView(
        *(place.buffer, place.offset, tuple(shape[k] for k in kept)),
        tuple(place.strides[k] for k in kept),
    )
    broadcast_strides(builder.view(part), place.shape)  # or it has more dimensions
    builder.copy_into(part, place)


@lowers("one_hot")
def _one_hot_loop(builder: StageBuilder, op: Operation) -> None:
    index, classes = op.args
    (out,) = op.outputs
    if type(classes) is not int:
        raise NotLowerable
    indices = indices_of(builder, index, [classes], wraps=False)
    to = builder.zeros(out)
    kind, row = TYPES[out.dtype], builder.shape_env.extent(classes)

    def write(ir: FunctionBuilder, address: Address) -> None:
        ir.line(f"; {op!r}  {op.where}")
        first, rows = address(indices.view), address(to)
        indices.check(ir, first)
        with ir.loop(ir.size_value(indices.number)) as i:
            place = indices.place(ir, first, i)
            here = ir.indexed_address(
                ir.indexed_address(rows, kind, row, i), kind, ONE, place
            )
            ir.line(f"store {kind} 1.0, ptr {here}")

    reads = (indices.view.buffer,)
    builder.stages.append(Stage(reads, (to.buffer,), {}, write, may_bail_out=True))
