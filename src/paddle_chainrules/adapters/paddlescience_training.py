"""Solvers of PaddleScience that train by second-order methods."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import paddle
from paddle import Tensor

from ..transforms.containers.tree import flatten_tree
from .functional_loss import NetCall, Term
from .paddlescience import losses_stay_tensors, on_graph
from .searches import SearchOptimizer, overwrite, shape_and_dtype, state_of
from .state import ObjectState
from .whole_losses import mode_keys

SUMS = "Sum"
"""The library's aggregator that adds losses up."""


class LBFGS(SearchOptimizer):
    """An optimizer for ``ppsci.solver.Solver``, which takes a step in each iteration.

    It has this name since a solver hands the function of its loss to optimizers of this
    name alone.

    Args:
        method, options: the method's name, and its options.
        models: a model, or several models and equations with unknowns.
    """

    def __init__(self, method: str, options: dict[str, Any], models: Any) -> None:
        every = models if isinstance(models, list | tuple) else [models]
        params = [p for model in every for p in model.parameters()]
        super().__init__(method, options, params)

    def step(self, closure: Callable[[], Tensor]) -> None:
        """Take a step.

        Args:
            closure: the solver's; it closes over the solver and its batch.

        Raises:
            ValueError: the loss is none that the method can minimize.
            CaptureError: it can't be compiled.
        """
        code, cells = closure.__code__, closure.__closure__ or ()
        names = dict(zip(code.co_freevars, cells, strict=True))
        solver = names["solver"].cell_contents
        batch = [
            names[name].cell_contents
            for name in ("input_dicts", "label_dicts", "weight_dicts")
        ]
        loss_dict = names["loss_dict"].cell_contents
        if self.loss is not None and not self.loss.is_of(solver):
            self.loss = None
        search = self.search_at(batch, lambda: SolverLoss(solver, self, batch))
        value, had_ended = None, bool(search.reason)
        if not had_ended:
            value = search.step()
        if value is None and not had_ended:
            print(f"{self.method} has ended: {search.reason}.")
        count = solver.global_step + 1
        is_logged = count % solver.log_freq == 0 or count in (1, solver.max_steps)
        if value is None or is_logged:
            value, by_constraint = self.loss.values()
            loss_dict.update(by_constraint)
        loss_dict["loss"] = value

    def clear_grad(self, *_: Any, **__: Any) -> None:
        """Do nothing: a search has gradients of its own."""


