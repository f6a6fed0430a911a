"""DeepXDE on Paddle, with derivatives by Taylor series."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import paddle
from paddle import Tensor
from paddle.nn import Layer

from .taylor_mode import TaylorMode, are_matrices
from .whole_losses import WholeLosses

LOSSES = "outputs_losses_train"
"""The function of losses that a model's steps close over."""

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
    functions: dict[Any, Callable[..., Any]] = {}

    def step(model: Any, inputs: Any, targets: Any, auxiliary_vars: Any) -> Any:
        cell = _cell_of(model.train_step, LOSSES)
        if cell is None or auxiliary_vars is not None:
            return native(model, inputs, targets, auxiliary_vars)
        library: Any = cell.cell_contents
        if library not in functions:
            functions[library] = _of_tensors(library)
        loss = functions[library]

        def called(inputs: Any, targets: Any, _: Any) -> Any:
            given = [_in_tensors(inputs), _in_tensors(targets)]
            return losses.called(loss, given, reads, lambda: model.opt._parameter_list)

        def reads() -> dict[str, Any]:
            """Return the objects that the losses read."""
            parts = {"data": model.data, "weights": model.loss_weights}
            inner = _cell_of(library, "outputs_losses").cell_contents
            losses_of = _cell_of(inner, "loss_fn").cell_contents
            return {**parts, "net": model.net, "losses": losses_of}

        cell.cell_contents = called
        try:
            return native(model, inputs, targets, auxiliary_vars)
        finally:
            cell.cell_contents = library

    return step


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
