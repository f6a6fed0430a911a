"""PaddleScience, as its examples are written."""

from __future__ import annotations

import tempfile
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from io import StringIO
from typing import Any

import numpy as np
import paddle

with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
    import ppsci

from ppsci.autodiff import hessian, jacobian
from ppsci.equation import PDE

from .clock import DECAY, RATE, Clock, Found, train
from .problem import Equation, Problem, columns, named

paddle.set_default_dtype("float32")


def derivative(out: dict[str, Any], term: str) -> Any:
    """By ``jacobian`` and ``hessian`` of the tensors of a call."""
    output, *by = named(term)
    found = out[output]
    while by:
        if len(by) > 1 and by[0] == by[1]:
            found, by = hessian(found, out[by[0]]), by[2:]
        else:
            found, by = jacobian(found, out[by[0]]), by[1:]
    return found


class Posed(PDE):
    """A problem as an equation with its coefficients, a net, and constraints."""

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__()
        self.problem, self.seed = problem, seed
        ppsci.utils.misc.set_random_seed(seed)
        self.coefficients = {}
        for name, (first, _) in problem.learnt.items():
            self.coefficients[name] = self.learnable(first)
        self.model = self.net()
        self.constraints = {}
        for part, points in zip(problem.parts, problem.drawn(seed), strict=True):
            names = [f"{part.name} {i}" for i in range(len(part.equations))]
            expressions = dict(
                zip(names, map(self.expression, part.equations), strict=True)
            )
            targets = [each.targets(points) for each in part.equations]
            data = {
                "name": "IterableNamedArrayDataset",
                "input": as_float32(columns(problem.inputs, points)),
                "label": as_float32(dict(zip(names, targets, strict=True))),
                "weight": as_float32(
                    {
                        n: np.full_like(t, part.weight, "float32")
                        for n, t in zip(names, targets, strict=True)
                    }
                ),
            }
            constraint = ppsci.constraint.SupervisedConstraint(
                {"dataset": data}, ppsci.loss.MSELoss("mean"), expressions, part.name
            )
            self.constraints[part.name] = constraint

    def learnable(self, first: float) -> Any:
        start = paddle.nn.initializer.Constant(first)
        parameter = paddle.create_parameter([], "float32", default_initializer=start)
        self.learnable_parameters.append(parameter)
        return parameter

    def net(self) -> Any:
        problem = self.problem
        model = ppsci.arch.MLP(
            problem.net_inputs(), problem.outputs, None, problem.hidden, "tanh"
        )
        for layer, (weight, bias) in zip(
            [*model.linears, model.last_fc], problem.start(self.seed), strict=True
        ):
            layer.weight.set_value(weight)
            layer.bias.set_value(bias)
        if problem.features is not None:
            model.register_input_transform(lambda at: problem.features(at, paddle))
        if problem.conditions is not None:
            model.register_output_transform(
                lambda at, out: problem.conditions(at, out, paddle)
            )
        return model

    def expression(self, equation: Equation) -> Any:
        def of(out: dict[str, Any]) -> Any:
            terms = {}
            for name in equation.terms:
                if name in self.coefficients:
                    terms[name] = self.coefficients[name]
                elif name in out:
                    terms[name] = out[name]
                else:
                    terms[name] = derivative(out, name)
            return equation.at(terms)

        return of


def as_float32(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value.astype("float32") for name, value in values.items()}


def trained(problem: Problem, seed: int, clock: Clock, context: Any) -> str:
    """Adam by the solver's own epochs."""
    posed = Posed(problem, seed)
    seen = columns(problem.inputs, paddle.to_tensor(clock.judge.points, "float32"))

    def look() -> Found:
        with paddle.no_grad():
            out = posed.model(seen)
        outputs = np.concatenate([out[n].numpy() for n in problem.outputs], 1)
        return outputs, {n: v.item() for n, v in posed.coefficients.items()}

    clock.start()
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        ppsci.utils.logger.init_logger("ppsci", None, "error")
    rate = paddle.optimizer.lr.InverseTimeDecay(RATE, DECAY)
    rate.by_epoch = False
    optimizer = ppsci.optimizer.Adam(rate)((posed.model, posed))
    solver = ppsci.solver.Solver(
        posed.model,
        posed.constraints,
        tempfile.gettempdir(),
        optimizer,
        log_freq=10**9,
        equation={"posed": posed},
    )
    solver.max_steps = 10**9

    def steps(count: int) -> int:
        solver.iters_per_epoch = count
        solver.train_epoch_func(solver, 1, solver.log_freq)
        return count

    with context as mode:
        train(clock, steps, look)
    return "" if mode is None else str(mode)


def adam(problem: Problem, seed: int, clock: Clock) -> str:
    return trained(problem, seed, clock, nullcontext())


def adam_in_taylor_mode(problem: Problem, seed: int, clock: Clock) -> str:
    from paddle_chainrules.adapters.paddlescience import taylor_mode

    return trained(problem, seed, clock, taylor_mode())
