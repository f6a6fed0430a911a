"""DeepXDE on Paddle, with derivatives by Taylor series."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paddle import Tensor
from paddle.nn import Layer

from .taylor_mode import TaylorMode, are_matrices

SETTINGS = ("auxiliary_vars",)
"""Attributes that a model sets on its net, and that no net of the library reads."""


@contextmanager
def taylor_mode(*nets: Layer) -> Iterator[TaylorMode]:
    """Return a context in which ``dde.grad`` is computed with the nets' values.

    Scripts stay as they are. The derivatives that a script asks for at the first step
    are computed by Taylor series in the forward pass of later steps, on the net's live
    parameters. ``backward`` puts its gradients where it also puts them without the
    context. Values and gradients are equal to rounding. All else runs natively, and a
    :class:`.NativeWarning` says once what and why.

    Args:
        nets: nets that are none of ``dde.nn``; those are always taken.

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
    from deepxde.nn.paddle.nn import NN

    mode = TaylorMode("DeepXDE", apart=SETTINGS)
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
        yield mode
