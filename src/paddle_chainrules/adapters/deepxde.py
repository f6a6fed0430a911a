"""DeepXDE on Paddle, with derivatives by Taylor series."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from paddle import Tensor
from paddle.nn import Layer

from .deepxde_losses import SETTINGS, ModelLosses, as_tensors, cell_of
from .deepxde_training import model_train, optimizers_get, train_loop
from .taylor_mode import TaylorMode, are_matrices
from .whole_losses import MAX_KINDS, WholeLosses

LOSSES = "outputs_losses_train"
"""The function of losses that a model's steps close over."""


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
    from deepxde import optimizers
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
        mode.replace(optimizers, "get", optimizers_get(optimizers.get))
        mode.replace(Model, "train", model_train(Model.train))
        mode.replace(Model, "_train_sgd", train_loop(Model._train_sgd))
        if mode.losses is not None:
            step = _with_whole_losses(Model._train_step, mode.losses)
            mode.replace(Model, "_train_step", step)
        yield mode


def _with_whole_losses(native: Callable[..., Any], losses: WholeLosses) -> Any:
    """Wrap a model's training step, to compile its losses."""
    functions: dict[int, ModelLosses] = {}  # by models

    def step(model: Any, inputs: Any, targets: Any, auxiliary_vars: Any) -> Any:
        cell = cell_of(model.train_step, LOSSES)
        if cell is None:
            return native(model, inputs, targets, auxiliary_vars)
        library: Any = cell.cell_contents
        entry = functions.get(id(model))
        if entry is None or not entry.is_same_as(library):
            if entry is not None:
                losses.forget(entry.loss)
            entry = functions[id(model)] = ModelLosses(library, model)
            while len(functions) > MAX_KINDS:
                losses.forget(functions.pop(next(iter(functions))).loss)
        model_losses = entry
        if losses.is_refused(model_losses.loss):
            return native(model, inputs, targets, auxiliary_vars)

        def compiled_losses(*values: Any) -> Any:
            with model_losses.points.as_tensors(model.data):
                args = [*map(as_tensors, values)]
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
