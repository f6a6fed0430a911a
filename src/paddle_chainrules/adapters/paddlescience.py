"""PaddleScience, with derivatives by Taylor series."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from paddle import Tensor
from paddle.nn import Layer

from .taylor_mode import TaylorMode, are_matrices


@contextmanager
def taylor_mode(*nets: Layer) -> Iterator[TaylorMode]:
    """Return a context in which PaddleScience's derivatives come with models' values.

    Those are ``ppsci.autodiff.jacobian`` and ``hessian``, and the derivatives in
    sympy's expressions of equations. Scripts stay as they are. The derivatives that a
    script asks for at the first step are computed by Taylor series in the forward pass
    of later steps, on the model's live parameters. ``backward`` puts its gradients
    where it also puts them without the context. Values and gradients are equal to
    rounding. All else runs natively, and a :class:`.NativeWarning` says once what and
    why.

    Args:
        nets: models that are none of ``ppsci.arch``; those are always taken.

    Returns:
        A context manager; printed, it tells how the models' calls ran.

    Raises:
        ImportError: there is no PaddleScience.

    Examples:
        with taylor_mode():
            solver.train()
    """
    try:
        from ppsci.arch.base import Arch
        from ppsci.autodiff import ad
    except ModuleNotFoundError as error:
        raise ImportError(
            f"PaddleScience can't be imported ({error}); install it: pip install "
            "paddlesci"
        ) from error
    mode = TaylorMode("PaddleScience")
    first, second = ad.Jacobians.__call__, ad.Hessians.__call__

    def jacobian(
        self: Any,
        ys: Any,
        xs: Any,
        i: int = 0,
        j: int | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = True,
    ) -> Any:
        def natively() -> Any:
            return first(self, ys, xs, i, j, retain_graph, create_graph)

        if isinstance(xs, list | tuple):
            of_one = are_matrices(ys, *xs) and ys.shape[1] == 1  # else of their sum
            if not xs or not of_one:
                return mode.of_library(natively)
            found = mode.derivatives(natively, ys, xs, i, [0])
            return found if create_graph else [d.detach() for d in found]
        if not are_matrices(ys, xs):
            return natively()
        columns = range(xs.shape[1]) if j is None or xs.shape[1] == 1 else [j]
        slope = mode.derivative(natively, ys, xs, i, columns)
        return slope if create_graph else slope.detach()

    def hessian(
        self: Any,
        ys: Any,
        xs: Any,
        component: int | None = None,
        i: int = 0,
        j: int = 0,
        grad_y: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = True,
    ) -> Tensor:
        def natively() -> Tensor:
            given = component, i, j, grad_y, retain_graph, create_graph
            return second(self, ys, xs, *given)

        if not are_matrices(ys, xs) or (ys.shape[1] > 1) == (component is None):
            return natively()
        if grad_y is not None:
            found = mode.derivative(natively, grad_y, xs, i, [j])
        else:
            found = mode.derivative(natively, ys, xs, component or 0, [i], [j])
        return found if create_graph else found.detach()

    def cleared(kind: type) -> None:
        native = kind._clear  # type: ignore[attr-defined]

        def clear(self: Any) -> None:
            native(self)
            mode.clear()

        mode.replace(kind, "_clear", clear)

    with mode:
        mode.replace(ad.Jacobians, "__call__", jacobian)
        mode.replace(ad.Hessians, "__call__", hessian)
        cleared(ad.Jacobians)
        cleared(ad.Hessians)
        mode.take_calls_of(Arch, nets)
        yield mode
