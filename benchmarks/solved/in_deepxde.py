"""DeepXDE, on the backend that DDE_BACKEND names, as its examples are written."""

from __future__ import annotations

import os
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import numpy as np

with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
    import deepxde as dde

from .clock import DECAY, LBFGS_AFTER, RATE, Clock, Found
from .problem import Array, Equation, Problem, columns, named

BACKEND = os.environ.get("DDE_BACKEND", "")
LOOKS = 50
"""Steps of L-BFGS between two looks at the clock."""


def library() -> Any:
    """The backend's module of functions."""
    if BACKEND == "paddle":
        import paddle

        return paddle
    import torch

    torch.set_num_threads(1)
    return torch


def features_of(problem: Problem, lib: Any) -> Any:
    """What the net takes, of coordinates [n, d]."""
    features, inputs = problem.features, problem.inputs
    return lambda x: lib.concat([*features(columns(inputs, x), lib).values()], 1)


def conditions_of(problem: Problem, lib: Any) -> Any:
    """What meets conditions by itself, of coordinates and outputs."""
    conditions, inputs, outputs = problem.conditions, problem.inputs, problem.outputs

    def transform(x: Any, y: Any) -> Any:
        at, out = columns(inputs, x), columns(outputs, y)
        return lib.concat([*conditions(at, out, lib).values()], 1)

    return transform


class Watch(dde.callbacks.Callback):
    """Asks the clock after each step."""

    def __init__(self, clock: Clock, learnt: dict[str, Any]) -> None:
        super().__init__()
        self.clock, self.learnt, self.steps = clock, learnt, 0

    def look(self) -> Found:
        values = self.model.predict(self.clock.judge.points)
        return values, {name: v.item() for name, v in self.learnt.items()}

    def on_train_begin(self) -> None:
        if not self.steps:
            self.clock.over(0, self.look)

    def on_batch_end(self) -> None:
        self.steps = self.model.train_state.iteration
        if self.clock.over(self.steps, self.look):
            self.model.stop_training = True


class Posed:
    """A problem as data, net and model of DeepXDE."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self.problem, self.lib = problem, library()
        dde.config.set_random_seed(seed)
        self.learnt = {
            n: dde.Variable(first) for n, (first, _) in problem.learnt.items()
        }
        points = problem.drawn(seed)
        inside, *others = problem.parts
        box = np.stack([np.min(points[0], 0) - 1, np.max(points[0], 0) + 1])
        geometry = (
            dde.geometry.Hypercube(*box)
            if box.shape[1] > 1
            else (dde.geometry.Interval(*box[:, 0]))
        )
        bcs, weights = [], [inside.weight] * len(inside.equations)
        for part, at in zip(others, points[1:], strict=True):
            for each in part.equations:
                condition = dde.icbc.PointSetOperatorBC(
                    at, each.targets(at), self.operator(each)
                )
                bcs.append(condition)
                weights.append(part.weight)

        def sources(x: Any) -> Any:
            return np.concatenate([e.targets(x) for e in inside.equations], 1)

        def residual(x: Any, y: Any, source: Any) -> list[Any]:
            source = self.lib.as_tensor(source)
            return [
                self.value(each, x, y) - source[:, i : i + 1]
                for i, each in enumerate(inside.equations)
            ]

        self.data = dde.data.PDE(
            geometry, residual, bcs, anchors=points[0], auxiliary_var_function=sources
        )
        self.weights = weights
        net = dde.nn.FNN(problem.widths(), "tanh", "Glorot normal")
        for layer, pair in zip(net.linears, problem.start(seed), strict=True):
            self.set(layer, *pair)
        if problem.features is not None:
            net.apply_feature_transform(features_of(problem, self.lib))
        if problem.conditions is not None:
            net.apply_output_transform(conditions_of(problem, self.lib))
        self.model = dde.Model(self.data, net)

    def set(self, layer: Any, weight: Array, bias: Array) -> None:
        """Numbers of a layer."""
        if BACKEND == "paddle":
            layer.weight.set_value(weight)
            layer.bias.set_value(bias)
        else:
            layer.load_state_dict(
                {"weight": self.lib.tensor(weight.T), "bias": self.lib.tensor(bias)}
            )

    def derivative(self, x: Any, y: Any, term: str) -> Any:
        """By ``jacobian`` and ``hessian``, one in the other where it is higher."""
        problem = self.problem
        output, *by = named(term)
        i = problem.outputs.index(output)
        axes = [problem.inputs.index(letter) for letter in by]
        if not axes:
            return y[:, i : i + 1]
        if len(axes) == 1:
            return dde.grad.jacobian(y, x, i=i, j=axes[0])
        component = {"component": i} if len(problem.outputs) > 1 else {}
        found = dde.grad.hessian(y, x, i=axes[0], j=axes[1], **component)
        if len(axes) == 3:
            return dde.grad.jacobian(found, x, i=0, j=axes[2])
        if len(axes) == 4:
            return dde.grad.hessian(found, x, i=axes[2], j=axes[3])
        return found

    def value(self, equation: Equation, x: Any, y: Any) -> Any:
        terms = columns(self.problem.inputs, x) | self.learnt
        for name in equation.terms:
            if name not in terms:
                terms[name] = self.derivative(x, y, name)
        return equation.at(terms)

    def operator(self, equation: Equation) -> Any:
        return lambda x, y, _: self.value(equation, x, y)


def train(problem: Problem, seed: int, clock: Clock, then: bool, context: Any) -> str:
    """Adam to the end, or for half of the time and L-BFGS then."""
    posed = Posed(problem, seed)
    whole = clock.limit
    watch = Watch(clock, posed.learnt)
    rate = {"decay": ("inverse time", DECAY)}
    if BACKEND != "paddle":
        rate = {"decay": ("inverse time", 1.0 / DECAY, 1.0)}
    variables = [*posed.learnt.values()] or None
    quiet = {"verbose": 0, "display_every": 10**9, "callbacks": [watch]}
    clock.limit = LBFGS_AFTER * whole if then else whole
    clock.start()
    with context as mode, redirect_stdout(StringIO()):
        posed.model.compile(
            "adam",
            lr=RATE,
            loss_weights=posed.weights,
            external_trainable_variables=variables,
            verbose=0,
            **rate,
        )
        posed.model.train(iterations=10**9, **quiet)
        clock.limit = whole
        if then:
            dde.optimizers.set_LBFGS_options(maxiter=10**9, gtol=0, ftol=0)
            dde.optimizers.config.LBFGS_options["iter_per_step"] = LOOKS
            posed.model.compile(
                "L-BFGS",
                loss_weights=posed.weights,
                external_trainable_variables=variables,
                verbose=0,
            )
            posed.model.train(**quiet)
            clock.last(watch.steps, watch.look)
    return "" if mode is None else str(mode)


def adam(problem: Problem, seed: int, clock: Clock) -> str:
    return train(problem, seed, clock, False, nullcontext())


def adam_lbfgs(problem: Problem, seed: int, clock: Clock) -> str:
    return train(problem, seed, clock, True, nullcontext())


def adam_lbfgs_in_float64(problem: Problem, seed: int, clock: Clock) -> str:
    dde.config.set_default_float("float64")
    return train(problem, seed, clock, True, nullcontext())


def adam_in_taylor_mode(problem: Problem, seed: int, clock: Clock) -> str:
    from paddle_chainrules.adapters.deepxde import taylor_mode

    return train(problem, seed, clock, False, taylor_mode())
