"""Recurrent layers: native Paddle, programs, PyTorch and JAX, in one run.

``make bench-recurrent``: forward and all gradients of two layers over 20 steps, one
thread each, all sides in turn. PyTorch's are its own layers with the same weights,
JAX's a ``lax.scan`` of a cell. Prints Markdown, leaves JSON in output/.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import paddle
from tqdm import tqdm

from machine import SETTLED, save
from paddle_chainrules import stateless
from paddle_chainrules.testing.timings import interleave, timer

QUICK = "QUICK" in os.environ
ROUNDS = 5 if QUICK else 25
STEPS, LAYERS = 20, 2
KINDS = ("LSTM", "GRU")
SIZES = ((1, 8), (64, 8), (64, 32), (64, 64))
"""Samples, and numbers of an input and a state."""

Call = Callable[[], list[Any]]
SIDES = ("native", "ours", "PyTorch", "JAX jit")


def sides_of(kind: str, n: int, width: int) -> dict[str, Call]:
    """Calls that give the gradients, by the input first."""
    paddle.seed(0)
    layer = getattr(paddle.nn, kind)(width, width, LAYERS)
    x, c = paddle.randn([n, STEPS, width]), paddle.randn([n, STEPS, width])
    net, params, _ = stateless(layer)
    leaf = x.clone()
    leaf.stop_gradient = False
    leaves = [leaf, *layer.parameters()]
    states = (None, None) if kind == "LSTM" else None

    def native() -> list[Any]:
        return paddle.grad([layer(leaf)[0]], leaves, [c])

    def ours() -> list[Any]:
        grads, (by_x,) = net.pullback(params, x)[1]((c, states))
        return [by_x, *grads.values()]

    found: dict[str, Call] = {"native": native, "ours": ours}
    given = {name: p.numpy() for name, p in params.items()}, x.numpy(), c.numpy()
    if find_spec("torch"):
        found["PyTorch"] = in_torch(kind, width, *given)
    if find_spec("jax"):
        found["JAX jit"] = in_jax(kind, *given)
    return found


def in_torch(kind: str, width: int, params: Any, x: Any, c: Any) -> Call:
    import torch

    torch.set_num_threads(1)
    layer = getattr(torch.nn, kind)(width, width, LAYERS, batch_first=True)
    with torch.no_grad():
        for name, p in layer.named_parameters():
            p.copy_(torch.as_tensor(params[name]))
    leaves = [torch.tensor(x, requires_grad=True), *layer.parameters()]
    cotangent = torch.as_tensor(c)

    def call() -> list[Any]:
        return [*torch.autograd.grad(layer(leaves[0])[0], leaves, cotangent)]

    return call


def in_jax(kind: str, params: Any, x: Any, c: Any) -> Call:
    import jax
    from jax import numpy as jnp

    def lstm(state: Any, by_x: Any, w: Any, b: Any) -> Any:
        h, cell = state
        i, f, g, o = jnp.split(by_x + h @ w.T + b, 4, -1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (h, cell), h

    def gru(state: Any, by_x: Any, w: Any, b: Any) -> Any:
        (h,) = state
        r_x, z_x, g_x = jnp.split(by_x, 3, -1)
        r_h, z_h, g_h = jnp.split(h @ w.T + b, 3, -1)
        g = jnp.tanh(g_x + jax.nn.sigmoid(r_x + r_h) * g_h)
        h = (h - g) * jax.nn.sigmoid(z_x + z_h) + g
        return (h,), h

    cell, count = (lstm, 2) if kind == "LSTM" else (gru, 1)

    def forward(x: Any, params: Any) -> Any:
        x = x.transpose(1, 0, 2)
        for k in range(LAYERS):
            w_x, w_h, b_x, b_h = (
                params[f"{name}_l{k}"]
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            state = (jnp.zeros((x.shape[1], w_h.shape[1]), x.dtype),) * count

            def step(state: Any, by_x: Any, w: Any = w_h, b: Any = b_h) -> Any:
                return cell(state, by_x, w, b)

            _, x = jax.lax.scan(step, state, x @ w_x.T + b_x)
        return x.transpose(1, 0, 2)

    @jax.jit
    def grads(x: Any, params: Any, c: Any) -> Any:
        _, back = jax.vjp(forward, x, params)
        return back(c)

    leaves = {name: jnp.asarray(p) for name, p in params.items()}
    given = jnp.asarray(x), leaves, jnp.asarray(c)

    def call() -> list[Any]:
        by_x, found = jax.block_until_ready(grads(*given))
        return [by_x, *(found[name] for name in params)]

    return call


def compared(kind: str, n: int, width: int) -> dict[str, Any]:
    sides = sides_of(kind, n, width)
    expected = [g.numpy() for g in sides["native"]()]
    errors = {}
    for side, call in sides.items():
        for _ in range(SETTLED):
            found = call()
        pairs = zip(found, expected, strict=True)
        errors[side] = max(
            float(np.abs(np.asarray(a) - b).max() / np.abs(b).max()) for a, b in pairs
        )
        assert errors[side] < 1e-4, (kind, side, errors)
    timers = {side: timer(call) for side, call in sides.items()}
    calls = 10 if n * width < 1000 else 2
    return {"us": interleave(timers, ROUNDS, calls), "errors": errors}


def table(rows: dict[str, Any]) -> str:
    head = ["layer", "width", "samples", "native, us", *SIDES[1:]]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, row in rows.items():
        us = row["us"]
        kind, width, samples = name.split(", ")
        cells = [kind, width.split()[1], samples.split()[0]]
        cells.append(f"{us['native']['min']:.0f}")
        for side in SIDES[1:]:
            if side in us:
                low, mean = (us[side][k] / us["native"][k] for k in ("min", "mean"))
                cells.append(f"**{low:.2f}** ({mean:.2f})")
            else:
                cells.append("")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    rows = {
        f"{kind}, width {width}, {n} sample{'s' * (n > 1)}": compared(kind, n, width)
        for kind, (n, width) in tqdm([(k, s) for k in KINDS for s in SIZES])
    }
    print(table(rows))
    save("recurrent", {"rows": rows})


if __name__ == "__main__":
    main()
