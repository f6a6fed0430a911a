"""Points that DeepXDE may draw anew, as tensors that a program reads at each call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import CellType
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from .state import MAX_STATE_BYTES

CACHE = "cache"
"""The variable of a condition's function that holds values at points seen before."""


class Points:
    """The arrays of a model's data and conditions, and what conditions are there.

    A program has no part of them, so that it serves other points of the same number.

    Attributes:
        are_tensors: whether tensors may take their place. Code that computes with NumPy
            has no use for them.
    """

    def __init__(self) -> None:
        self.are_tensors = True
        self._arrays: dict[Any, tuple[Tensor, Any]] = {}
        self._values: dict[Any, _Values] = {}
        self._lists: dict[Any, list[Any]] = {}
        self._data: Any = None
        self._replaced: list[tuple[dict[str, Any] | _Cell, str, Any]] = []

    @contextmanager
    def as_tensors(self, data: Any) -> Iterator[None]:
        """Put tensors in the place of arrays: the same ones at each call."""
        self._data = data
        try:
            self._put()
            yield
        finally:
            self._put_back()

    @contextmanager
    def as_arrays(self) -> Iterator[None]:
        """Undo :meth:`as_tensors` meanwhile."""
        self._put_back()
        try:
            yield
        finally:
            self._put()

    def _put_back(self) -> None:
        while self._replaced:
            held, name, value = self._replaced.pop()
            held[name] = value

    def _put(self) -> None:
        if not self.are_tensors:
            return
        points = getattr(self._data, "train_x", None)
        owners = [self._data, *getattr(self._data, "bcs", ())]
        for held in [vars(owner) for owner in owners if hasattr(owner, "__dict__")]:
            for name, value in [*held.items()]:
                cell = _cache_of(value)
                if cell is not None and isinstance(points, np.ndarray):
                    known = self._values.setdefault(id(cell.cell), _Values(value))
                    known.refresh(cell[CACHE], points)
                    self._replace(cell, CACHE, known)
                elif isinstance(value, np.ndarray) and _is_small(value):
                    self._replace(held, name, self._tensor((id(held), name), value))
                elif type(value) is list and all(isinstance(x, int) for x in value):
                    known_list = self._lists.get((id(held), name))
                    if known_list != value:
                        known_list = self._lists[id(held), name] = value
                    self._replace(held, name, known_list)
                elif type(value).__module__ == "deepxde.data.sampler":
                    self._replace(held, name, None)  # which no loss draws from

    def _replace(self, held: Any, name: str, value: Any) -> None:
        self._replaced.append((held, name, held[name]))
        held[name] = value

    def _tensor(self, place: Any, value: np.ndarray[Any, Any]) -> Tensor:
        content = value.shape, value.dtype, value.tobytes()
        tensor, before = self._arrays.get(place, (None, None))
        if tensor is None or content != before:
            tensor = _written(tensor, paddle.to_tensor(value))
            self._arrays[place] = tensor, content
        return tensor


class _Cell:
    """A closed-over variable, as a container."""

    def __init__(self, cell: CellType) -> None:
        self.cell = cell

    def __getitem__(self, name: str) -> Any:
        return self.cell.cell_contents

    def __setitem__(self, name: str, value: Any) -> None:
        self.cell.cell_contents = value


class _Values(dict[tuple[int, int], Tensor]):
    """Values of a condition by ranges of points, whatever the points are.

    Args:
        function: computes them, and keeps them by the points' identity.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._at: Any = None

    def __contains__(self, key: Any) -> bool:
        return super().__contains__(key[-2:])

    def __getitem__(self, key: Any) -> Tensor:
        return super().__getitem__(key[-2:])

    def __setitem__(self, key: Any, value: Tensor) -> None:
        raise KeyError(f"a condition is asked for at points {key[-2:]} for once")

    def refresh(self, known: dict[Any, Tensor], points: np.ndarray[Any, Any]) -> None:
        """Take the values at these points, which the library may know already."""
        if self._at is not None and self._at[0] is points and self._at[1] == len(known):
            return
        ranges = {key[1:] for key in known if key[0] == id(points)}
        for start, stop in {*ranges, *self}:
            value = self._function(points, start, stop, None)
            before = self.get((start, stop))
            super().__setitem__((start, stop), _written(before, value))
        self._at = points, len(known)


def _written(tensor: Tensor | None, value: Tensor) -> Tensor:
    """Return the tensor with other elements, or a new one if it can't hold them."""
    if tensor is None or (tensor.shape, tensor.dtype) != (value.shape, value.dtype):
        return value.clone()
    tensor.set_value(value)
    return tensor


def _is_small(value: np.ndarray[Any, Any]) -> bool:
    """Tell whether it holds numbers that are compared at each call."""
    return value.dtype.kind in "fi" and value.nbytes <= MAX_STATE_BYTES


def _cache_of(function: Any) -> _Cell | None:
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return _Cell(function.__closure__[names.index(CACHE)]) if CACHE in names else None
