"""The same nets in PyTorch and JAX: a captured program, operator by operator.

So all sides compute the same of the same numbers, and neither of these pays for layers,
as native Paddle does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from paddle_chainrules.programs import Program
from paddle_chainrules.programs.compiling.source import compile_program
from paddle_chainrules.programs.tracing.operations import Operation

Table = dict[str, Callable[[Operation], tuple[Callable[..., Any], Sequence[Any]]]]
"""By operator, what another library calls for it, and on which arguments."""


def with_table(program: Program, table: Table, tensor: Callable[[Any], Any]) -> Any:
    """The program as a function of another library's tensors."""

    def translated(op: Operation) -> Operation:
        run, args = table[op.operator.name](op)
        entry: Any = SimpleNamespace(
            name=op.operator.name,
            run=run,
            lean=None,
            in_place={},
            instead=None,
            infix=op.operator.infix,
            view=op.operator.view,
        )
        return dataclasses.replace(op, operator=entry, args=tuple(args))

    constants = {v: tensor(t.numpy()) for v, t in program.constants.items()}
    ops = tuple(map(translated, program.ops))
    return compile_program(Program(program.inputs, constants, ops, program.outputs))


def _axes(op: Operation) -> tuple[int, ...]:
    axis = op.args[1]
    every = range(len(op.inputs[0].shape))
    return (axis,) if isinstance(axis, int) else tuple(axis or every)


def torch_table() -> Table:
    """For PyTorch."""
    import torch
    from torch.nn import functional as F

    def affine(x: Any, weight: Any, bias: Any) -> Any:
        if x.ndim == 2:
            return torch.addmm(bias, x, weight)
        return torch.matmul(x, weight) + bias

    def normalized(x: Any, scale: Any, bias: Any, epsilon: float) -> Any:
        return F.layer_norm(x, scale.shape, scale, bias, epsilon), None, None

    def pooled(x: Any, size: Any, stride: Any) -> Any:
        return F.max_pool2d(x, tuple(size), tuple(stride))

    return _table(
        {
            "tanh": torch.tanh,
            "sin": torch.sin,
            "cos": torch.cos,
            "relu": torch.relu,
            "silu": torch.nn.functional.silu,
            "multiply": torch.mul,
            "add": torch.add,
            "concat": torch.cat,
            "softmax": torch.softmax,
            "split": torch.split,
            "transpose": torch.permute,
            "linear": affine,
            "matmul": torch.matmul,
            "layer_norm": normalized,
            "reshape": torch.reshape,
            "expand": torch.broadcast_to,
            "sum": torch.sum,
            "conv2d": F.conv2d,
            "pool2d": pooled,
        }
    )


def jax_table() -> Table:
    """For JAX."""
    import jax
    from jax import lax
    from jax import numpy as jnp

    def affine(x: Any, weight: Any, bias: Any) -> Any:
        return x @ weight + bias

    def normalized(x: Any, scale: Any, bias: Any, epsilon: float) -> Any:
        mean = x.mean(-1, keepdims=True)
        centred = x - mean
        variance = (centred * centred).mean(-1, keepdims=True)
        return centred * lax.rsqrt(variance + epsilon) * scale + bias, None, None

    def convolved(x: Any, kernel: Any) -> Any:
        return lax.conv_general_dilated(x, kernel, (1, 1), "VALID")

    def pooled(x: Any, size: Any, stride: Any) -> Any:
        window = (1, 1, *size), (1, 1, *stride)
        return lax.reduce_window(x, -np.inf, lax.max, *window, "VALID")

    def parts(x: Any, sizes: Any, axis: int) -> Any:
        return jnp.split(x, np.cumsum(sizes)[:-1], axis)

    def total(x: Any, axes: Any, keepdim: bool) -> Any:
        return x.sum(axes, keepdims=keepdim)

    return _table(
        {
            "tanh": jnp.tanh,
            "sin": jnp.sin,
            "cos": jnp.cos,
            "relu": jax.nn.relu,
            "silu": jax.nn.silu,
            "multiply": jnp.multiply,
            "add": jnp.add,
            "concat": jnp.concatenate,
            "softmax": jax.nn.softmax,
            "split": parts,
            "transpose": jnp.transpose,
            "linear": affine,
            "matmul": jnp.matmul,
            "layer_norm": normalized,
            "reshape": jnp.reshape,
            "expand": jnp.broadcast_to,
            "sum": total,
            "conv2d": convolved,
            "pool2d": pooled,
        }
    )


