"""Lists of numbers in brackets, as tensors; Paddle makes arrays of NumPy of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle

_NESTED = (list, tuple, range)


def with_tensors(shape: list[int], item: Any) -> Any:
    """What stands in brackets, with a tensor for each list of whole numbers.

    One of bools, as many as there are, stands for the numbers of those that are True.

    Args:
        shape: of the tensor before the brackets.
    """
    parts = item if isinstance(item, tuple) else (item,)
    if not any(isinstance(part, _NESTED) for part in parts):
        return item
    found: list[Any] = []
    axis = 0
    for part in parts:
        axis = len(shape) if part is Ellipsis else axis
        array = _array(part)
        if array is None:
            found.append(part)
            axis += part is not None
        elif array.dtype != bool:
            found.append(paddle.to_tensor(array))
            axis += 1
        else:
            here = tuple(shape[axis : axis + array.ndim])
            as_many = here == array.shape
            found += map(paddle.to_tensor, array.nonzero()) if as_many else [part]
            axis += array.ndim
    return tuple(found)


def _array(part: Any) -> np.ndarray | None:
    """A list of whole numbers or bools; None where it is something else, or none."""
    if isinstance(part, _NESTED) and all(isinstance(x, int) for x in _numbers(part)):
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
