"""Tensors written part by part: rolled, repeated, on diagonals, by slices."""

from __future__ import annotations

import itertools
import math
from typing import Any

from ...tracing.operations import Operation
from ..elements.scalars import NotLowerable
from ..extents import ONE, ZERO, SymInt
from ..ir_builder import TYPES, FunctionBuilder
from ..lowering import Address, Stage, StageBuilder, written_as
from ..views import BufferView, along, diagonal, reshaped, stepped
from .indices import indices_of


def _ints(given: Any) -> list[int]:
    results = [given] if type(given) is int else given
    if type(results) is not list or any(type(n) is not int for n in results):
        raise NotLowerable
    return results


def _fixed(steps: StageBuilder, size: int) -> None:
    """Require a size that no value of the program has.

    Raises:
        NotLowerable: it would be mistaken for one that varies with the samples.
    """
    if steps.sizes.of(size).power:
        raise NotLowerable


@written_as("roll")
def _roll_loop(steps: StageBuilder, op: Operation) -> None:
    x, shifts, axes = op.args
    shifts, axes, sizes = _ints(shifts), _ints(axes), steps.sizes
    if not x.shape or 0 in x.shape:
        raise NotLowerable
    to = steps.new(op.outputs[0])
    if axes:
        source = steps.view(x)
    else:
        if any(sizes.of(n).power for n in x.shape):
            raise NotLowerable
        flat = (math.prod(x.shape),)
        source, to = (reshaped(v, flat, sizes) for v in (steps.dense(x), to))
        axes = [0]
    totals: dict[int, int] = {}
    for axis, shift in zip(axes, shifts, strict=True):
        axis %= len(source.shape)
        totals[axis] = totals.get(axis, 0) + shift
    if any(sizes.of(source.shape[axis]).power for axis in totals):
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
            _fixed(steps, count)
            here, there = (
                _part(here, axis, start, count),
                _part(there, axis, end, count),
            )
        steps.copy(here, there)


def _part(view: BufferView, axis: int, start: int, count: int) -> BufferView:
    """Return this many places along a dimension."""
    shape = (*view.shape[:axis], count, *view.shape[axis + 1 :])
    return BufferView(view.memory, view.moved(axis, SymInt(start)), shape, view.strides)


@written_as("repeat_interleave")
def _repeat_interleave_loop(steps: StageBuilder, op: Operation) -> None:
    x, count, axis, *_ = op.args
    if type(count) is not int or type(axis) is not int or not x.shape:
        raise NotLowerable
    _fixed(steps, count)
    axis %= len(x.shape)
    source, to = steps.view(x), steps.new(op.outputs[0])
    shape = (*x.shape[: axis + 1], count, *x.shape[axis + 1 :])
    strides = (*source.strides[: axis + 1], ZERO, *source.strides[axis + 1 :])
    repeated = BufferView(source.memory, source.offset, shape, strides)
    steps.copy(repeated, BufferView(to.memory, (), shape, steps.sizes.strides(shape)))


@written_as("meshgrid", "broadcast_tensors")
def _meshgrid_loop(steps: StageBuilder, op: Operation) -> None:
    (parts,) = op.args
    for k, (part, out) in enumerate(zip(parts, op.outputs, strict=True)):
        view, to = steps.view(part), steps.new(out)
        if op.operator.name == "meshgrid":
            rank = len(parts)
            shape = tuple(math.prod(part.shape) if i == k else 1 for i in range(rank))
            view = reshaped(view, shape, steps.sizes)
        steps.copy(view, to)


@written_as("diag")
def _diag_loop(steps: StageBuilder, op: Operation) -> None:
    x, offset, padding = op.args
    (out,) = op.outputs
    if padding or len(x.shape) not in (1, 2):
        raise NotLowerable
    if len(x.shape) == 1:
        whole = steps.zeros(out)
        steps.copy_into(x, diagonal(whole, (offset, 0, 1), x.shape, steps.sizes))
    else:
        taken = diagonal(steps.view(x), (offset, 0, 1), out.shape, steps.sizes)
        steps.copied(taken, out)


@written_as("diag_embed")
def _diag_embed_loop(steps: StageBuilder, op: Operation) -> None:
    x, *where = op.args
    whole = steps.zeros(op.outputs[0])
    steps.copy_into(x, diagonal(whole, where, x.shape, steps.sizes))


@written_as("diagonal_grad")
def _diagonal_grad_loop(steps: StageBuilder, op: Operation) -> None:
    _, g, *where = op.args
    whole = steps.zeros(op.outputs[0])
    steps.copy_into(g, diagonal(whole, where, g.shape, steps.sizes))


@written_as("strided_slice_grad")
def _strided_slice_grad_loop(steps: StageBuilder, op: Operation) -> None:
    _, g, axes, starts, _, strides = op.args
    whole = steps.zeros(op.outputs[0])
    steps.copy_into(
        g, _sliced(steps, whole, axes, starts, strides)._replace(shape=g.shape)
    )


def _sliced(
    steps: StageBuilder, view: BufferView, axes: Any, starts: Any, strides: Any
) -> BufferView:
    """Return a view that begins at these places with these strides.

    The caller must give its shape.
    """
    for axis, start, step in zip(axes, starts, strides, strict=True):
        view = stepped(view, axis % len(view.shape), start, step, steps.sizes)
    return view


@written_as("set_value_with_tensor")
def _set_value_with_tensor_loop(steps: StageBuilder, op: Operation) -> None:
    x, part, starts, ends, strides, axes, gone, new = op.args
    (out,) = op.outputs
    if new or part.dtype != x.dtype:
        raise NotLowerable
    shape = [*x.shape]
    for axis, start, end, step in zip(axes, starts, ends, strides, strict=True):
        if any(type(n) is not int for n in (start, end, step)) or not step:
            raise NotLowerable
        if steps.sizes.of(shape[axis]).power:
            raise NotLowerable
        shape[axis] = len(range(*slice(start, end, step).indices(shape[axis])))
        _fixed(steps, shape[axis])
    if 0 in shape:
        raise NotLowerable
    whole = steps.duplicate(x, out)
    place = _sliced(steps, whole, axes, starts, strides)
    kept = [k for k in range(len(shape)) if k not in gone]
    place = BufferView(
        *(place.memory, place.offset, tuple(shape[k] for k in kept)),
        tuple(place.strides[k] for k in kept),
    )
    along(steps.view(part), place.shape)  # or it has more dimensions
    steps.copy_into(part, place)


@written_as("one_hot")
def _one_hot_loop(steps: StageBuilder, op: Operation) -> None:
    index, classes = op.args
    (out,) = op.outputs
    if type(classes) is not int:
        raise NotLowerable
    indices = indices_of(steps, index, [classes], wraps=False)
    to = steps.zeros(out)
    kind, row = TYPES[out.dtype], steps.sizes.of(classes)

    def write(text: FunctionBuilder, address: Address) -> None:
        text.line(f"; {op!r}  {op.where}")
        first, rows = address(indices.view), address(to)
        indices.check(text, first)
        with text.loop(text.number(indices.number)) as i:
            place = indices.place(text, first, i)
            here = text.along(text.along(rows, kind, row, i), kind, ONE, place)
            text.line(f"store {kind} 1.0, ptr {here}")

    reads = (indices.view.memory,)
    steps.found.append(Stage(reads, (to.memory,), {}, write, may_bail_out=True))
