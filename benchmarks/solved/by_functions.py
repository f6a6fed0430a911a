"""This package's own way: ``derivatives``, ``optimizers`` and ``scan``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle

from paddle_chainrules import FCNet, derivatives, jit, optimizers, scan, value_and_grad
from paddle_chainrules.optimizers import Minimum, bfgs, lbfgs

from .clock import BROYDEN_AFTER, DECAY, LBFGS_AFTER, RATE, Clock, Found, Over, train
from .problem import Array, Part, Problem, columns


class Posed:
    """A problem in Paddle's tensors of one dtype."""

    def __init__(self, problem: Problem, seed: int, dtype: str) -> None:
        self.problem, self.dtype = problem, dtype
        self.net = FCNet(tuple(problem.widths()), "tanh", dtype)
        self.params: dict[str, Any] = {"net": net_of(problem.start(seed), dtype)}
        for name, (start, _) in problem.learnt.items():
            self.params[name] = paddle.to_tensor([[start]], dtype)
        self.given: list[dict[str, Any]] = []
        """Of each part the coordinates, and the targets by the equation's number."""
        for part, points in zip(problem.parts, problem.drawn(seed), strict=True):
            at = columns(problem.inputs, self.tensor(points))
            targets = [self.tensor(e.targets(points)) for e in part.equations]
            self.given.append({"at": at, "targets": targets})

    def tensor(self, values: Array) -> Any:
        return paddle.to_tensor(values, self.dtype)

    def fields(self, params: Any, at: Any) -> dict[str, Any]:
        """The outputs by name."""
        problem = self.problem
        features = at if problem.features is None else problem.features(at, paddle)
        found = self.net(params["net"], paddle.concat([*features.values()], -1))
        out = columns(problem.outputs, found)
        return out if not problem.conditions else problem.conditions(at, out, paddle)

    def residuals(self, params: Any, part: Part, at: Any, targets: Any) -> list[Any]:
        """Of each equation what it misses its target by, [n, 1]."""
        names = self.problem.derivatives(part)
        terms = dict(at) | {name: params[name] for name in self.problem.learnt}
        terms |= derivatives(self.fields, params, at, names)
        return [
            each.at(terms) - target
            for each, target in zip(part.equations, targets, strict=True)
        ]

    def loss(self, params: Any, until: Any = None) -> Any:
        """Inside of the problem only of times until then, where that is given."""
        total = 0.0
        for part, given in zip(self.problem.parts, self.given, strict=True):
            for missed in self.residuals(params, part, **given):
                squares = missed * missed
                if until is not None and part.name == "inside":
                    squares = squares * (given["at"]["t"] <= until).astype(self.dtype)
                total = total + part.weight * squares.mean()
        return total

    def looking(self, clock: Clock) -> Callable[[Any], Found]:
        """The outputs at the clock's points, by one program."""
        at = columns(self.problem.inputs, self.tensor(clock.judge.points))
        fields = jit(self.fields)

        def look(params: Any) -> Found:
            out = fields(params, at)
            outputs = np.concatenate([out[n].numpy() for n in self.problem.outputs], 1)
            return outputs, {n: params[n].item() for n in self.problem.learnt}

        return look


def net_of(layers: list[tuple[Array, Array]], dtype: str) -> dict[str, Any]:
    """Parameters of ``FCNet``."""
    return {
        f"{i}.{name}": paddle.to_tensor(value, dtype)
        for i, pair in enumerate(layers)
        for name, value in zip(("weight", "bias"), pair, strict=True)
    }


def adam(problem: Problem, seed: int, clock: Clock) -> str:
    """Adam, all steps of a while as one loop of machine code."""
    posed = Posed(problem, seed, "float32")
    look = posed.looking(clock)
    by_scan(posed.loss, posed.params, clock, look)
    return ""


def adam_lbfgs(problem: Problem, seed: int, clock: Clock) -> str:
    """Adam for a part of the time and L-BFGS then, in float64."""
    return adam_and(lbfgs, LBFGS_AFTER, problem, seed, clock, memory=100)


def adam_broyden(problem: Problem, seed: int, clock: Clock) -> str:
    """Adam for a short while and self-scaled Broyden then, in float64."""
    return adam_and(bfgs, BROYDEN_AFTER, problem, seed, clock)


ENDLESS: Any = {"steps": 10**9, "tolerance_grad": 0.0, "tolerance_change": 0.0}
"""Of a search that the clock ends."""


def adam_and(
    method: Callable[..., Minimum],
    part: float,
    problem: Problem,
    seed: int,
    clock: Clock,
    **options: Any,
) -> str:
    posed = Posed(problem, seed, "float64")
    look, whole = posed.looking(clock), clock.limit
    clock.limit = part * whole
    params, done = by_scan(posed.loss, posed.params, clock, look)
    clock.limit = whole
    try:
        found = method(
            posed.loss,
            params,
            **options,
            **ENDLESS,
            on_step=clock.until_over(look, done),
        )
    except Over:
        return ""
    clock.last(done + found.steps, lambda: look(found.params))
    return f"{method.__name__} ended by itself: {found.reason}"


SPANS, SOLVED = 20, 1e-3
"""How often a span of times grows, and what part of the loss at first lets it."""


def lbfgs_in_spans(problem: Problem, seed: int, clock: Clock) -> str:
    """L-BFGS in float64, of times from the first on, more of them as they are solved.

    Wight and Zhao, "Solving Allen-Cahn and Cahn-Hilliard equations using the adaptive
    physics informed neural networks", 2020.
    """
    posed = Posed(problem, seed, "float64")
    look, params, taken, reason = posed.looking(clock), posed.params, 0, ""
    times = posed.given[0]["at"]["t"]
    first, last = times.min(), times.max()
    until = last.clone()
    loss = jit(lambda params: posed.loss(params, until))
    clock.start()
    clock.over(0, lambda: look(params))
    enough = SOLVED * float(loss(params))

    def on_step(_: int, new: Any, value: float) -> None:
        nonlocal params, taken
        params, taken = new, taken + 1
        if clock.over(taken, lambda: look(new)):
            raise Over
        if part < SPANS and value < enough:
            raise _Solved

    for part in range(1, SPANS + 1):
        paddle.assign(first + (last - first) * (part / SPANS), until)
        try:
            found = lbfgs(loss, params, memory=100, **ENDLESS, on_step=on_step)
        except _Solved:
            continue
        except Over:
            return f"in part {part} of {SPANS}"
        params, reason = found.params, found.reason
    clock.last(taken, lambda: look(params))
    return f"lbfgs ended by itself: {reason}"


class _Solved(Exception):
    """Times are solved well enough for more of them."""


def by_scan(
    loss: Callable[[Any], Any], params: Any, clock: Clock, look: Callable[[Any], Found]
) -> tuple[Any, int]:
    """Train parameters of which ``look`` says what they give, for so many steps."""
    adam = optimizers.adam(optimizers.schedules.inverse_time_decay(RATE, DECAY))

    @jit
    def step(carry: Any, _: Any) -> Any:
        params, state = carry
        value, grads = value_and_grad(loss)(params)
        updates, state = adam.update(grads, state, params)
        return (optimizers.apply_updates(params, updates), state), value

    clock.start()
    carry = params, adam.init(params)

    def steps(count: int) -> int:
        nonlocal carry
        carry, _ = scan(step, carry, length=count)
        return count

    done = train(clock, steps, lambda: look(carry[0]))
    return carry[0], done
