"""JAX with optax, jaxopt and optimistix, as their documentation would have it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import jax
import numpy as np
import optax
from jax import numpy as jnp
from jax.flatten_util import ravel_pytree

from .by_jvp import Posed
from .clock import BROYDEN_AFTER, LBFGS_AFTER, Clock, Found, rate_at, train
from .problem import Part, Problem

LENGTH = 100
"""Steps of Adam in one compiled loop."""


def posed(problem: Problem, seed: int, dtype: str) -> Posed:
    """Return a problem in arrays of this dtype."""
    if dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    return Posed(problem, seed, jnp, jax.jvp, lambda a: jnp.asarray(a, dtype))


def looking(posed: Posed, clock: Clock) -> Callable[[Any], Found]:
    """Return the outputs at the clock's points, by one compiled function."""
    seen, outputs = posed.array(clock.judge.points), jax.jit(posed.fields)

    def look(params: Any) -> Found:
        out = outputs(params, seen)
        values = np.concatenate([np.asarray(out[n]) for n in posed.problem.outputs], 1)
        return values, {n: float(params[n]) for n in posed.problem.learnt}

    return look


def adam(problem: Problem, seed: int, clock: Clock) -> str:
    """Derivatives in forward mode, steps by ``lax.scan``, in float32."""
    made = posed(problem, seed, "float32")
    by_scan(made.loss, made.params, clock, looking(made, clock), LENGTH)
    return ""


