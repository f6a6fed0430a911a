"""The losses of a model of DeepXDE, as functions of tensors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import paddle
from paddle import Tensor

from .constant import is_constant
from .points import Points
from .state import ObjectState
from .whole_losses import Loss, mode_keys

READ = "data", "loss_weights", "net"
"""Attributes of a model that its losses read."""

SETTINGS = ("auxiliary_vars",)
"""Attributes that a model sets on its net, and that no net of the library reads."""

TEST_POINTS = "test_x", "test_y", "test_aux_vars"
"""Attributes of a model's data that losses of training don't read."""


class ModelLosses:
    """A model's function of losses, which it keeps however often it is compiled.

    Attributes:
        points: the points that it reads of the model's data.
        loss: the same function of tensors, to be compiled.
    """

    def __init__(self, library: Any, model: Any) -> None:
        self._library, self._model, self.points = library, model, Points()
        steps = self._loss_of_tensors, self._state, self._params, self._simplify
        self.loss = Loss(*steps)

    def is_same_as(self, library: Any) -> bool:
        """Tell whether the library computes the same."""
        return bool(loss_functions(library) == loss_functions(self._library))

    def run_library(self, *args: Any) -> Any:
        """Do as the library does."""
        with self.points.as_arrays():
            return self._library(*args)

    def _loss_of_tensors(self, inputs: Any, targets: Any, auxiliary_vars: Any) -> Any:
        net = self._model.net
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "To copy construct from a tensor")
                return self._library(inputs, targets, auxiliary_vars)
        finally:
            del net.auxiliary_vars  # which a tensor has made a buffer
            net.auxiliary_vars = None

    def _params(self) -> Sequence[Tensor]:
        results: Sequence[Tensor] = self._model.opt._parameter_list
        return results

    def _simplify(self) -> bool:
        """Have code compute with arrays if it can't with tensors."""
        before, self.points.are_tensors = self.points.are_tensors, False
        return before

    def _state(self) -> ObjectState:
        """Return the state of the objects that the losses read."""
        model = self._model
        is_custom_data = not is_constant(type(model.data).__module__)
        read, terms = _Attributes(model, READ), loss_functions(self._library)
        reads = {"model": read, "losses": terms}
        settings = {(id(vars(model.net)), name) for name in SETTINGS}
        settings |= {(id(vars(model.data)), name) for name in TEST_POINTS}
        return ObjectState(
            reads, mode_keys(model.net) | settings, [model] if is_custom_data else []
        )


class _Attributes(Mapping[str, Any]):
    """Some attributes of an object, as they are when they are read."""

    def __init__(self, owner: Any, names: tuple[str, ...]) -> None:
        self._owner, self._names = owner, names

    def __getitem__(self, name: str) -> Any:
        return getattr(self._owner, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def loss_functions(library: Any) -> Any:
    """Return the function of each loss, such as the mean of squares."""
    return loss_functions_cell(library).cell_contents


def loss_functions_cell(library: Any) -> Any:
    """Return the cell in which the library keeps the function of each loss."""
    inner = cell_of(library, "outputs_losses").cell_contents
    return cell_of(inner, "loss_fn")


def cell_of(function: Any, name: str) -> Any:
    """Return the cell of a variable in a closure; None where there is none."""
    code = getattr(function, "__code__", None)
    names = getattr(code, "co_freevars", ())
    return function.__closure__[names.index(name)] if name in names else None


def as_tensors(value: Any) -> Any:
    """Return tensors of arrays, as the library makes them itself."""
    if isinstance(value, tuple):
        return tuple(map(as_tensors, value))
    return value if value is None else paddle.to_tensor(value)
