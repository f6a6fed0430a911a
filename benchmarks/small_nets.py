"""Calls of small nets beside native Paddle, PyTorch and JAX: make bench-small-nets.

Three tasks: the forward call; gradients by all parameters and the input; and one step
of training, which is a loss and its gradients by the parameters, then Adam. JAX
compiles each task, ours runs ``net(params, x)``, ``net.vjp`` and ``jit(step)``. All
sides take turns in one process, one thread each, and are compared with native Paddle
first. Prints Markdown, leaves JSON in output/. ``QUICK=1`` for less.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import numpy as np
import paddle
from paddle import nn
from tqdm import tqdm

from machine import SETTLED, save
from paddle_chainrules import FCNet, jit, optimizers, value_and_grad
from paddle_chainrules.testing.timings import interleave, timer

QUICK = "QUICK" in os.environ
ROUNDS = 8 if QUICK else 60
NETS = {
    "8-64-4, ReLU": ((8, 64, 4), "relu"),
    "3-64-64-64-1, tanh": ((3, 64, 64, 64, 1), "tanh"),
    "2-16-16-16-1, tanh": ((2, 16, 16, 16, 1), "tanh"),
}
BATCHES = (1, 64)
FORWARD, GRADIENTS, STEP = "forward", "all gradients", "step of Adam"
TASKS = (FORWARD, GRADIENTS, STEP)
RATE = 1e-3
SIDES = ("native Paddle", "ours", "PyTorch", "JAX jit")

Call = Callable[[], Sequence[Any]]
"""A call of a side, which returns tensors of its library, in the same order."""


class Case:
    """A net with its parameters, an input, a cotangent and a target, as arrays."""

    def __init__(self, name: str, batch: int) -> None:
        self.sizes, self.activation = NETS[name]
        self.net = FCNet(self.sizes, self.activation)
        self.params = self.net.init(0)
        rng = np.random.default_rng(1)
        self.x, self.cotangent, self.y = (
            rng.standard_normal((batch, n)).astype("float32")
            for n in (self.sizes[0], self.sizes[-1], self.sizes[-1])
        )

    def sides(self) -> dict[str, Callable[[str], Call]]:
        found = {"native Paddle": self.native, "ours": self.ours}
        found |= {"PyTorch": self.torch} if find_spec("torch") else {}
        return found | ({"JAX jit": self.jax} if find_spec("jax") else {})

    def native(self, task: str) -> Call:
        """Layers, ``paddle.grad``, and ``paddle.optimizer.Adam``."""
        layers: list[nn.Layer] = []
        kind = {"relu": nn.ReLU, "tanh": nn.Tanh}[self.activation]
        for n_in, n_out in zip(self.sizes[:-1], self.sizes[1:], strict=True):
            layers += [nn.Linear(n_in, n_out), kind()]
        layer = nn.Sequential(*layers[:-1])
        layer.set_state_dict(self.net.to_state_dict(self.params, like=layer))
        x, cotangent, y = map(paddle.to_tensor, (self.x, self.cotangent, self.y))
        if task == FORWARD:
            return lambda: [layer(x)]
        leaf = x.clone()
        leaf.stop_gradient = False
        leaves = [*layer.parameters(), leaf]
        if task == GRADIENTS:
            return lambda: paddle.grad([layer(leaf)], leaves, [cotangent])
        adam = paddle.optimizer.Adam(RATE, parameters=layer.parameters())

        def step() -> list[Any]:
            loss = ((layer(x) - y) ** 2).mean()
            loss.backward()
            adam.step()
            adam.clear_grad()
            return [loss, *layer.parameters()]

        return step

    def ours(self, task: str) -> Call:
        """This package."""
        net, params = self.net, self.params
        x, cotangent, y = map(paddle.to_tensor, (self.x, self.cotangent, self.y))
        if task == FORWARD:
            return lambda: [net(params, x)]
        if task == GRADIENTS:

            def gradients() -> list[Any]:
                by_params, by_x = net.vjp(params, x, cotangent)
                return [*by_params.values(), by_x]

            return gradients
        adam = optimizers.adam(RATE)

        @jit
        def stepped(params: Any, state: Any, x: Any, y: Any) -> Any:
            loss, grads = value_and_grad(lambda p: ((net(p, x) - y) ** 2).mean())(
                params
            )
            updates, state = adam.update(grads, state, params)
            return loss, optimizers.apply_updates(params, updates), state

        now = [params, adam.init(params)]

        def step() -> list[Any]:
            loss, *now[:] = stepped(*now, x, y)
            return [loss, *now[0].values()]

        return step

    def torch(self, task: str) -> Call:
        """Modules, ``torch.autograd.grad``, and ``torch.optim.Adam``."""
        import torch

        torch.set_num_threads(1)
        layers: list[torch.nn.Module] = []
        kind = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh}[self.activation]
        for n_in, n_out in zip(self.sizes[:-1], self.sizes[1:], strict=True):
            layers += [torch.nn.Linear(n_in, n_out), kind()]
        module = torch.nn.Sequential(*layers[:-1])
        for p, value in zip(module.parameters(), self.params.values(), strict=True):
            array = value.numpy()
            p.data = torch.tensor(array.T if array.ndim == 2 else array)
        x, cotangent, y = map(torch.tensor, (self.x, self.cotangent, self.y))

        def turned(rows: Sequence[Any]) -> list[Any]:
            return [row.T if row.ndim == 2 else row for row in rows]

        if task == FORWARD:
            return lambda: [module(x)]
        leaves = [*module.parameters(), x.clone().requires_grad_()]
        if task == GRADIENTS:

            def gradients() -> list[Any]:
                *rows, by_x = torch.autograd.grad(module(leaves[-1]), leaves, cotangent)
                return [*turned(rows), by_x]

            return gradients
        adam = torch.optim.Adam(module.parameters(), RATE)

        def step() -> list[Any]:
            loss = ((module(x) - y) ** 2).mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
            return [loss, *turned([*module.parameters()])]

        return step

    def jax(self, task: str) -> Call:
        """JAX, the whole task compiled; Adam by its formula."""
        import jax
        from jax import numpy as jnp

        given = [jnp.asarray(p.numpy()) for p in self.params.values()]
        x, cotangent, y = map(jnp.asarray, (self.x, self.cotangent, self.y))
        activation = {"relu": jax.nn.relu, "tanh": jnp.tanh}[self.activation]

        def net(params: Any, x: Any) -> Any:
            *hidden, weight, bias = params
            for w, b in zip(hidden[::2], hidden[1::2], strict=True):
                x = activation(x @ w + b)
            return x @ weight + bias

        if task == FORWARD:
            forward = jax.jit(net)
            return lambda: [jax.block_until_ready(forward(given, x))]
        if task == GRADIENTS:
            both = jax.jit(lambda p, x, c: jax.vjp(net, p, x)[1](c))

            def gradients() -> list[Any]:
                rows, by_x = jax.block_until_ready(both(given, x, cotangent))
                return [*rows, by_x]

            return gradients

        def moved(p: Any, g: Any, m: Any, v: Any, t: Any) -> Any:
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            rate = RATE * jnp.sqrt(1 - 0.999**t) / (1 - 0.9**t)
            return p - rate * m / (jnp.sqrt(v) + 1e-8 * jnp.sqrt(1 - 0.999**t)), m, v

        @jax.jit
        def stepped(params: Any, m: Any, v: Any, t: Any, x: Any, y: Any) -> Any:
            def loss(params: Any) -> Any:
                return ((net(params, x) - y) ** 2).mean()

            value, grads = jax.value_and_grad(loss)(params)
            rows = [moved(*row, t + 1) for row in zip(params, grads, m, v, strict=True)]
            params, m, v = ([*part] for part in zip(*rows, strict=True))
            return value, params, m, v, t + 1

        zeros = [jnp.zeros_like(p) for p in given]
        now = [given, zeros, zeros, jnp.float32(0)]

        def step() -> list[Any]:
            value, *now[:] = jax.block_until_ready(stepped(*now, x, y))
            return [value, *now[0]]

        return step


def measured(name: str, batch: int, task: str) -> dict[str, Any]:
    """Microseconds of all sides, after a comparison of their first three calls."""
    calls = {side: make(task) for side, make in Case(name, batch).sides().items()}
    for _ in range(3):
        found = {side: [*map(array, call())] for side, call in calls.items()}
        for side, rows in found.items():
            for own, native in zip(rows, found["native Paddle"], strict=True):
                np.testing.assert_allclose(own, native, 1e-3, 1e-4, err_msg=side)
    for call in calls.values():
        for _ in range(2 * SETTLED):
            call()
    timers = {side: timer(call) for side, call in calls.items()}
    once = timers["native Paddle"](3) / 3
    us = interleave(timers, ROUNDS, max(1, int(0.02 / once)))
    return {"net": name, "batch": batch, "task": task, "us": us}


def array(value: Any) -> Any:
    return np.asarray(value.detach() if hasattr(value, "detach") else value)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Microseconds of native Paddle, ratios of the others to it, and of ours to JAX."""
    sides = [side for side in SIDES[1:] if any(side in row["us"] for row in rows)]
    with_jax = "JAX jit" in sides
    head = ["net, samples", "task", "native, us", *sides]
    head += ["ours / JAX"] if with_jax else []
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in rows:
        us = {side: times["min"] for side, times in row["us"].items()}
        native = us["native Paddle"]
        cells = [f"{row['net']}, {row['batch']}", row["task"], f"{native:.0f}"]
        for side in sides:
            ratio = f"{us[side] / native:.2f}" if side in us else ""
            cells.append(f"**{ratio}**" if side == "ours" else ratio)
        if with_jax:
            cells.append(f"{us['ours'] / us['JAX jit']:.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    places = [(n, b, t) for t in TASKS for n in NETS for b in BATCHES]
    rows = [measured(*place) for place in tqdm(places)]
    save("small_nets", {"rows": rows})
    print(table(rows))


if __name__ == "__main__":
    main()