def _table(calls: dict[str, Callable[..., Any]]) -> Table:
    """What a library's functions are given, and what both write as Python does."""

    def product(x: Any, y: Any, turn_x: bool, turn_y: bool) -> Any:
        x = x.swapaxes(-1, -2) if turn_x else x
        return calls["matmul"](x, y.swapaxes(-1, -2) if turn_y else y)

    def first(name: str, count: int | None = None) -> Any:
        return lambda op: (calls[name], op.args[:count])

    def of_shape(name: str) -> Any:
        return lambda op: (calls[name], (op.args[0], list(op.outputs[0].shape)))

    return {
        **{name: first(name) for name in calls},
        "matmul": lambda op: (product, op.args),
        "layer_norm": first("layer_norm", 4),
        "conv2d": first("conv2d", 2),
        "pool2d": first("pool2d", 3),
        "expand": of_shape("expand"),
        **dict.fromkeys(("reshape", "unsqueeze", "flatten"), of_shape("reshape")),
        "sum": lambda op: (calls["sum"], (op.args[0], _axes(op), op.args[3])),
        "Tensor.__mul__": lambda op: (lambda x, y: x * y, op.args),
        "Tensor.__rmul__": lambda op: (lambda x, y: y * x, op.args),
        "Tensor.__rsub__": lambda op: (lambda x, y: y - x, op.args),
        "Tensor._getitem_dygraph": lambda op: (
            lambda x, index: x[tuple(index)],
            op.args,
        ),
    }


def gradients_in_torch(
    program: Program, inputs: Sequence[np.ndarray], cotangent: np.ndarray, way: str = ""
) -> Callable[[], Any]:
    """A call of PyTorch's that gives the gradients by all inputs.

    By autograd, eager or with the forward pass by ``torch.compile`` (``"compile"``), or
    by ``torch.func.vjp`` (``"func"``).
    """
    import torch

    torch.set_num_threads(1)
    run = with_table(program, torch_table(), torch.tensor)
    seed = torch.tensor(cotangent)
    if way == "func":
        values = [torch.tensor(value) for value in inputs]
        return lambda: torch.func.vjp(run, *values)[1]([seed])
    leaves = [torch.tensor(value, requires_grad=True) for value in inputs]
    if way == "compile":
        run = torch.compile(run)
    return lambda: torch.autograd.grad(run(*leaves), leaves, [seed])


def gradients_in_jax(
    program: Program, inputs: Sequence[np.ndarray], cotangent: np.ndarray
) -> Callable[[], Any]:
    """A call of JAX's, compiled."""
    import jax
    from jax import numpy as jnp

    run = with_table(program, jax_table(), jnp.asarray)

    @jax.jit
    def gradients(leaves: Any, seed: Any) -> Any:
        return jax.vjp(lambda *leaves: run(*leaves)[0], *leaves)[1](seed)

    leaves, seed = [*map(jnp.asarray, inputs)], jnp.asarray(cotangent)
    return lambda: jax.block_until_ready(gradients(leaves, seed))


def equation_in_torch(
    program: Program, params: Sequence[np.ndarray], points: np.ndarray
) -> Callable[[], Any]:
    """The step of :func:`programs.equation` in PyTorch."""
    import torch

    torch.set_num_threads(1)
    net = with_table(program, torch_table(), torch.tensor)
    leaves = [torch.tensor(value, requires_grad=True) for value in params]

    def step() -> Any:
        x = torch.tensor(points, requires_grad=True)
        (u,) = net(*leaves, x)
        first = torch.autograd.grad(u.sum(), x, create_graph=True)[0]

        def second(i: int) -> Any:
            slope = first[:, i].sum()
            return torch.autograd.grad(slope, x, create_graph=True)[0][:, i : i + 1]

        residual = second(0) + second(1) + u * torch.sin(x[:, 0:1])
        loss = (residual * residual).mean()
        return [loss, *torch.autograd.grad(loss, leaves, allow_unused=True)]

    return step


def equation_in_jax(
    program: Program, params: Sequence[np.ndarray], points: np.ndarray
) -> Callable[[], Any]:
    """The same in JAX, compiled."""
    import jax
    from jax import numpy as jnp

    if points.dtype == np.float64:
        jax.config.update("jax_enable_x64", True)
    net = with_table(program, jax_table(), jnp.asarray)

    def loss(leaves: Any, x: Any) -> Any:
        def u(x: Any) -> Any:
            return net(*leaves, x)[0]

        first = jax.grad(lambda x: u(x).sum())

        def second(i: int) -> Any:
            return jax.grad(lambda x: first(x)[:, i].sum())(x)[:, i : i + 1]

        residual = second(0) + second(1) + u(x) * jnp.sin(x[:, 0:1])
        return (residual * residual).mean()

    step = jax.jit(jax.value_and_grad(loss))
    leaves, x = [*map(jnp.asarray, params)], jnp.asarray(points)

    def call() -> Any:
        value, grads = jax.block_until_ready(step(leaves, x))
        return [value, *grads]

    return call
