"""The Python sides of the comparison: one net, one task, one callable a side."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from typing import Any

import numpy as np
import paddle
from paddle import nn

from nets import chain
from paddle_chainrules import FCNet, jit, laplacian, stateless, value_and_grad
from paddle_chainrules.testing.timings import Timer, timer

FORWARD, PULLBACK = "forward", "forward and gradients"
TASKS = (FORWARD, PULLBACK)


class Case:
    """A fully connected ReLU net with parameters, input and cotangent for all sides."""

    def __init__(self, sizes: Iterable[int], batch: int) -> None:
        self.sizes, self.batch = tuple(int(n) for n in sizes), int(batch)
        self.net = FCNet(self.sizes, "relu")
        self.params = self.net.init(0)
        rng = np.random.default_rng(1)
        self.x = rng.standard_normal((batch, self.sizes[0])).astype("float32")
        self.cotangent = np.ones((batch, self.sizes[-1]), "float32")

    @property
    def flops(self) -> int:
        """Multiply-adds of one forward call, twice."""
        pairs = zip(self.sizes[:-1], self.sizes[1:], strict=True)
        return 2 * self.batch * sum(a * b for a, b in pairs)

    def timers(self, task: str, peers: bool = True) -> dict[str, Timer]:
        """The sides that are installed, native Paddle first."""
        sides = {"native Paddle": self.native, "ours, Python": self.stateless}
        if peers and find_spec("torch"):
            sides |= {"PyTorch": self.torch, "torch.func": self.torch_func}
        if peers and find_spec("jax"):
            sides |= {"JAX jit": self.jax}
        return {name: timer(make(task)) for name, make in sides.items()}

    def native(self, task: str) -> Callable[[], object]:
        """Paddle's own eager way: layers, and paddle.grad."""
        layer = chain([*self.sizes], nn.ReLU)
        layer.set_state_dict(self.net.to_state_dict(self.params, like=layer))
        x, cotangent = paddle.to_tensor(self.x), paddle.to_tensor(self.cotangent)
        if task == FORWARD:
            return lambda: layer(x)
        x.stop_gradient = False
        leaves = [*layer.parameters(), x]
        return lambda: paddle.grad([layer(x)], leaves, [cotangent])

    def stateless(self, task: str) -> Callable[[], object]:
        """This package from Python."""
        net, params = self.net, self.params
        x, cotangent = paddle.to_tensor(self.x), paddle.to_tensor(self.cotangent)
        if task == FORWARD:
            return lambda: net.forward(params, x)
        return lambda: net.pullback(params, x)[1](cotangent)

    def torch(self, task: str) -> Callable[[], object]:
        """PyTorch's eager way: modules, and torch.autograd.grad."""
        import torch

        layers: list[torch.nn.Module] = []
        for n_in, n_out in zip(self.sizes[:-1], self.sizes[1:], strict=True):
            layers += [torch.nn.Linear(n_in, n_out), torch.nn.ReLU()]
        module = torch.nn.Sequential(*layers[:-1])
        x, cotangent = torch.from_numpy(self.x), torch.from_numpy(self.cotangent)
        if task == FORWARD:
            return lambda: module(x)
        x.requires_grad_()
        leaves = [*module.parameters(), x]
        return lambda: torch.autograd.grad(module(x), leaves, cotangent)

    def torch_func(self, task: str) -> Callable[[], object]:
        """PyTorch's functional way: functional_call, and torch.func.vjp."""
        import torch

        layers: list[torch.nn.Module] = []
        for n_in, n_out in zip(self.sizes[:-1], self.sizes[1:], strict=True):
            layers += [torch.nn.Linear(n_in, n_out), torch.nn.ReLU()]
        module = torch.nn.Sequential(*layers[:-1])
        params = {n: p.detach() for n, p in module.named_parameters()}
        x, cotangent = torch.from_numpy(self.x), torch.from_numpy(self.cotangent)

        def call(params, x):
            return torch.func.functional_call(module, params, (x,))

        if task == FORWARD:
            return lambda: call(params, x)
        return lambda: torch.func.vjp(call, params, x)[1](cotangent)

    def jax(self, task: str) -> Callable[[], object]:
        """JAX, the whole task compiled."""
        import jax

        params = [jax.numpy.asarray(p.numpy()) for p in self.params.values()]
        x, cotangent = jax.numpy.asarray(self.x), jax.numpy.asarray(self.cotangent)

        def net(params, x):
            *hidden, weight, bias = params
            for w, b in zip(hidden[::2], hidden[1::2], strict=True):
                x = jax.nn.relu(x @ w + b)
            return x @ weight + bias

        if task == FORWARD:
            forward = jax.jit(net)
            return lambda: forward(params, x).block_until_ready()
        grads = jax.jit(lambda p, x, c: jax.vjp(net, p, x)[1](c))
        return lambda: jax.block_until_ready(grads(params, x, cotangent))


