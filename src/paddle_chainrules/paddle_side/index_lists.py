"""Lists of numbers in brackets, as tensors; Paddle makes arrays of NumPy of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from .shared_memory import without_gaps

_SEQUENCES = (list, tuple, range)


def lists_to_tensors(shape: list[int], item: Any, bools: bool = True) -> Any:
    """Replace each list of whole numbers in brackets with a tensor.

    A list with a bool for each element becomes the positions of those that are True.

    Args:
        shape: the shape of the tensor before the brackets.
        bools: whether to replace lists of bools; through one beside a slice Paddle
            writes whole rows (docs/paddle-notes.md).
    """
    entries = item if isinstance(item, tuple) else (item,)
    if not any(isinstance(entry, _SEQUENCES) for entry in entries):
        return item
    results: list[Any] = []
    axis = 0
    arrays = [*map(_index_array, entries)]
    for k, (entry, array) in enumerate(zip(entries, arrays, strict=True)):
        if entry is Ellipsis:
            trailing = zip(entries[k + 1 :], arrays[k + 1 :], strict=True)
            axis = len(shape) - sum(_consumed_axes(*pair) for pair in trailing)
            results.append(entry)
            continue
        if array is None:
            results.append(entry)
        elif array.dtype != bool:
            results.append(paddle.to_tensor(array))
        else:
            mask_shape = tuple(shape[axis : axis + array.ndim])
            is_full_mask = bools and mask_shape == array.shape and array.any()
            results += (
                map(paddle.to_tensor, array.nonzero()) if is_full_mask else [entry]
            )
        axis += _consumed_axes(entry, array)
    return tuple(results)


def read_item(read: Callable[[Tensor, Any], Any], x: Tensor, item: Any) -> Any:
    """Return ``x[item]`` by Paddle's function for it, where that is right.

    With a tensor or a list in the index, Paddle takes other elements of an x that has
    gaps or another order, and for slices with steps, also from beyond the tensor.
    """
    entries = (*item,) if isinstance(item, tuple | list) else (item,)
    if not any(isinstance(entry, Tensor | list) for entry in entries):
        return read(x, item)
    split = split_strided_slices(entries)
    if split is None:
        return read(without_gaps(x), item)
    slices, rest = split
    return read(without_gaps(read(x, slices)), rest)


def write_item(
    write: Callable[[Tensor, Any, Any], Any],
    x: Tensor,
    item: Any,
    value: Any,
    has_gaps: bool = False,
) -> Any:
    """Do ``x[item] = value`` by Paddle's function for it, where that is right.

    With a tensor in the index, it writes beyond x for slices with negative steps.

    Args:
        has_gaps: whether x may have gaps or another order, where it writes elsewhere.
    """
    item, value = without_new_axes(x, item, value)
    entries = item if isinstance(item, tuple) else (item,)
    split = split_strided_slices(entries)
    if (
        split is None
        and has_gaps
        and any(isinstance(entry, Tensor | list) for entry in entries)
    ):
        split = None if x.is_contiguous() else (..., item)
    if split is None:
        return write(x, item, value)
    slices, rest = split
    sliced = x[slices].clone()
    if 0 in sliced.shape:
        return x
    sliced[rest] = value
    x[slices] = sliced
    return x


def _is_basic(entries: Sequence[Any]) -> bool:
    """Tell whether an index has no tensors, lists or arrays."""
    basic = int, np.integer, slice, type(None), type(Ellipsis)
    return all(
        isinstance(entry, basic) and not isinstance(entry, bool) for entry in entries
    )


def without_new_axes(x: Tensor, item: Any, value: Any) -> tuple[Any, Any]:
    """Return the index and value of the same write, without several new axes.

    With several of them, Paddle takes the value's axes for others.
    """
    entries = item if isinstance(item, tuple) else (item,)
    if sum(entry is None for entry in entries) < 2 or not _is_basic(entries):
        return item, value
    rest = tuple(entry for entry in entries if entry is not None)
    if not isinstance(value, Tensor):
        return rest, value
    axis_count = sum(entry is not Ellipsis for entry in rest)
    is_new: list[bool] = []  # for each axis of x[entries]
    for entry in (*entries, *([] if Ellipsis in rest else [Ellipsis])):
        if entry is Ellipsis:
            is_new += [False] * (x.ndim - axis_count)
        elif entry is None or isinstance(entry, slice):
            is_new.append(entry is None)
    offset = value.ndim - len(is_new)  # of the axes of x[entries] in the value
    dropped_axes = [
        offset + k for k, new in enumerate(is_new) if new and offset + k >= 0
    ]
    return rest, value.squeeze(dropped_axes) if dropped_axes else value


def split_strided_slices(entries: Sequence[Any]) -> tuple[Any, Any] | None:
    """Split an index with tensors into its slices, and the index into their result.

    Returns:
        None where it has no tensors and lists, or its slices have no steps.

    Raises:
        NotImplementedError: it has new axes too.
    """
    if not any(isinstance(entry, Tensor | list) for entry in entries):
        return None
    if {entry.step for entry in entries if isinstance(entry, slice)} <= {None, 1}:
        return None
    if any(entry is None for entry in entries):
        raise NotImplementedError(
            "an index with a new axis, a tensor and a slice with a step ends Paddle's "
            "process; take the slice first, and use unsqueeze on what is found"
        )
    slices: list[Any] = []
    for entry in entries:
        is_mask = isinstance(entry, Tensor) and entry.dtype == paddle.bool
        if isinstance(entry, slice) or entry is Ellipsis:
            slices.append(entry)
        else:
            slices += [slice(None)] * (entry.ndim if is_mask else 1)
    rest = (slice(None) if isinstance(entry, slice) else entry for entry in entries)
    return tuple(slices), tuple(rest)


def squeeze_leading_ones(x: Tensor, item: Any, value: Any) -> Any:
    """Return a value for ``x[item]`` without its leading axes of one element.

    With a tensor in the index, Paddle reads beyond its memory for them.
    """
    entries = item if isinstance(item, tuple) else (item,)
    tensors = [entry for entry in entries if isinstance(entry, Tensor)]
    if not isinstance(value, Tensor) or not tensors:
        return value
    masks = [entry for entry in tensors if entry.dtype == paddle.bool]
    integer_ranks = [entry.ndim for entry in tensors if entry.dtype != paddle.bool]
    indexed_axes = sum(mask.ndim for mask in masks) + len(integer_ranks)
    indexed_axes += sum(type(entry) is int for entry in entries)
    extra_axes = value.ndim - (
        x.ndim - indexed_axes + max([*integer_ranks, *(1 for _ in masks)])
    )
    if extra_axes <= 0 or value.shape[:extra_axes] != [1] * extra_axes:
        return value
    return paddle._C_ops.reshape(value, value.shape[extra_axes:])


def _consumed_axes(entry: Any, array: np.ndarray | None) -> int:
    """Return how many axes of the tensor an index entry consumes."""
    if array is not None and array.dtype == bool:
        return array.ndim
    return 0 if entry is None else 1


def _index_array(entry: Any) -> np.ndarray | None:
    """Return a list of whole numbers or bools as an array; None for anything else."""
    integers = int, np.integer
    if isinstance(entry, _SEQUENCES) and all(
        isinstance(x, integers) for x in _flat_numbers(entry)
    ):
        array = np.array(entry)
        if array.size and array.dtype != object:
            return array
    return None


def _flat_numbers(nested: Any) -> Iterator[Any]:
    for item in nested:
        if isinstance(item, _SEQUENCES):
            yield from _flat_numbers(item)
        else:
            yield item
