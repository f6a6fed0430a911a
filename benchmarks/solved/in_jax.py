"""JAX with optax, written by hand as its documentation would have it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import jax
import numpy as np
import optax
from jax import numpy as jnp

from .clock import Clock, Found, rate_at, train
from .problem import Part, Problem, columns


def adam(problem: Problem, seed: int, clock: Clock) -> str:
    """Derivatives forward in forward mode, steps by ``lax.scan``, in float32."""
    params: Any = {"net": jax.tree.map(jnp.asarray, problem.start(seed))}
    params |= {name: jnp.array(first) for name, (first, _) in problem.learnt.items()}
    drawn = problem.drawn(seed)
    given = [
        (
            jnp.asarray(points, "float32"),
            [jnp.asarray(e.targets(points)) for e in part.equations],
        )
        for part, points in zip(problem.parts, drawn, strict=True)
    ]

    def fields(params: Any, points: Any) -> dict[str, Any]:
        at = columns(problem.inputs, points)
        features = at if problem.features is None else problem.features(at, jnp)
        x = jnp.concatenate([*features.values()], -1)
        *hidden, last = params["net"]
        for weight, bias in hidden:
            x = jnp.tanh(x @ weight + bias)
        out = columns(problem.outputs, x @ last[0] + last[1])
        return out if not problem.conditions else problem.conditions(at, out, jnp)

    def along(f: Any, axis: int) -> Any:
        def slope(x: Any) -> Any:
            return jax.jvp(f, (x,), (jnp.zeros_like(x).at[:, axis].set(1.0),))[1]

        return slope

    def residuals(params: Any, part: Part, points: Any, targets: Any) -> list[Any]:
        terms = columns(problem.inputs, points)
        terms |= {name: params[name] for name in problem.learnt}
        for name, (output, *by) in problem.derivatives(part).items():
            f = lambda x, output=output: fields(params, x)[output]  # noqa: E731
            for letter in by:
                f = along(f, problem.inputs.index(letter))
            terms[name] = f(points)
        return [
            each.at(terms) - target
            for each, target in zip(part.equations, targets, strict=True)
        ]

    def loss(params: Any) -> Any:
        return sum(
            part.weight * (missed**2).mean()
            for part, (points, targets) in zip(problem.parts, given, strict=True)
            for missed in residuals(params, part, points, targets)
        )

    seen = jnp.asarray(clock.judge.points, "float32")
    outputs = jax.jit(fields)

    def look(params: Any) -> Found:
        out = outputs(params, seen)
        values = np.concatenate([np.asarray(out[n]) for n in problem.outputs], 1)
        return values, {n: float(params[n]) for n in problem.learnt}

    by_scan(loss, params, clock, look, 100)
    return ""


def by_scan(
    loss: Callable[[Any], Any],
    params: Any,
    clock: Clock,
    look: Callable[[Any], Found],
    length: int,
) -> None:
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

    train(clock, steps, lambda: look(carry[0]))
