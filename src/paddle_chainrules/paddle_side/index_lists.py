"""Lists of numbers in brackets, as tensors; Paddle makes arrays of NumPy of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from .shared_memory import without_gaps

_NESTED = (list, tuple, range)


def with_tensors(shape: list[int], item: Any, bools: bool = True) -> Any:
    """Replace each list of whole numbers in brackets with a tensor.

    A list with a bool for each element becomes the positions of those that are True.

    Args:
        shape: the shape of the tensor before the brackets.
        bools: whether to replace lists of bools; through one beside a slice Paddle
            writes whole rows (docs/paddle-notes.md).
    """
    parts = item if isinstance(item, tuple) else (item,)
    if not any(isinstance(part, _NESTED) for part in parts):
        return item
    results: list[Any] = []
    axis = 0
    arrays = [*map(_array, parts)]
    for k, (part, array) in enumerate(zip(parts, arrays, strict=True)):
        if part is Ellipsis:
            behind = zip(parts[k + 1 :], arrays[k + 1 :], strict=True)
            axis = len(shape) - sum(_axes(*pair) for pair in behind)
            results.append(part)
            continue
        if array is None:
            results.append(part)
        elif array.dtype != bool:
            results.append(paddle.to_tensor(array))
        else:
            here = tuple(shape[axis : axis + array.ndim])
            known = bools and here == array.shape and array.any()
            results += map(paddle.to_tensor, array.nonzero()) if known else [part]
        axis += _axes(part, array)
    return tuple(results)


def item_of(get: Callable[[Tensor, Any], Any], x: Tensor, item: Any) -> Any:
    """Return ``x[item]`` by Paddle's function for it, where that is right.

    With a tensor or a list in the index, Paddle takes other elements of an x that has
    gaps or another order, and for slices with steps, also from beyond the tensor.
    """
    parts = (*item,) if isinstance(item, tuple | list) else (item,)
    if not any(isinstance(part, Tensor | list) for part in parts):
        return get(x, item)
    apart = slices_apart(parts)
    if apart is None:
        return get(without_gaps(x), item)
    slices, rest = apart
    return get(without_gaps(get(x, slices)), rest)


def put_item(
    put: Callable[[Tensor, Any, Any], Any],
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
    parts = item if isinstance(item, tuple) else (item,)
    apart = slices_apart(parts)
    if apart is None and has_gaps and any(isinstance(p, Tensor | list) for p in parts):
        apart = None if x.is_contiguous() else (..., item)
    if apart is None:
        return put(x, item, value)
    slices, rest = apart
    part = x[slices].clone()
    if 0 in part.shape:
        return x
    part[rest] = value
    x[slices] = part
    return x


def _is_basic(parts: Sequence[Any]) -> bool:
    """Tell whether an index has no tensors, lists or arrays."""
    basic = int, np.integer, slice, type(None), type(Ellipsis)
    return all(isinstance(p, basic) and not isinstance(p, bool) for p in parts)


def without_new_axes(x: Tensor, item: Any, value: Any) -> tuple[Any, Any]:
    """Return the index and value of the same write, without several new axes.

    With several of them, Paddle takes the value's axes for others.
    """
    parts = item if isinstance(item, tuple) else (item,)
    if sum(part is None for part in parts) < 2 or not _is_basic(parts):
        return item, value
    rest = tuple(part for part in parts if part is not None)
    if not isinstance(value, Tensor):
        return rest, value
    known = sum(part is not Ellipsis for part in rest)
    is_new: list[bool] = []  # for each axis of x[parts]
    for part in (*parts, *([] if Ellipsis in rest else [Ellipsis])):
        if part is Ellipsis:
            is_new += [False] * (x.ndim - known)
        elif part is None or isinstance(part, slice):
            is_new.append(part is None)
    first = value.ndim - len(is_new)  # of the axes of x[parts] in the value
    gone = [first + k for k, new in enumerate(is_new) if new and first + k >= 0]
    return rest, value.squeeze(gone) if gone else value


def slices_apart(parts: Sequence[Any]) -> tuple[Any, Any] | None:
    """Split an index with tensors into its slices, and what is taken of these.

    Returns:
        None where it has no tensors and lists, or its slices have no steps.

    Raises:
        NotImplementedError: it has new axes too.
    """
    if not any(isinstance(part, Tensor | list) for part in parts):
        return None
    if {part.step for part in parts if isinstance(part, slice)} <= {None, 1}:
        return None
    if any(part is None for part in parts):
        raise NotImplementedError(
            "an index with a new axis, a tensor and a slice with a step ends Paddle's "
            "process; take the slice first, and use unsqueeze on what is found"
        )
    slices: list[Any] = []
    for part in parts:
        is_mask = isinstance(part, Tensor) and part.dtype == paddle.bool
        if isinstance(part, slice) or part is Ellipsis:
            slices.append(part)
        else:
            slices += [slice(None)] * (part.ndim if is_mask else 1)
    rest = (slice(None) if isinstance(part, slice) else part for part in parts)
    return tuple(slices), tuple(rest)


def without_ones(x: Tensor, item: Any, value: Any) -> Any:
    """Return a value for ``x[item]`` without axes of one element that x has not.

    With a tensor in the index, Paddle reads beyond its memory for them.
    """
    parts = item if isinstance(item, tuple) else (item,)
    tensors = [part for part in parts if isinstance(part, Tensor)]
    if not isinstance(value, Tensor) or not tensors:
        return value
    masks = [part for part in tensors if part.dtype == paddle.bool]
    whole = [part.ndim for part in tensors if part.dtype != paddle.bool]
    gone = sum(mask.ndim for mask in masks) + len(whole)
    gone += sum(type(part) is int for part in parts)
    more = value.ndim - (x.ndim - gone + max([*whole, *(1 for _ in masks)]))
    if more <= 0 or value.shape[:more] != [1] * more:
        return value
    return paddle._C_ops.reshape(value, value.shape[more:])


def _axes(part: Any, array: np.ndarray | None) -> int:
    """Return how many axes of the tensor an index takes."""
    if array is not None and array.dtype == bool:
        return array.ndim
    return 0 if part is None else 1


def _array(part: Any) -> np.ndarray | None:
    """Return a list of whole numbers or bools as an array; None for anything else."""
    whole = int, np.integer
    if isinstance(part, _NESTED) and all(isinstance(x, whole) for x in _numbers(part)):
        array = np.array(part)
        if array.size and array.dtype != object:
            return array
    return None


def _numbers(part: Any) -> Iterator[Any]:
    for each in part:
        if isinstance(each, _NESTED):
            yield from _numbers(each)
        else:
            yield each
