"""Fully connected nets on raw operators, with the reverse pass written out.

An eager call costs by the operator, not by the flop, at the sizes of small nets. This
is the one module that uses ``paddle._C_ops``, which skips the Python layers of
``paddle.nn``, and the one that knows the derivative of each layer, which skips the
recorded graph. Everything here has a public twin, recorded and differentiated by
``paddle.grad``, which is used where an operator is missing or gives something else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ..paddle_side.grad_mode import grad_mode
from ..paddle_side.listener import not_listening
from .activations import ACTIVATIONS

ops: Any = getattr(paddle, "_C_ops", None)


class Raw(NamedTuple):
    """An activation ``a = value(z)`` and its reverse ``z̄ = reverse(z, a, ā)``."""

    value: Callable[[Tensor], Tensor]
    reverse: Callable[[Tensor, Tensor, Tensor], Tensor]


def _table() -> dict[str, Raw]:
    return {
        "identity": Raw(lambda z: z, lambda z, a, d: d),
        "sigmoid": Raw(ops.sigmoid, lambda z, a, d: ops.sigmoid_grad(a, d)),
        "tanh": Raw(ops.tanh, lambda z, a, d: ops.tanh_grad(a, d)),
        "relu": Raw(ops.relu, lambda z, a, d: ops.relu_grad(a, d)),
        "gelu": Raw(
            lambda z: ops.gelu(z, False), lambda z, a, d: ops.gelu_grad(z, d, False)
        ),
        "silu": Raw(ops.silu, lambda z, a, d: ops.silu_grad(z, a, d)),
        "softplus": Raw(
            lambda z: ops.softplus(z, 1.0, 20.0),
            lambda z, a, d: ops.softplus_grad(z, d, 1.0, 20.0),
        ),
        "elu": Raw(
            lambda z: ops.elu(z, 1.0), lambda z, a, d: ops.elu_grad(z, a, d, 1.0)
        ),
        "leaky_relu": Raw(
            lambda z: ops.leaky_relu(z, 0.01),
            lambda z, a, d: ops.leaky_relu_grad(z, d, 0.01),
        ),
        "sin": Raw(ops.sin, lambda z, a, d: ops.sin_grad(z, d)),
    }


@cache
def raw(activation: str) -> Raw | None:
    """The raw pair of a built-in activation, checked once against the public functions.

    None where this Paddle's operators are missing or differ, so that a renamed operator
    costs speed, never correctness.
    """
    try:
        pair = _table()[activation]
        with not_listening():
            agrees = _agrees(activation, pair)
        return pair if agrees else None
    except Exception:
        return None


def _agrees(activation: str, pair: Raw) -> bool:
    """Whether value and gradients of a small net equal those of paddle.grad."""

    def tensor(rows: list[Any]) -> Tensor:
        return paddle.to_tensor(rows, dtype="float32", place=paddle.CPUPlace())

    x = tensor([[1.0, -2.0], [0.5, 3.0], [-1.5, 0.25]])
    w0, b0 = tensor([[0.3, -1.2, 2.0], [0.8, 0.5, -0.4]]), tensor([0.1, 0.2, -0.3])
    w1, b1 = tensor([[0.7], [-0.6], [1.1]]), tensor([0.4])
    weights = [(w0, b0), (w1, b1)]
    with grad_mode(False):
        y, tape = forward(pair, weights, x)
        ones = paddle.ones_like(y)
        found, x_bar = reverse(pair, weights, tape, ones, [True] * 4, True)
    leaves = [x, w0, b0, w1, b1]
    with grad_mode(True):
        for leaf in leaves:
            leaf.stop_gradient = False
        expected = ACTIVATIONS[activation](x @ w0 + b0) @ w1 + b1
        grads = paddle.grad([expected], leaves, [paddle.ones_like(y)])
    return all(
        a is not None and bool(paddle.allclose(a, b, rtol=1e-5, atol=1e-6))
        for a, b in zip([y, x_bar, *found], [expected.detach(), *grads], strict=True)
    )


Weights = Sequence[tuple[Tensor, Tensor]]
"""``(weight [in, out], bias [out])`` of each layer."""


def weights_of(values: Sequence[Tensor]) -> Weights:
    """``(weight, bias)`` of each layer, from parameters in order."""
    return list(zip(values[::2], values[1::2], strict=True))


Tape = list[tuple[Tensor, Any]]
"""Per layer its input, and what its activation was applied to (None for the last)."""


def value(act: Callable[[Tensor], Tensor], weights: Weights, x: Tensor) -> Tensor:
    """The net's output at ``x`` of shape [n, in]; not for recording a graph."""
    *hidden, (weight, bias) = weights
    affine = ops.addmm
    for w, b in hidden:
        x = act(affine(b, x, w, 1.0, 1.0))
    return affine(bias, x, weight, 1.0, 1.0)


def forward(act: Raw, weights: Weights, x: Tensor) -> tuple[Tensor, Tape]:
    """The output at ``x`` of shape [n, in], and what the reverse pass needs."""
    tape: Tape = []
    *hidden, (weight, bias) = weights
    activate, affine = act.value, ops.addmm
    for w, b in hidden:
        z = affine(b, x, w, 1.0, 1.0)
        tape.append((x, z))
        x = activate(z)
    tape.append((x, None))
    return affine(bias, x, weight, 1.0, 1.0), tape


def reverse(
    act: Raw,
    weights: Weights,
    tape: Tape,
    d: Tensor,
    params: Sequence[bool],
    args: bool,
) -> tuple[list[Tensor | None], Tensor | None]:
    """Gradients of weights and biases, in forward order, and of the input.

    With ``z = h W + b`` and ``d`` the cotangent of ``z``: ``W̄ = h' d``, ``b̄`` the sum
    of the rows of ``d``, ``h̄ = d W'``, and the cotangent of the layer below follows
    by its activation's reverse. Source: Griewank and Walther, "Evaluating Derivatives",
    2nd edition, SIAM 2008, chapter 3. What ``params``, one flag each, and ``args`` do
    not ask for is None and not computed. Not for recording a graph: the derivative of
    ``addmm`` crashes Paddle 3.3.
    """
    grads: list[Tensor | None] = [None] * len(params)
    if not (args or any(params)):
        return grads, None
    matmul, back = ops.matmul, act.reverse
    last = 0 if args else params.index(True) // 2
    h_bar: Any = None
    for i in range(len(weights) - 1, last - 1, -1):
        (w, b), (h, _) = weights[i], tape[i]
        goes_on = i > last or args
        if goes_on and params[2 * i] and params[2 * i + 1]:
            b_bar, h_bar, w_bar = ops.addmm_grad(b, h, w, d, 1.0, 1.0)
            grads[2 * i], grads[2 * i + 1] = w_bar, b_bar
        else:
            if params[2 * i]:
                grads[2 * i] = matmul(h, d, True, False)
            if params[2 * i + 1]:
                grads[2 * i + 1] = ops.sum(d, [0], None, False)
            if goes_on:
                h_bar = matmul(d, w, False, True)
        if i > last:
            d = back(tape[i - 1][1], h, h_bar)
    return grads, h_bar if args else None


def as_rows(x: Tensor) -> Tensor:
    """All leading dimensions as one, in which there may be no sample."""
    if x.ndim == 2:
        return x
    return x.reshape([math.prod(x.shape[:-1]), x.shape[-1]])


def with_leading_of(x: Tensor, rows: Tensor) -> Tensor:
    """Rows with the leading dimensions of x: the way back from :func:`as_rows`."""
    return rows if x.ndim == 2 else rows.reshape([*x.shape[:-1], rows.shape[-1]])