GENERAL = {
    "perceptron, dropout in evaluation": lambda: (
        nn.Sequential(
            *(nn.Linear(8, 64), nn.ReLU(), nn.Dropout()),
            *(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4)),
        ),
        [64, 8],
    ),
    "perceptron, layer normalization": lambda: (
        nn.Sequential(
            *(nn.Linear(8, 64), nn.LayerNorm(64), nn.ReLU()),
            *(nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 4)),
        ),
        [64, 8],
    ),
    "small convolutional net": lambda: (
        nn.Sequential(
            *(nn.Conv2D(3, 8, 3), nn.ReLU(), nn.MaxPool2D(2)),
            *(nn.Conv2D(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10)),
        ),
        [16, 3, 14, 14],
    ),
    "Transformer encoder layer": lambda: (
        nn.TransformerEncoderLayer(32, 4, 64),
        [8, 10, 32],
    ),
}


def general_timers(
    name: str, task: str, julia_timers: Callable[..., Any] | None
) -> dict[str, Timer]:
    """Any layer: native against stateless(layer), and the wrapper in Julia."""
    paddle.seed(0)
    layer, shape = GENERAL[name]()
    layer.eval()
    net, params, _ = stateless(layer)
    x = paddle.rand(shape)
    cotangent = paddle.ones_like(layer(x)).detach()
    in_julia = {} if julia_timers is None else julia_timers(layer, x, cotangent, task)
    if task == FORWARD:
        return {
            "native Paddle": timer(lambda: layer(x)),
            "ours, Python": timer(lambda: net.forward(params, x)),
            **in_julia,
        }
    leaf = x.clone()
    leaf.stop_gradient = False
    leaves = [*layer.parameters(), leaf]
    return {
        "native Paddle": timer(lambda: paddle.grad([layer(leaf)], leaves, [cotangent])),
        "ours, Python": timer(lambda: net.pullback(params, x)[1](cotangent)),
        **in_julia,
    }


class Poisson:
    """Laplacian inside, values on the boundary, gradient of the loss by parameters."""

    def __init__(self, width: int, points: int = 100, edges: int = 40) -> None:
        self.width = int(width)
        self.net = FCNet((2, self.width, self.width, 1), "sigmoid", "float64")
        rng = np.random.default_rng(0)
        self.x, self.edges = rng.random((points, 2)), rng.random((edges, 2))
        self.source = -np.sin(np.pi * self.x).prod(axis=1, keepdims=True)

    def timers(self, peers: bool = True) -> dict[str, Timer]:
        """Nested paddle.grad, ours, and DeepXDE where it is installed."""
        net, params = self.net, self.net.init(0)
        x, edges, f = map(paddle.to_tensor, (self.x, self.edges, self.source))
        layer = chain([2, self.width, self.width, 1], nn.Sigmoid).to(dtype="float64")
        point = x.detach()
        point.stop_gradient = False

        def nested() -> object:
            u = layer(point)
            (slope,) = paddle.grad([u], [point], create_graph=True)
            both = [
                paddle.grad([slope[:, i]], [point], create_graph=True)[0][:, i]
                for i in range(2)
            ]
            inside = (both[0] + both[1]).unsqueeze(1) - f
            loss = (inside**2).mean() + (layer(edges) ** 2).mean()
            return paddle.grad([loss], layer.parameters())

        def loss(params: dict) -> paddle.Tensor:
            inside = laplacian(net, params, x) - f
            return (inside**2).mean() + (net.forward(params, edges) ** 2).mean()

        ours = jit(value_and_grad(loss))
        timers = {
            "nested paddle.grad": timer(nested),
            "ours, Laplacian, Python": timer(lambda: ours(params)),
        }
        if peers and find_spec("deepxde"):
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                timers["DeepXDE"] = timer(self.deepxde())
        return timers

    def deepxde(self) -> Callable[[], object]:
        """One iteration of DeepXDE on Paddle, its step of Adam included."""
        os.environ["DDE_BACKEND"] = "paddle"
        import deepxde as dde

        dtype = paddle.get_default_dtype()
        dde.config.set_default_float("float64")

        def residual(x: paddle.Tensor, u: paddle.Tensor) -> paddle.Tensor:
            second = [dde.grad.hessian(u, x, i=i, j=i) for i in range(2)]
            waves = paddle.sin(np.pi * x)
            return second[0] + second[1] + waves[:, :1] * waves[:, 1:]

        square = dde.geometry.Rectangle([0, 0], [1, 1])
        zero = dde.icbc.DirichletBC(square, lambda x: 0, lambda x, on: on)
        sizes = {"num_domain": len(self.x), "num_boundary": len(self.edges)}
        data = dde.data.PDE(square, residual, zero, **sizes)
        widths = [2, self.width, self.width, 1]
        model = dde.Model(data, dde.nn.FNN(widths, "sigmoid", "Glorot normal"))
        model.compile("adam", lr=1e-3, verbose=0)
        model.train(iterations=1, verbose=0, display_every=1000)
        state = model.train_state
        given = state.X_train, state.y_train, state.train_aux_vars
        paddle.set_default_dtype(dtype)  # which DeepXDE sets for all
        return lambda: model.train_step(*given)
