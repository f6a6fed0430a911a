"""The Laplacian of a fully connected net, carried directly, with its reverse pass.

Beside the value ``h`` go its gradient ``g`` with respect to the d inputs and its
Laplacian ``l``. An affine map acts on each alone, so they stand in one stack; an
activation f of ``z`` gives, with the sum ``s`` of the squares of ``g``,

    h = f(z),    g = f'(z) g_z,    l = f''(z) s + f'(z) l_z.

The reverse pass transposes these steps. Source: Li, Ye, Zhang, et al., "Forward
Laplacian", Nature Machine Intelligence 6, 2024; Griewank and Walther, "Evaluating
Derivatives", 2nd edition, SIAM 2008, chapter 3.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any, NamedTuple

import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from ._closed_form import Weights, weights_of
from ._derivatives import Derivatives
from ._net import Net
from ._params import Params
from ._recording import records_graph
from ._taylor import check_input, derivatives_of, recording


class Step(NamedTuple):
    """What the reverse pass needs of one hidden layer."""

    f1: Tensor  # derivatives of the activation at z, [n, width]
    f2: Tensor
    f3: Tensor | None
    g: Tensor  # gradient of z by the inputs, [d, n or 1, width]
    s: Tensor  # the sum of its squares, [n or 1, width]
    l: Tensor | None  # Laplacian of z, None in the first layer  # noqa: E741
    stack: Tensor  # what the activation gives: h, g, l in [d + 2, n, width]


def forward(
    derivatives: Derivatives, weights: Weights, x: Tensor, order: int
) -> tuple[Tensor, list[Step]]:
    """The Laplacian of every output at ``x`` of shape [n, d], and what was met.

    Derivatives of the activation are evaluated up to ``order``: 2 for the value, 3
    where the reverse pass follows.
    """
    n, d = x.shape
    (w, b), *_ = weights
    z, g, l = paddle.addmm(b, x, w), w.unsqueeze(1), None  # noqa: E741
    steps: list[Step] = []
    for i, (w, b) in enumerate(weights[1:], start=2):
        f, f1, f2, *f3 = (
            value if isinstance(value, Tensor) else paddle.full_like(z, value)
            for value in derivatives(z, order)
        )
        s = (g * g).sum(0)
        new = f2 * s if l is None else f2 * s + f1 * l
        stack = paddle.concat([f.unsqueeze(0), f1 * g, new.unsqueeze(0)])
        steps.append(Step(f1, f2, f3[0] if f3 else None, g, s, l, stack))
        if i == len(weights):
            return new @ w, steps
        z, g, l = paddle.split(stack @ w, [1, d, 1])  # noqa: E741
        z, l = z[0] + b, l[0]  # noqa: E741
    return paddle.zeros([n, b.shape[0]], x.dtype), steps


def reverse(
    weights: Weights, x: Tensor, steps: list[Step], cotangent: Tensor
) -> tuple[list[Tensor | None], Tensor]:
    """Gradients of weights and biases in forward order and of ``x``.

    None for the last bias, which takes no part.
    """
    if not steps:
        return [*map(paddle.zeros_like, weights[0][:1]), None], paddle.zeros_like(x)
    d = x.shape[1]
    last = weights[-1][0]
    grads: list[tuple[Tensor, Tensor | None]] = [
        (paddle.matmul(steps[-1].stack[-1], cotangent, transpose_x=True), None)
    ]
    l_bar = paddle.matmul(cotangent, last, transpose_y=True)
    h_bar = g_bar = None
    for i in range(len(steps) - 1, -1, -1):
        f1, f2, f3, g, s, l, _ = steps[i]  # noqa: E741
        assert f3 is not None
        inner = f3 * s if l is None else f3 * s + f2 * l
        z_bar = inner * l_bar
        gz_bar = (2 * f2 * l_bar) * g
        if g_bar is not None:
            z_bar = z_bar + f1 * h_bar + f2 * (g * g_bar).sum(0)
            gz_bar = gz_bar + f1 * g_bar
        if i == 0:
            w_bar = paddle.matmul(x, z_bar, transpose_x=True) + gz_bar.sum(1)
            grads.append((w_bar, z_bar.sum(0)))
            break
        bars = paddle.concat([z_bar.unsqueeze(0), gz_bar, (f1 * l_bar).unsqueeze(0)])
        before = steps[i - 1].stack
        w_bar = paddle.matmul(
            before.reshape([-1, before.shape[-1]]),
            bars.reshape([-1, bars.shape[-1]]),
            transpose_x=True,
        )
        grads.append((w_bar, z_bar.sum(0)))
        h_bar, g_bar, l_bar = paddle.split(
            paddle.matmul(bars, weights[i][0], transpose_y=True), [1, d, 1]
        )
        h_bar, l_bar = h_bar[0], l_bar[0]
    x_bar = paddle.matmul(z_bar, weights[0][0], transpose_y=True)
    return [*chain.from_iterable(reversed(grads))], x_bar


class _Laplacian(PyLayer):  # type: ignore[misc]
    """The closed form as an operation of Paddle's own graph."""

    @staticmethod
    def forward(ctx: Any, derivatives: Derivatives, x: Tensor, *values: Tensor) -> Any:
        # The last bias takes no part.
        weights = weights_of([*values, values[-1][0]])
        ctx.derivatives, ctx.steps = derivatives, None
        value, ctx.steps = forward(derivatives, weights, x, 3)
        ctx.save_for_backward(x, *values)
        return value

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        x, *values = ctx.saved_tensor()
        weights = weights_of([*values, values[-1][0]])
        steps = ctx.steps
        if paddle.is_grad_enabled():  # to be differentiated once more
            _, steps = forward(ctx.derivatives, weights, x, 3)
        grads, x_bar = reverse(weights, x, steps, cotangent)
        return tuple(
            None if given.stop_gradient else grad
            for given, grad in zip((x, *values), (x_bar, *grads[:-1]), strict=True)
        )


