"""JAX with optax, written by hand as its documentation would have it."""

from __future__ import annotations

import os
import time
from typing import Any

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import jax
import numpy as np
import optax
from jax import numpy as jnp

from .clock import Chunk, Clock, Found, rate_at
from .problem import Part, Problem, columns

SCAN = 100
"""Steps of one compiled loop."""


def adam(problem: Problem, seed: int, clock: Clock) -> str:
    """Derivatives forward in forward mode, steps by ``lax.scan``, in float32."""
    widths = problem.widths()
    keys = jax.random.split(jax.random.PRNGKey(seed), len(widths))
    start = jax.nn.initializers.glorot_normal()
    layers = [
        (start(key, (n, m)), jnp.zeros(m))
        for key, n, m in zip(keys, widths[:-1], widths[1:], strict=False)
    ]
    params: Any = {"net": layers}
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
            each.of(**{n: terms[n] for n in each.terms}) - target
            for each, target in zip(part.equations, targets, strict=True)
        ]

    def loss(params: Any) -> Any:
        return sum(
            part.weight * (missed**2).mean()
            for part, (points, targets) in zip(problem.parts, given, strict=True)
            for missed in residuals(params, part, points, targets)
        )

    optimizer = optax.adam(rate_at)

    def step(carry: Any, _: Any) -> Any:
        params, state = carry
        value, grads = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    steps = jax.jit(lambda carry: jax.lax.scan(step, carry, None, SCAN)[0])
    seen = jnp.asarray(clock.judge.points, "float32")
    outputs = jax.jit(fields)

    def look() -> Found:
        out = outputs(carry[0], seen)
        values = np.concatenate([np.asarray(out[n]) for n in problem.outputs], 1)
        return values, {n: float(carry[0][n]) for n in problem.learnt}

    clock.start()
    carry = params, optimizer.init(params)
    chunk, done = Chunk(1), 0
    while not clock.over(done, look):
        begun = time.perf_counter()
        for _ in range(chunk.steps):
            carry = steps(carry)
        jax.block_until_ready(carry)
        done += SCAN * chunk.steps
        chunk.adapt(time.perf_counter() - begun)
    return ""
