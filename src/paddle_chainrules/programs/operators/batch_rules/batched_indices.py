"""Batch rules of operators that take what is at indices."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import Tensor

from ..calls import BatchCall, NoRule
from ..each_element import full
from ..entry import batch_of
from ..shared import aligned, ops


def _rows(call: BatchCall, x: int, index: int) -> tuple[Tensor, Tensor]:
    """The first axes of all samples in one, and indices into that, in a row."""
    tensor, places = full(call, x), full(call, index)
    size, count = tensor.shape[:2]
    starts = paddle.arange(0, size * count, count, dtype=places.dtype)
    starts = ops.reshape(starts, [size, *[1] * (places.ndim - 1)])
    flat = ops.reshape(tensor, [size * count, *tensor.shape[2:]])
    return flat, ops.reshape(places + starts, [-1])


@batch_of("masked_select")
def _masked_select_batch(call: BatchCall) -> list[Any]:
    x, mask, _ = call.args
    if 1 in call.batched:
        raise NoRule("a mask of each sample, of which each may take another number")
    found = ops.masked_select(aligned(x, mask.ndim), mask)
    return [ops.reshape(found, [call.size, *call.shapes[0]])]


@batch_of("gather", "index_select")
def _gather_batch(call: BatchCall) -> list[Any]:
    x, index, axis = call.args
    axis = axis % call.ndim(0)
    if 1 not in call.batched:
        found = ops.gather(x, ops.reshape(index, [-1]), axis + 1)
        return [ops.reshape(found, [call.size, *call.shapes[0]])]
    if axis:
        raise NoRule("indices of each sample along a later axis; move it to the front")
    if 0 in call.batched:
        x, index = _rows(call, 0, 1)
    found = ops.gather(x, ops.reshape(index, [-1]), 0)
    return [ops.reshape(found, [call.size, *call.shapes[0]])]


@batch_of("gather_grad")
def _gather_grad_batch(call: BatchCall) -> list[Any]:
    _, index, _, axis = call.args
    x, grad = full(call, 0), full(call, 2)
    axis = axis % call.ndim(0)
    if 1 not in call.batched:
        return [ops.gather_grad(x, index, grad, axis + 1)]
    if axis:
        raise NoRule("indices of each sample along a later axis; move it to the front")
    rows, places = _rows(call, 0, 1)
    grad = ops.reshape(grad, [-1, *rows.shape[1:]])
    return [ops.reshape(ops.gather_grad(rows, places, grad, 0), x.shape)]


@batch_of("embedding")
def _embedding_batch(call: BatchCall) -> list[Any]:
    padding = call.args[2]
    if 1 not in call.batched:
        return [ops.embedding(*call.args)]
    if padding != -1:
        raise NoRule("tables of each sample with padding; give one table")
    table, places = _rows(call, 1, 0)
    found = ops.embedding(places, table, -1, False)
    return [ops.reshape(found, [call.size, *call.shapes[0]])]


@batch_of("gather_nd")
def _gather_nd_batch(call: BatchCall) -> list[Any]:
    x, index = call.args
    if 0 not in call.batched:
        return [ops.gather_nd(x, index)]
    index = full(call, 1)
    steps = paddle.arange(call.size, dtype=index.dtype)
    steps = ops.reshape(steps, [call.size, *[1] * (index.ndim - 1)])
    steps = ops.expand(steps, [*index.shape[:-1], 1])
    return [ops.gather_nd(x, ops.concat([steps, index], index.ndim - 1))]


@batch_of("index_sample")
def _index_sample_batch(call: BatchCall) -> list[Any]:
    parts = [full(call, i) for i in (0, 1)]
    rows = [ops.reshape(part, [-1, part.shape[-1]]) for part in parts]
    found = ops.index_sample(*rows)
    return [ops.reshape(found, [call.size, *call.shapes[0]])]


@batch_of("Tensor._getitem_dygraph")
def _getitem_batch(call: BatchCall) -> list[Any]:
    x, index = call.args
    parts = index if isinstance(index, tuple) else (index,)
    tensors = [k for k, part in enumerate(parts) if isinstance(part, Tensor)]
    if not tensors:
        return [x.__getitem__((slice(None), *parts))]
    if 1 not in call.batched:
        ints = [k for k, part in enumerate(parts) if isinstance(part, Tensor | int)]
        if ints != [*range(ints[0], ints[-1] + 1)]:
            raise NoRule("tensors among indices with others between; index in turns")
        if not all(parts[k].size for k in tensors):  # right on first axes alone
            found = ops.transpose(x, [*range(1, x.ndim), 0]).__getitem__(parts)
            last = found.ndim - 1
            return [ops.transpose(found, [last, *range(last)])]
        return [x.__getitem__((slice(None), *parts))]
    if tensors != [0] or any(isinstance(part, int) for part in parts):
        raise NoRule("indices of each sample along later axes; move them to the front")
    if 0 not in call.batched:
        return [x.__getitem__(parts)]
    place = full(call, 1) if isinstance(index, Tensor) else parts[0]
    count = x.shape[1]
    place = ops.where(place < 0, place + count, place)
    found = BatchCall((x, place), call.batched, call.size, call.shapes)
    rows, flat = _rows(found, 0, 1)
    taken = ops.gather(rows, flat, 0)
    taken = ops.reshape(taken, [*place.shape, *x.shape[2:]])
    rest = (slice(None),) * place.ndim
    return [taken.__getitem__((*rest, *parts[1:]))] if parts[1:] else [taken]
