"""Operators on more axes than Paddle's kernels take, by axes side by side as one.

Nested batches have that many: each ``vmap`` adds one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import paddle
from paddle import Tensor

from ..elementwise import comparison, elementary  # noqa: F401 (they define some)
from ..entry import decompose_of
from ..shared import ops
from .brackets import BasicIndex, expand_ellipsis, parse_basic_index
from .shapes import MAX_EXPAND_AXES, MAX_SLICE_AXES, repeats, tile_by_axis


def _as_three_axes(x: Tensor, axis: int) -> Tensor:
    """Return a tensor with the axes before one as one axis, and those after it."""
    shape = x.shape
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    return ops.reshape(x, [before, shape[axis], after])


def _with_size(rows: Tensor, shape: list[int], axis: int) -> Tensor:
    """Return a tensor of three axes in a shape, but for the size along one axis."""
    return ops.reshape(rows, [*shape[:axis], rows.shape[1], *shape[axis + 1 :]])


@decompose_of("expand")
def _expand_many(_: bool, x: Tensor, shape: Any) -> Tensor | None:
    """Expand along one axis after another."""
    if isinstance(shape, Tensor) or len(shape) <= MAX_EXPAND_AXES:
        return None
    sizes = [1] * (len(shape) - x.ndim) + x.shape
    pairs = [(1 if m in (n, -1) else m, n) for n, m in zip(sizes, shape, strict=True)]
    return tile_by_axis(x, pairs)


@decompose_of("tile")
def _tile_many(_: bool, x: Tensor, times: Any) -> Tensor | None:
    """Tile along one axis after another."""
    if isinstance(times, Tensor) or max(len(times), x.ndim) <= MAX_EXPAND_AXES:
        return None
    return tile_by_axis(x, repeats(x, times))


@decompose_of("transpose")
def _transpose_many(_: bool, x: Tensor, perm: list[int]) -> Tensor | None:
    """Transpose, with axes that stay side by side as one."""
    if x.ndim <= MAX_SLICE_AXES or len(perm) != x.ndim:
        return None
    shape = x.shape
    perm = [axis % x.ndim for axis in perm]
    groups: list[list[int]] = []  # of old axes, in the new order
    for axis in (axis for axis in perm if shape[axis] != 1):
        if groups and groups[-1][-1] + 1 == axis:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    order = sorted(groups)
    x = ops.reshape(x, [math.prod(shape[axis] for axis in group) for group in order])
    if len(groups) <= MAX_SLICE_AXES:
        x = ops.transpose(x, [order.index(group) for group in groups])
    else:
        for group in reversed(groups):  # each to the front, the last one first
            x = _to_front(x, order.index(group))
            order = [group, *(other for other in order if other != group)]
    return ops.reshape(x, [shape[axis] for axis in perm])


def _to_front(x: Tensor, axis: int) -> Tensor:
    shape = x.shape
    rows = ops.transpose(_as_three_axes(x, axis), [1, 0, 2])
    return ops.reshape(rows, [shape[axis], *shape[:axis], *shape[axis + 1 :]])


@decompose_of("pad")
def _pad_many(_: bool, x: Tensor, paddings: Any, value: Any) -> Tensor | None:
    """Pad along one axis after another."""
    if x.ndim <= MAX_SLICE_AXES or isinstance(paddings, Tensor):
        return None
    for axis in range(x.ndim):
        both = [*paddings[2 * axis : 2 * axis + 2]]
        if both != [0, 0]:
            rows = ops.pad(_as_three_axes(x, axis), [0, 0, *both, 0, 0], value)
            x = _with_size(rows, x.shape, axis)
    return x


@decompose_of("strided_slice")
def _strided_slice_many(
    _: bool, x: Tensor, axes: Any, starts: Any, ends: Any, steps: Any
) -> Tensor | None:
    """Take slices along one axis after another."""
    if x.ndim <= MAX_SLICE_AXES:
        return None
    for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
        rows = _as_three_axes(x, axis % x.ndim)
        rows = ops.strided_slice(rows, [1], *([bound] for bound in bounds))
        x = _with_size(rows, x.shape, axis % x.ndim)
    return x


@decompose_of("strided_slice_grad")
def _strided_slice_grad_many(
    _: bool, x: Tensor, g: Tensor, axes: Any, starts: Any, ends: Any, steps: Any
) -> Tensor | None:
    """Put the gradient into zeros along one axis after another."""
    if x.ndim <= MAX_SLICE_AXES:
        return None
    for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
        g_rows, shape = _as_three_axes(g, axis % x.ndim), g.shape
        size = x.shape[axis]
        zeros = paddle.zeros([g_rows.shape[0], size, g_rows.shape[2]], g.dtype)
        attrs = ([bound] for bound in bounds)
        rows = ops.strided_slice_grad(zeros, g_rows, [1], *attrs)
        g = _with_size(rows, shape, axis % x.ndim)
    return g


@decompose_of("slice")
def _slice_many(
    _: bool, x: Tensor, axes: Any, starts: Any, ends: Any, flags: Any, dropped: Any
) -> Tensor | None:
    """Take slices along one axis after another."""
    if x.ndim <= MAX_SLICE_AXES:
        return None
    y = ops.strided_slice(x, axes, starts, ends, [1] * len(axes))
    return ops.reshape(y, [n for axis, n in enumerate(y.shape) if axis not in dropped])


@decompose_of("slice_grad")
def _slice_grad_many(
    _: bool,
    x: Tensor,
    g: Tensor,
    axes: Any,
    starts: Any,
    ends: Any,
    flags: Any,
    dropped: Any,
) -> Tensor | None:
    if x.ndim <= MAX_SLICE_AXES:
        return None
    for axis in sorted(dropped):
        g = ops.unsqueeze(g, [axis])
    return ops.strided_slice_grad(x, g, axes, starts, ends, [1] * len(axes))


@decompose_of("Tensor._getitem_dygraph")
def _getitem_many(_: bool, x: Tensor, index: Any) -> Tensor | None:
    """Take ints and slices along one axis after another, then what tensors select."""
    if x.ndim <= MAX_SLICE_AXES:
        return None
    entries = expand_ellipsis(index, x.ndim)
    parsed = parse_basic_index(index, x.shape)
    if parsed is not None:
        y = _sliced(x, parsed)
        sizes = [1] * len(entries)
        for k, size in zip(_axes_of(entries), parsed.kept_shape, strict=False):
            sizes[k] = size
        dropped = [k for k, entry in enumerate(entries) if type(entry) is int]
        left = y.shape[len(_axes_of(entries)) :]
        kept = [size for k, size in enumerate(sizes) if k not in dropped]
        return ops.reshape(y, [*kept, *left])
    if any(_is_mask(entry) or type(entry) in (int, type(None)) for entry in entries):
        return None
    slices = [entry if type(entry) is slice else slice(None) for entry in entries]
    parsed = parse_basic_index(tuple(slices), x.shape)
    if parsed is None or not parsed.axes:
        return None
    rest = (slice(None) if type(entry) is slice else entry for entry in entries)
    return _sliced(x, parsed).__getitem__(tuple(rest))


def _sliced(x: Tensor, index: BasicIndex) -> Tensor:
    return ops.strided_slice(x, index.axes, index.starts, index.ends, index.steps)


def _axes_of(entries: Sequence[Any]) -> list[int]:
    """Return the positions of entries that stand for an axis."""
    return [k for k, entry in enumerate(entries) if entry is not None]


def _is_mask(entry: Any) -> bool:
    return isinstance(entry, Tensor) and entry.dtype == paddle.bool


@decompose_of("argmax")
def _argmax_many(
    _: bool, x: Tensor, axis: Any, keepdim: bool, dtype: Any
) -> Tensor | None:
    return _one_per_row(ops.argmax, x, axis, keepdim, dtype)


@decompose_of("argmin")
def _argmin_many(
    _: bool, x: Tensor, axis: Any, keepdim: bool, dtype: Any
) -> Tensor | None:
    return _one_per_row(ops.argmin, x, axis, keepdim, dtype)


def _one_per_row(
    search: Any, x: Tensor, axis: Any, keepdim: bool, dtype: Any
) -> Tensor | None:
    """Search along the middle one of three axes."""
    if x.ndim <= MAX_SLICE_AXES or not isinstance(axis, int):
        return None
    axis %= x.ndim
    found = search(_as_three_axes(x, axis), 1, False, dtype)
    kept = [1] if keepdim else []
    return ops.reshape(found, [*x.shape[:axis], *kept, *x.shape[axis + 1 :]])


@decompose_of("lerp")
def _lerp_many(_: bool, x: Tensor, y: Tensor, weight: Tensor) -> Tensor | None:
    """Interpolate between vectors of all elements."""
    if max(x.ndim, y.ndim, weight.ndim) <= MAX_SLICE_AXES:
        return None
    shape = paddle.broadcast_shape(x.shape, y.shape)
    shape = paddle.broadcast_shape(shape, weight.shape)
    x, y, weight = (ops.reshape(ops.expand(t, shape), [-1]) for t in (x, y, weight))
    return ops.reshape(ops.lerp(x, y, weight), shape)
