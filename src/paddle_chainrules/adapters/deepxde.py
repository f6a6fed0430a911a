"""DeepXDE on Paddle, with derivatives by Taylor series."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import paddle
from paddle import Tensor
from paddle.nn import Layer

from .constant import is_constant
from .state import State
from .taylor_mode import TaylorMode, are_matrices
from .whole_losses import MAX_KINDS, WholeLosses, modes_of

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

    mode = TaylorMode("DeepXDE", apart=SETTINGS, jit=jit)
    first, second = reverse.jacobian._Jacobians, reverse.hessian._Hessians

    class Jacobians:
        def __call__(
            self, ys: Any, xs: Any, i: int | None = None, j: int | None = None
        ) -> Tensor:
            def natively() -> Tensor:
                return first(ys, xs, i=i, j=j)

            if not are_matrices(ys, xs) or (i is None and ys.shape[1] > 1):
                return natively()
            columns = range(xs.shape[1]) if j is None else [j]
            return mode.derivative(natively, ys, xs, i or 0, columns)

        def clear(self) -> None:
            first.clear()
            mode.clear()

    class Hessians:
        def __call__(
            self, ys: Any, xs: Any, component: int = 0, i: int = 0, j: int = 0
        ) -> Tensor:
            def natively() -> Tensor:
                return second(ys, xs, component=component, i=i, j=j)

            if not are_matrices(ys, xs):
                return natively()
            return mode.derivative(natively, ys, xs, component, [i], [j])

        def clear(self) -> None:
            second.clear()
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
    functions: dict[int, tuple[Any, Callable[..., Any]]] = {}  # by models

    def step(model: Any, inputs: Any, targets: Any, auxiliary_vars: Any) -> Any:
        cell = _cell_of(model.train_step, LOSSES)
        if cell is None or auxiliary_vars is not None:
            return native(model, inputs, targets, auxiliary_vars)
        library: Any = cell.cell_contents
        known, loss = functions.get(id(model), (None, library))
        if known is not library:  # compiled anew
            losses.forget(loss)
            loss = _of_tensors(library)
            functions[id(model)] = library, loss
            while len(functions) > MAX_KINDS:
                losses.forget(functions.pop(next(iter(functions)))[1])
        if losses.is_refused(loss):
            return native(model, inputs, targets, auxiliary_vars)

        def called(inputs: Any, targets: Any, _: Any) -> Any:
            given = [_in_tensors(inputs), _in_tensors(targets)]
            return losses.called(loss, given, state, lambda: model.opt._parameter_list)

        def state() -> State:
            """Return the state of the objects that the losses read."""
            inner = _cell_of(library, "outputs_losses").cell_contents
            losses_of = _cell_of(inner, "loss_fn").cell_contents
            own = not is_constant(type(model.data).__module__)
            reads = {"model": _Attributes(model, READ), "losses": losses_of}
            settings = {(id(vars(model.net)), name) for name in SETTINGS}
            apart = modes_of(model.net) | settings
            return State(reads, apart, [model] if own else [])

        cell.cell_contents = called
        try:
            return native(model, inputs, targets, auxiliary_vars)
        finally:
            cell.cell_contents = library

    return step


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


def _of_tensors(library: Any) -> Callable[..., Any]:
    """Return a model's function of losses, of tensors in place of arrays."""

    def loss(inputs: Any, targets: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "To copy construct from a tensor")
            return library(inputs, targets, None)

    return loss


def _cell_of(function: Any, name: str) -> Any:
    """Return the cell of a variable in a closure; None where there is none."""
    code = getattr(function, "__code__", None)
    names = getattr(code, "co_freevars", ())
    return function.__closure__[names.index(name)] if name in names else None


def _in_tensors(given: Any) -> Any:
    """Return tensors of arrays, as the library makes them itself."""
    if isinstance(given, tuple):
        return tuple(map(_in_tensors, given))
    return given if given is None else paddle.to_tensor(given)
