"""DeepXDE on Paddle, with derivatives by Taylor series."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import paddle
from paddle import Tensor
from paddle.nn import Layer

from .constant import is_constant
from .points import Points
from .state import ObjectState
from .taylor_mode import TaylorMode, are_matrices
from .whole_losses import MAX_KINDS, Loss, WholeLosses, mode_keys

LOSSES = "outputs_losses_train"
"""The function of losses that a model's steps close over."""

READ = "data", "loss_weights", "net"
"""Attributes of a model that its losses read."""

SETTINGS = ("auxiliary_vars",)
"""Attributes that a model sets on its net, and that no net of the library reads."""


@contextmanager
def taylor_mode(*nets: Layer, jit: bool = False) -> Iterator[TaylorMode]:
    """Return a context in which ``dde.grad`` is computed with the nets' values.

    Scripts stay as they are. The derivatives that a script asks for at the first step
    are computed by Taylor series in the forward pass of later steps, on the net's live
    parameters. ``backward`` puts its gradients where it also puts them without the
    context. Values and gradients are equal to rounding. All else runs natively, and a
    :class:`.NativeWarning` says once what and why.

    Args:
        nets: nets that are none of ``dde.nn``; those are always taken.
        jit: compile each loss whole, with its equations and conditions. Their Python
            code then runs only while they are compiled, as with DeepXDE on JAX. A loss
            that can't be compiled runs uncompiled.

    Returns:
        A context manager; printed, it tells how the nets' calls ran.

    Raises:
        ImportError: there is no DeepXDE.
        RuntimeError: its backend is not Paddle.

    Examples:
        with taylor_mode():
            model.train(iterations=10_000)
    """
    try:
        from deepxde.backend import backend_name
    except ModuleNotFoundError as error:
        raise ImportError(
            f"DeepXDE can't be imported ({error}); install it: pip install deepxde"
        ) from error
    if backend_name != "paddle":
        raise RuntimeError(
            f"DeepXDE runs on {backend_name}, and Taylor mode is for nets of Paddle; "
            "set DDE_BACKEND=paddle before DeepXDE is imported"
        )
    from deepxde.gradients import gradients_reverse as reverse
    from deepxde.model import Model
    from deepxde.nn.paddle.nn import NN

    mode = TaylorMode("DeepXDE", ignored=SETTINGS, jit=jit)
    native_jacobian, native_hessian = (
        reverse.jacobian._Jacobians,
        reverse.hessian._Hessians,
    )

    class Jacobians:
        def __call__(
            self, ys: Any, xs: Any, i: int | None = None, j: int | None = None
        ) -> Tensor:
            def natively() -> Tensor:
                return native_jacobian(ys, xs, i=i, j=j)

            if not are_matrices(ys, xs) or (i is None and ys.shape[1] > 1):
                return natively()
            columns = range(xs.shape[1]) if j is None else [j]
            return mode.derivative(natively, ys, xs, i or 0, columns)

        def clear(self) -> None:
            native_jacobian.clear()
            mode.clear()

    class Hessians:
        def __call__(
            self, ys: Any, xs: Any, component: int = 0, i: int = 0, j: int = 0
        ) -> Tensor:
            def natively() -> Tensor:
                return native_hessian(ys, xs, component=component, i=i, j=j)

            if not are_matrices(ys, xs):
                return natively()
            return mode.derivative(natively, ys, xs, component, [i], [j])

        def clear(self) -> None:
            native_hessian.clear()
            mode.clear()

    with mode:
        mode.replace(reverse.jacobian, "_Jacobians", Jacobians())
        mode.replace(reverse.hessian, "_Hessians", Hessians())
        mode.take_calls_of(NN, nets)
        if mode.losses is not None:
            step = _with_whole_losses(Model._train_step, mode.losses)
            mode.replace(Model, "_train_step", step)
        yield mode


def _with_whole_losses(native: Callable[..., Any], losses: WholeLosses) -> Any:
    """Wrap a model's training step, to compile its losses."""
    functions: dict[int, _Losses] = {}  # by models

    def step(model: Any, inputs: Any, targets: Any, auxiliary_vars: Any) -> Any:
        cell = _cell_of(model.train_step, LOSSES)
        if cell is None:
            return native(model, inputs, targets, auxiliary_vars)
        library: Any = cell.cell_contents
        entry = functions.get(id(model))
        if entry is None or not entry.is_same_as(library):
            if entry is not None:
                losses.forget(entry.loss)
            entry = functions[id(model)] = _Losses(library, model)
            while len(functions) > MAX_KINDS:
                losses.forget(functions.pop(next(iter(functions))).loss)
        model_losses = entry
        if losses.is_refused(model_losses.loss):
            return native(model, inputs, targets, auxiliary_vars)

        def compiled_losses(*values: Any) -> Any:
            with model_losses.points.as_tensors(model.data):
                args = [*map(_as_tensors, values)]
                result = losses.run(
                    model_losses.loss, args, partial(model_losses.run_library, *values)
                )
            model.net.auxiliary_vars = auxiliary_vars
            return result

        cell.cell_contents = compiled_losses
        try:
            return native(model, inputs, targets, auxiliary_vars)
        finally:
            cell.cell_contents = library

    return step


class _Losses:
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
        return bool(_loss_functions(library) == _loss_functions(self._library))

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
        read, terms = _Attributes(model, READ), _loss_functions(self._library)
        reads = {"model": read, "losses": terms}
        settings = {(id(vars(model.net)), name) for name in SETTINGS}
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


def _loss_functions(library: Any) -> Any:
    """Return the function of each loss, such as the mean of squares."""
    inner = _cell_of(library, "outputs_losses").cell_contents
    return _cell_of(inner, "loss_fn").cell_contents


def _cell_of(function: Any, name: str) -> Any:
    """Return the cell of a variable in a closure; None where there is none."""
    code = getattr(function, "__code__", None)
    names = getattr(code, "co_freevars", ())
    return function.__closure__[names.index(name)] if name in names else None


def _as_tensors(value: Any) -> Any:
    """Return tensors of arrays, as the library makes them itself."""
    if isinstance(value, tuple):
        return tuple(map(_as_tensors, value))
    return value if value is None else paddle.to_tensor(value)