class SolverLoss:
    """The loss of a solver at the points of a batch.

    Args:
        solver: the solver.
        optimizer: what it trains.
        batch: inputs, labels and weights, for each constraint.
    """

    def __init__(self, solver: Any, optimizer: LBFGS, batch: Sequence[Any]) -> None:
        self._solver, self._method = solver, optimizer.method
        self._data = _tensors_of(batch, copied=True)
        self._losses = {name: c.loss for name, c in solver.constraint.items()}
        self._expressions = tuple(c.output_expr for c in solver.constraint.values())
        self._state: Any = None
        self.tensors, self.net_tensors = optimizer.trained(solver.model)
        sizes = [{len(x) for x in inputs.values()} for inputs in self._data[0]]
        is_known = all(len(size) == 1 for size in sizes)
        self.points = [n for size in sizes for n in size] if is_known else []

    def total(self) -> Tensor:
        """Return the loss."""
        with losses_stay_tensors():
            found, _ = self._forward(self._solver.model, self._losses)
        return self._sum(found)

    def values(self) -> tuple[float, dict[str, float]]:
        """Return the loss, and that of each constraint, for the solver's log."""
        found, by_constraint = self._forward(self._solver.model, self._losses)
        return float(self._sum(found)), {k: float(x) for k, x in by_constraint.items()}

    def terms(self, call_net: Callable[[NetCall], NetCall] | None = None) -> list[Term]:
        """Return the weighted means of squares."""
        from ppsci.loss import MSELoss

        method = self._method
        found: list[Term] = []

        def noted(name: str, loss: Any) -> Any:
            if type(loss) is not MSELoss:
                raise ValueError(
                    f"{method} needs a loss of mean squares, and the constraint {name} "
                    f"has {type(loss).__name__}; use ppsci.loss.MSELoss, or "
                    '"self_scaled_broyden", which takes any loss'
                )

            def note(outputs: Any, labels: Any, weights: Any) -> Any:
                found.extend(_terms(loss, outputs, labels, weights))
                return loss(outputs, labels, weights)

            return note

        aggregator = type(self._solver.loss_aggregator).__name__
        if aggregator != SUMS:
            raise ValueError(
                f"{method} needs a sum of losses, and the solver has {aggregator}; "
                'leave out loss_aggregator, or use "self_scaled_broyden"'
            )
        net = self._solver.model
        losses = {name: noted(name, loss) for name, loss in self._losses.items()}
        with losses_stay_tensors():
            self._forward(net if call_net is None else call_net(net), losses)
        return found

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Return a context for the library's code while it is compiled."""
        yield

    def is_of(self, solver: Any) -> bool:
        """Tell whether it is the loss of a solver, and that has changed nothing."""
        losses = {name: c.loss for name, c in solver.constraint.items()}
        return solver is self._solver and losses == self._losses

    def moved_to(self, batch: Sequence[Any]) -> bool | None:
        """Take other points; tell whether there were others; None if it can't."""
        if self._state is None:
            reads = {
                "model": self._solver.model,
                "losses": self._losses,
                "equations": self._expressions,
            }
            modes = mode_keys(self._solver.model)
            self._state = state_of(lambda: ObjectState(reads, modes))
        if not self._state.is_same():
            self._state = None
            return None
        new = _tensors_of(batch)
        if self._is_at(new):
            return False
        return True if overwrite(self._data, new) else None

    def _is_at(self, data: Any) -> bool:
        """Tell whether these are equal points."""
        old, new = flatten_tree(self._data)[0], flatten_tree(data)[0]
        return [*map(shape_and_dtype, old)] == [*map(shape_and_dtype, new)] and all(
            bool((a == b).all()) for a, b in zip(old, new, strict=True)
        )

    def _forward(self, net: Any, losses: Any) -> Any:
        """Return the library's losses by their names, and by constraints."""
        inputs, labels, weights = self._data
        graph_inputs = [
            {k: on_graph(x) for k, x in points.items()} for points in inputs
        ]
        constraints = {
            name: SimpleNamespace(loss=loss) for name, loss in losses.items()
        }
        return self._solver.forward_helper.train_forward(
            self._expressions, graph_inputs, net, constraints, labels, weights
        )

    def _sum(self, losses: Any) -> Tensor:
        result: Tensor = self._solver.loss_aggregator(losses, self._solver.global_step)
        return result.sum()


def _terms(loss: Any, outputs: Any, labels: Any, weights: Any) -> Iterator[Term]:
    """Yield what ``ppsci.loss.MSELoss`` adds up."""
    for key, label in labels.items():
        errors = outputs[key] - label
        for factor in ((weights or {}).get(key), outputs.get("area")):
            if factor is not None:
                errors = errors * paddle.sqrt(factor)
        weight = loss.weight.get(key) if isinstance(loss.weight, dict) else loss.weight
        size = math.prod(errors.shape) if loss.reduction == "sum" else 1
        yield Term(errors, float(1.0 if weight is None else weight) * size)


def _tensors_of(batch: Sequence[Any], copied: bool = False) -> Any:
    """Return the tensors of a batch, off the graph."""

    def off_graph(x: Tensor) -> Tensor:
        return x.detach().clone() if copied else x.detach()

    return [
        [{k: off_graph(x) for k, x in (d or {}).items()} for d in dicts]
        for dicts in batch
    ]
