"""Value and gradients of a long loop, beside JAX's ``lax.scan`` and native Paddle.

Part of ``make bench-training``: steps of Heun's method through an MLP 3-16-3 at 20
points, float32, one thread, sides in turn. Prints Markdown, leaves JSON in output/.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import paddle

from machine import save
from paddle_chainrules import FCNet, jit, scan, value_and_grad
from paddle_chainrules.testing.timings import interleave, timer

ROUNDS = 5 if "QUICK" in os.environ else 20
STEPS, WIDTH, POINTS, H = 1000, 16, 20, 0.01


def moved(net: Callable[[Any], Any], x: Any) -> Any:
    """A step of Heun's method."""
    slope = net(x)
    return x + 0.5 * H * (slope + net(x + H * slope))


def sides() -> dict[str, Callable[[], Any]]:
    """Calls that give the value and its gradients by the parameters."""
    net = FCNet((3, WIDTH, 3), "tanh")
    params, x = net.init(0), paddle.rand([POINTS, 3])

    def by_scan(params: Any) -> Any:
        def step(x: Any, _: None) -> Any:
            return moved(lambda x: net(params, x), x), None

        return (scan(step, x, length=STEPS)[0] ** 2).mean()

    def by_python(params: Any) -> Any:
        last = x
        for _ in range(STEPS):
            last = moved(lambda x: net(params, x), last)
        return (last**2).mean()

    ours, native = jit(value_and_grad(by_scan)), value_and_grad(by_python).__wrapped__
    found: dict[str, Callable[[], Any]] = {
        "native": lambda: native(params),
        "ours": lambda: ours(params),
    }
    value = float(found["ours"]()[0])
    assert abs(float(found["native"]()[0]) / value - 1) < 1e-4
    if find_spec("jax"):
        found["JAX"] = in_jax(params, x)
        assert abs(float(found["JAX"]()[0]) / value - 1) < 1e-4
    return found


def in_jax(params: dict[str, Any], x: Any) -> Callable[[], Any]:
    import jax
    from jax import numpy as jnp

    theirs = {name: jnp.asarray(p.numpy()) for name, p in params.items()}
    start = jnp.asarray(x.numpy())

    def of(params: Any) -> Any:
        def net(x: Any) -> Any:
            hidden = jnp.tanh(x @ params["0.weight"] + params["0.bias"])
            return hidden @ params["1.weight"] + params["1.bias"]

        last, _ = jax.lax.scan(lambda x, _: (moved(net, x), None), start, length=STEPS)
        return (last**2).mean()

    both = jax.jit(jax.value_and_grad(of))
    return lambda: jax.block_until_ready(both(theirs))


def line(us: dict[str, Any]) -> str:
    """Milliseconds of each side, minimum and mean."""
    names = {
        "ours": "by `scan` in `jit`",
        "JAX": "`lax.scan`",
        "native": "native Paddle",
    }
    cells = (
        f"{us[s]['min'] / 1e3:.1f} ms ({us[s]['mean'] / 1e3:.1f}) {name}"
        for s, name in names.items()
        if s in us
    )
    return ", ".join(cells)


def main() -> None:
    us = interleave({s: timer(c) for s, c in sides().items()}, ROUNDS, 1, "loops")
    print(line(us))
    save("loops", {"us": us})


if __name__ == "__main__":
    main()
