"""Points that DeepXDE may draw anew, as tensors that a program reads at each call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CellType, FunctionType
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from .state import MAX_STATE_BYTES

CACHING_FUNCTION, CACHE_VARIABLE = "wrapper_cache", "cache"
"""The library's function that keeps values of a condition, and where it keeps them."""


class Points:
    """The arrays of a model's data and conditions, and what conditions are there.

    A program has no part of them, so that it serves other points of the same number.

    Attributes:
        are_tensors: whether tensors may take their place. Code that computes with NumPy
            has no use for them.
    """

    def __init__(self) -> None:
        from deepxde.data.sampler import BatchSampler

        self.are_tensors = True
        self._converted: dict[Any, tuple[Any, Any]] = {}  # by places
        self._data: Any = None
        self._replaced: list[tuple[Any, str, Any]] = []
        self._converters: dict[type, Callable[[Any, Any], Any]] = {
            np.ndarray: self._tensor,
            list: self._equal_list,
            FunctionType: self._function,
            BatchSampler: lambda place, sampler: None,  # from which no loss draws
        }

    @contextmanager
    def as_tensors(self, data: Any) -> Iterator[None]:
        """Put tensors in the place of arrays: the same ones at each call."""
        self._data = data
        try:
            self._replace_arrays()
            yield
        finally:
            self._restore_arrays()

    @contextmanager
    def as_arrays(self) -> Iterator[None]:
        """Undo :meth:`as_tensors` meanwhile."""
        self._restore_arrays()
        try:
            yield
        finally:
            self._replace_arrays()

    def _restore_arrays(self) -> None:
        while self._replaced:
            attributes, name, value = self._replaced.pop()
            attributes[name] = value

    def _replace_arrays(self) -> None:
        if not self.are_tensors:
            return
        conditions = getattr(self._data, "bcs", ())
        owners = [self._data]
        owners += conditions if isinstance(conditions, list | tuple) else ()
        self._train_points = getattr(self._data, "train_x", None)
        for owner in owners:
            attributes = getattr(owner, "__dict__", {})
            for name, value in [*attributes.items()]:
                convert = self._converters.get(type(value))
                if convert is not None:
                    key = id(attributes), name, type(value)
                    self._replace(attributes, name, convert(key, value))

    def _replace(self, attributes: Any, name: str, value: Any) -> None:
        before = attributes[name]
        if value is not before:
            self._replaced.append((attributes, name, before))
            attributes[name] = value

    def _tensor(self, key: Any, value: np.ndarray[Any, Any]) -> Any:
        if value.dtype.kind not in "fi" or value.nbytes > MAX_STATE_BYTES:
            return value
        content = value.shape, value.dtype, value.tobytes()
        tensor, before = self._converted.get(key, (None, None))
        if content != before:
            tensor = _with_values(tensor, paddle.to_tensor(value))
            self._converted[key] = tensor, content
        return tensor

    def _equal_list(self, key: Any, value: list[Any]) -> list[Any]:
        """Return the list that was there before if it has the same integers."""
        if not all(type(x) is int for x in value):
            return value
        before, content = self._converted.get(key, (value, None))
        if content != value:
            before = value
        self._converted[key] = before, [*value]
        return before

    def _function(self, key: Any, function: Any) -> Any:
        """Have a condition give tensors that are the same at each call."""
        code, points = function.__code__, self._train_points
        if code.co_name != CACHING_FUNCTION or not isinstance(points, np.ndarray):
            return function
        cell = _CellContainer(
            function.__closure__[code.co_freevars.index(CACHE_VARIABLE)]
        )
        if isinstance(
            cell[CACHE_VARIABLE], _Values
        ):  # two conditions share the function
            return function
        values, known_function = self._converted.get(key, (None, None))
        if known_function is not function:
            values = _Values(function)
            self._converted[key] = values, function
        values.refresh(cell[CACHE_VARIABLE], points)
        self._replace(cell, CACHE_VARIABLE, values)
        return function


class _CellContainer:
    """A closed-over variable, as a container."""

    def __init__(self, cell: CellType) -> None:
        self._cell = cell

    def __getitem__(self, name: str) -> Any:
        return self._cell.cell_contents

    def __setitem__(self, name: str, value: Any) -> None:
        self._cell.cell_contents = value


class _Values(dict[tuple[int, int], Tensor]):
    """Values of a condition by ranges of points, whatever the points are.

    Args:
        function: computes them, and keeps them by the points' identity.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._train_points: Any = None

    def __contains__(self, key: Any) -> bool:
        return super().__contains__(key[-2:])

    def __getitem__(self, key: Any) -> Tensor:
        return super().__getitem__(key[-2:])

    def __setitem__(self, key: Any, value: Tensor) -> None:
        raise KeyError(
            f"a condition is asked for at points {key[-2:]} for once; ask for it at "
            "the same ones in each step"
        )

    def refresh(
        self, library_values: dict[Any, Tensor], points: np.ndarray[Any, Any]
    ) -> None:
        """Take the values at these points, which the library may know already."""
        if (
            self._train_points is not None
            and self._train_points[0] is points
            and self._train_points[1] == len(library_values)
        ):
            return
        ranges = {key[1:] for key in library_values if key[0] == id(points)}
        ranges.update(bounds for bounds in self if bounds[1] <= len(points))
        for start, stop in ranges:
            value = self._function(points, start, stop, None)
            before = self.get((start, stop))
            super().__setitem__((start, stop), _with_values(before, value))
        self._train_points = points, len(library_values)


def _with_values(tensor: Tensor | None, value: Tensor) -> Tensor:
    """Return the tensor with other elements, or a new one if it can't hold them."""
    if tensor is None or (tensor.shape, tensor.dtype) != (value.shape, value.dtype):
        return value.clone()
    tensor.set_value(value)
    return tensor
