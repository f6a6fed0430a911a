"""PaddleScience, with derivatives by Taylor series."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from paddle import Tensor
from paddle.nn import Layer

from ..paddle_side.listener import is_plain
from .state import ObjectState
from .taylor_mode import TaylorMode, are_matrices
from .whole_losses import MAX_KINDS, Loss, WholeLosses, mode_keys

LOGS = "ppsci.utils.expression"
"""The module in which the library logs losses."""


@contextmanager
def taylor_mode(*nets: Layer, jit: bool = False) -> Iterator[TaylorMode]:
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
        jit: compile the losses of all constraints whole, with their equations. Their
            Python code then runs only while they are compiled. Losses that can't be
            compiled run uncompiled.

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
    from ppsci.utils.expression import ExpressionSolver

    mode = TaylorMode("PaddleScience", jit=jit)
    native_jacobian, native_hessian = ad.Jacobians.__call__, ad.Hessians.__call__

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
            return native_jacobian(self, ys, xs, i, j, retain_graph, create_graph)

        if isinstance(xs, list | tuple):
            of_one = are_matrices(ys, *xs) and ys.shape[1] == 1  # else of their sum
            if not xs or not of_one:
                return mode.run_library(natively)
            results = mode.derivatives(natively, ys, xs, i, [0])
            return results if create_graph else [d.detach() for d in results]
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
            options = component, i, j, grad_y, retain_graph, create_graph
            return native_hessian(self, ys, xs, *options)

        if not are_matrices(ys, xs) or (ys.shape[1] > 1) == (component is None):
            return natively()
        if grad_y is not None:
            results = mode.derivative(natively, grad_y, xs, i, [j])
        else:
            results = mode.derivative(natively, ys, xs, component or 0, [i], [j])
        return results if create_graph else results.detach()

    def clear_mode_with(kind: type) -> None:
        native = kind._clear  # type: ignore[attr-defined]

        def clear(self: Any) -> None:
            native(self)
            mode.clear()

        mode.replace(kind, "_clear", clear)

    with mode:
        mode.replace(ad.Jacobians, "__call__", jacobian)
        mode.replace(ad.Hessians, "__call__", hessian)
        clear_mode_with(ad.Jacobians)
        clear_mode_with(ad.Hessians)
        mode.take_calls_of(Arch, nets)
        if mode.losses is not None:
            forward = _with_whole_losses(ExpressionSolver.train_forward, mode.losses)
            mode.replace(ExpressionSolver, "train_forward", forward)
        yield mode


def _with_whole_losses(native: Any, losses: WholeLosses) -> Any:
    """Wrap the function of all losses of a training step, to compile it."""
    functions: dict[Any, tuple[Any, Loss]] = {}

    def forward(
        self: Any,
        expr_dicts: Any,
        input_dicts: Any,
        model: Any,
        constraint: Any,
        label_dicts: Any,
        weight_dicts: Any,
    ) -> Any:
        terms = {name: c.loss for name, c in constraint.items()}
        constraints = {name: SimpleNamespace(loss=term) for name, term in terms.items()}

        def fn(inputs: Any, labels: Any, weights: Any) -> Any:
            graph_inputs = [
                {k: on_graph(x) for k, x in batch.items()} for batch in inputs
            ]
            arguments = expr_dicts, graph_inputs, model, constraints, labels, weights
            with losses_stay_tensors():
                return native.__get__(self, type(self))(*arguments)

        def state() -> ObjectState:
            reads = {"model": model, "losses": terms, "equations": expr_dicts}
            return ObjectState(reads, mode_keys(model))

        key_objects = self, model, *terms.values(), *expr_dicts
        modes = [layer.training for layer in model.sublayers(include_self=True)]
        key = *map(id, key_objects), *modes
        results = key_objects, Loss(fn, state, model.parameters)
        _, loss = functions.setdefault(key, results)
        while len(functions) > MAX_KINDS:
            losses.forget(functions.pop(next(iter(functions)))[1])
        tensors = all(isinstance(x, Tensor) for d in input_dicts for x in d.values())
        if losses.is_refused(loss) or not tensors or is_plain():
            arguments = (
                expr_dicts,
                input_dicts,
                model,
                constraint,
                label_dicts,
                weight_dicts,
            )
            return native.__get__(self, type(self))(*arguments)
        inputs = [{k: x.detach() for k, x in batch.items()} for batch in input_dicts]
        graph_inputs = inputs, label_dicts, weight_dicts
        total, named = losses.run(loss, graph_inputs, partial(loss.fn, *graph_inputs))
        return total, {name: float(value) for name, value in named.items()}

    return forward


@contextmanager
def losses_stay_tensors() -> Iterator[None]:
    """Keep tensors where the library logs a loss as a number."""
    kind: Any = Tensor
    item = kind.item

    def item_or_tensor(x: Tensor, *indices: int) -> Any:
        logs = sys._getframe(1).f_globals.get("__name__") == LOGS
        return x.detach() if logs and not indices else item(x, *indices)

    kind.item = item_or_tensor
    try:
        yield
    finally:
        kind.item = item


def on_graph(x: Tensor) -> Tensor:
    """Return a copy that losses can be differentiated with respect to."""
    x = x.detach()
    x.stop_gradient = False
    return x
