"""PyTorch with torch-levenberg-marquardt, as its documentation would have it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch_levenberg_marquardt.training import LevenbergMarquardtModule

from .by_jvp import Posed
from .clock import Clock, Found
from .problem import Problem


class Residuals(torch.nn.Module):
    """What each row (equation, point, target) misses, as a net whose targets are zero.

    The package takes the Jacobian of each row by itself. So a row takes all equations,
    and keeps one.
    """

    def __init__(self, made: Posed) -> None:
        super().__init__()
        self.made = made
        net = [p for pair in made.params["net"] for p in pair]
        self.net = torch.nn.ParameterList(net)
        learnt = {name: made.params[name] for name in made.problem.learnt}
        self.learnt = torch.nn.ParameterDict(learnt)

    def now(self) -> dict[str, Any]:
        """Return the parameters as :class:`Posed` has them."""
        net = [*self.net]  # a slice of it would be of new parameters
        pairs = [*zip(net[::2], net[1::2], strict=True)]
        return {"net": pairs, **self.learnt}

    def forward(self, rows: Any) -> Any:
        count = len(self.made.problem.inputs)
        points, targets, scales = rows[:, :count], rows[:, count], rows[:, count + 1 :]
        missed = [
            found[:, 0] - targets
            for part in self.made.problem.parts
            for found in self.made.residuals(
                self.now(), part, points, [0.0] * len(part.equations)
            )
        ]
        return (torch.stack(missed, 1) * scales).sum(1, keepdim=True)


def rows_of(made: Posed) -> Any:
    """Return points, targets, and by what each equation's residual is multiplied."""
    rows, done = [], 0
    equations = sum(len(part.equations) for part in made.problem.parts)
    for part, (points, targets) in zip(made.problem.parts, made.given, strict=True):
        for target in targets:
            scales = torch.zeros(len(points), equations, dtype=points.dtype)
            scales[:, done] = part.weight**0.5
            rows.append(torch.cat([points, target, scales / len(points) ** 0.5], 1))
            done += 1
    return torch.cat(rows)


def least_squares(problem: Problem, seed: int, clock: Clock) -> str:
    """Take Levenberg-Marquardt steps in float64, by Cholesky's factors."""
    torch.set_num_threads(1)

    def array(values: Any) -> Any:
        return torch.as_tensor(np.array(values), dtype=torch.float64)

    made = Posed(problem, seed, torch, torch.func.jvp, array)
    model, seen = Residuals(made), array(clock.judge.points)
    rows = rows_of(made)
    zeros = torch.zeros(len(rows), 1, dtype=torch.float64)
    trainer = LevenbergMarquardtModule(model, solve_method="cholesky")

    @torch.no_grad()
    def look() -> Found:
        params = model.now()
        out = made.fields(params, seen)
        values = torch.cat([out[name] for name in problem.outputs], 1)
        return values.numpy(), {n: params[n].item() for n in problem.learnt}

    clock.start()
    done = 0
    while not clock.over(done, look):
        _, _, ended, _ = trainer.training_step(rows, zeros)
        done += 1
        if ended:
            clock.last(done, look)
            return "ended by itself: no damping lets a step lower the loss"
    return ""