def laplacian(net: Net, params: Params, x: Tensor) -> Tensor:
    """The sum of the second derivatives of a fully connected net by each of its inputs.

    Exact, in one pass with one matrix product a layer; differentiable with respect to
    parameters and ``x``, where its reverse pass is in closed form too, and twice.

    Args:
        net: an :class:`FCNet` with a built-in activation, or ``stateless`` of a
            ``Sequential`` of Linear layers with one of them between.
        params: dict or theta.
        x: shape [n, d], or [..., d].

    Returns:
        The Laplacian of every output, shape [n, out].

    Raises:
        TypeError: a net without closed form, a tensor of another dtype than the net's.
        ValueError: an x of another width.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import FCNet, laplacian
        >>> net = FCNet((2, 8, 1), "tanh", "float64")
        >>> x = paddle.rand([5, 2], dtype="float64")
        >>> laplacian(net, net.init(0), x).shape
        paddle.Size([5, 1])
    """
    derivatives = derivatives_of(net)
    width = check_input(net, params, x)
    with recording(params, x):
        values = list(net.spec.as_dict(params).values())
        rows = x if x.ndim == 2 else x.reshape([-1, width])
        if len(values) > 2 and records_graph([x, *values]):
            value = _Laplacian.apply(derivatives, rows, *values[:-1])
        else:
            value, _ = forward(derivatives, weights_of(values), rows, 2)
        return value if x.ndim == 2 else value.reshape([*x.shape[:-1], -1])


Back = Callable[[Tensor], tuple[list[Tensor | None], Tensor]]


def laplacian_pullback(
    derivatives: Derivatives, weights: Weights, x: Tensor
) -> tuple[Tensor, Back]:
    """Value and pullback at ``x`` of shape [n, d], without a graph; unchecked."""
    value, steps = forward(derivatives, weights, x, 3)
    return value, lambda cotangent: reverse(weights, x, steps, cotangent)