def by_scan(
    loss: Callable[[Any], Any],
    params: Any,
    clock: Clock,
    look: Callable[[Any], Found],
    length: int,
) -> tuple[Any, int]:
    """Train parameters by compiled loops of this length."""
    optimizer = optax.adam(rate_at)

    def step(carry: Any, _: Any) -> Any:
        params, state = carry
        value, grads = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    loop = jax.jit(lambda carry: jax.lax.scan(step, carry, None, length)[0])
    clock.start()
    carry = params, optimizer.init(params)

    def steps(count: int) -> int:
        nonlocal carry
        loops = max(1, count // length)
        for _ in range(loops):
            carry = loop(carry)
        jax.block_until_ready(carry)
        return length * loops

    done = train(clock, steps, lambda: look(carry[0]))
    return carry[0], done


def adam_first(
    made: Posed, clock: Clock, look: Callable[[Any], Found], part: float
) -> tuple[Any, int]:
    """Train by Adam for a part of the time."""
    whole = clock.limit
    clock.limit = part * whole
    found = by_scan(made.loss, made.params, clock, look, LENGTH)
    clock.limit = whole
    return found


def until_over(
    step: Callable[..., tuple[Any, ...]],
    carry: tuple[Any, ...],
    done: int,
    clock: Clock,
    look: Callable[[Any], Found],
    ended: Callable[..., Any] = lambda *_: False,
) -> str:
    """Take compiled steps until the time is over, or until they end by themselves.

    Args:
        carry: the parameters, and what the steps need besides.
        ended: whether they have, asked at every tenth step.
    """
    while not clock.over(done, partial(look, carry[0])):
        carry = jax.block_until_ready(step(*carry))
        done += 1
        if done % 10 == 0 and ended(*carry):
            clock.last(done, partial(look, carry[0]))
            return "ended by itself"
    return ""


def adam_lbfgs(problem: Problem, seed: int, clock: Clock) -> str:
    """Adam for a part of the time, then optax's L-BFGS with its zoom, in float64."""
    made = posed(problem, seed, "float64")
    look = looking(made, clock)
    params, done = adam_first(made, clock, look, LBFGS_AFTER)
    optimizer = optax.lbfgs(memory_size=100)
    value_and_grad = optax.value_and_grad_from_state(made.loss)

    @jax.jit
    def step(params: Any, state: Any) -> Any:
        value, grads = value_and_grad(params, state=state)
        updates, state = optimizer.update(
            *(grads, state, params), value=value, grad=grads, value_fn=made.loss
        )
        return optax.apply_updates(params, updates), state

    return until_over(step, (params, optimizer.init(params)), done, clock, look)


def by_optimistix(
    solver: Any,
    function: Callable[[Any], Any],
    first: Any,
    done: int,
    clock: Clock,
    look: Callable[[Any], Found],
) -> str:
    """Take steps of a solver, compiled, as its documentation does by hand."""
    import equinox as eqx

    shape = jax.eval_shape(function, first)
    told: dict[str, Any] = {"fn": lambda y, _: (function(y), None), "args": None}
    told |= {"options": {}, "tags": frozenset()}
    step = eqx.filter_jit(lambda y, state: solver.step(y=y, state=state, **told)[:2])
    ended = eqx.filter_jit(
        lambda y, state: solver.terminate(y=y, state=state, **told)[0]
    )
    state = solver.init(y=first, f_struct=shape, aux_struct=None, **told)
    _, after = eqx.filter_eval_shape(step, first, state)
    # Of other dtypes than after a step, it would be compiled twice.
    state = jax.tree.map(
        lambda a, b: jnp.asarray(a, b.dtype) if hasattr(b, "dtype") else a, state, after
    )
    return until_over(step, (first, state), done, clock, look, ended)


def least_squares(problem: Problem, seed: int, clock: Clock) -> str:
    """Take jaxopt's Levenberg-Marquardt in float64, by Jacobians point by point.

    optimistix has the method, too, but takes no Jacobian, and its own needs 20 s a step
    where jaxopt needs one.
    """
    import jaxopt

    made = posed(problem, seed, "float64")
    first, restored = ravel_pytree(made.params)

    def missed(flat: Any, part: Part, point: Any, targets: Any) -> Any:
        row = point[None], [target[None] for target in targets]
        return jnp.concatenate(made.residuals(restored(flat), part, *row))[:, 0]

    def jacobian(flat: Any) -> Any:
        rows = []
        for part, (points, targets) in zip(problem.parts, made.given, strict=True):
            of = jax.jacrev(lambda flat, *given, part=part: missed(flat, part, *given))
            found = jax.vmap(of, (None, 0, 0))(flat, points, targets)
            by = (part.weight / len(points)) ** 0.5
            rows.append(by * jnp.moveaxis(found, 1, 0).reshape(-1, flat.size))
        return jnp.concatenate(rows)

    def residual(flat: Any) -> Any:
        return jnp.concatenate(made.scaled(restored(flat)))[:, 0]

    solver = jaxopt.LevenbergMarquardt(
        residual, jac_fun=jacobian, materialize_jac=True, solver="cholesky"
    )
    object.__setattr__(solver, "_jac_fun", jacobian)  # jaxopt 0.8.5 forgets it
    outputs = looking(made, clock)
    look = lambda flat: outputs(restored(flat))  # noqa: E731
    clock.start()
    clock.over(0, lambda: look(first))
    state = jax.jit(solver.init_state)(first)
    return until_over(jax.jit(solver.update), (first, state), 0, clock, look)


EXACT = {"rtol": 1e-15, "atol": 1e-30}
"""Tolerances of a search that the clock ends."""


def adam_broyden(problem: Problem, seed: int, clock: Clock) -> str:
    """Adam for a short while, then self-scaled Broyden as published, in float64.

    Of Bioli and Abarrategi, "Self-Scaled Broyden Family of Quasi-Newton Methods in
    JAX", 2026: github.com/IvanBioli/optimistix, branch zoom_linesearch.
    """
    import optimistix as optx

    made = posed(problem, seed, "float64")
    look = looking(made, clock)
    params, done = adam_first(made, clock, look, BROYDEN_AFTER)
    search = optx.Zoom(initial_guess_strategy="increase")
    solver = optx.SSBroyden(**EXACT, search=search)
    return by_optimistix(solver, made.loss, params, done, clock, look)
