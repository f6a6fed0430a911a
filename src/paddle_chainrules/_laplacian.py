"""The Laplacian of a fully connected net, carried directly, with its reverse pass.

Beside the value ``h`` go its gradient ``g`` with respect to the d inputs and its
Laplacian ``l``. An affine map acts on each alone; an activation f of ``z`` gives, with
the sum ``s`` of the squares of ``g``,

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

from ._chain import as_rows, with_leading_of
from ._closed_form import Weights, weights_of
from ._derivatives import Derivatives
from ._net import Net
from ._params import Params
from ._taylor import check_input, recording


class Step(NamedTuple):
    """What the reverse pass needs of one hidden layer."""

    f1: Tensor  # derivatives of the activation at z, [n, width]
    f2: Tensor
    f3: Tensor | None
    g: list[Tensor]  # derivative of z by each input, [n, width], [1, width] at first
    s: Tensor  # the sum of their squares
    l: Tensor | None  # Laplacian of z, None in the first layer  # noqa: E741
    after: list[Tensor]  # what the activation gives: h, the derivatives, the Laplacian


def forward(
    derivatives: Derivatives, weights: Weights, x: Tensor, order: int
) -> tuple[Tensor, list[Step]]:
    """The Laplacian of every output at ``x`` of shape [n, d], and what was met.

    Derivatives of the activation are evaluated up to ``order``: 2 for the value, 3
    where the reverse pass follows.
    """
    n, d = x.shape
    w, b = weights[0]
    z, g, l = paddle.addmm(b, x, w), paddle.split(w, d), None  # noqa: E741
    steps: list[Step] = []
    for i, (w, b) in enumerate(weights[1:], start=2):
        f, f1, f2, *f3 = (
            value if isinstance(value, Tensor) else paddle.full_like(z, value)
            for value in derivatives(z, order)
        )
        s = g[0] * g[0]
        for by_input in g[1:]:
            s = s + by_input * by_input
        new = f2 * s if l is None else f2 * s + f1 * l
        last = i == len(weights)
        after = [new] if last else [f, *(f1 * by_input for by_input in g), new]
        steps.append(Step(f1, f2, f3[0] if f3 else None, g, s, l, after))
        if last:
            return new @ w, steps
        z, g, l = (  # noqa: E741
            paddle.addmm(b, f, w),
            [by_input @ w for by_input in after[1:-1]],
            new @ w,
        )
    return paddle.zeros([n, b.shape[0]], x.dtype), steps


def reverse(
    weights: Weights,
    x: Tensor,
    steps: list[Step],
    cotangent: Tensor,
    params: bool,
    args: bool,
) -> tuple[list[Tensor] | None, Tensor | None]:
    """Gradients of weights and biases in forward order, and of ``x``.

    Without the last bias, which takes no part. What is not asked for is not computed.
    """
    first, last = weights[0][0], weights[-1][0]
    if not steps:
        return (
            [paddle.zeros_like(first)] if params else None,
            paddle.zeros_like(x) if args else None,
        )
    grads: list[tuple[Tensor, ...]] = []
    if params:
        grads.append((_outer(steps[-1].after, [cotangent]),))
    l_bar = paddle.matmul(cotangent, last, transpose_y=True)
    bars: list[Tensor] = []
    for i in range(len(steps) - 1, -1, -1):
        f1, f2, f3, g, s, l, _ = steps[i]  # noqa: E741
        assert f3 is not None
        z_bar = (f3 * s if l is None else f3 * s + f2 * l) * l_bar
        by_square = 2 * f2 * l_bar
        g_bars = [by_square * by_input for by_input in g]
        if bars:
            h_bar, *rest = bars
            z_bar = z_bar + f1 * h_bar
            for k, (by_input, bar) in enumerate(zip(g, rest, strict=True)):
                z_bar = z_bar + f2 * (by_input * bar)
                g_bars[k] = g_bars[k] + f1 * bar
        w, _ = weights[i]
        if i == 0 and params:
            by_value = paddle.matmul(x, z_bar, transpose_x=True)
            by_slope = paddle.stack([bar.sum(0) for bar in g_bars])
            grads.append((by_value + by_slope, z_bar.sum(0)))
        if i == 0:
            break
        z_bars = [z_bar, *g_bars, f1 * l_bar]
        if params:
            grads.append((_outer(steps[i - 1].after, z_bars), z_bar.sum(0)))
        *bars, l_bar = (paddle.matmul(bar, w, transpose_y=True) for bar in z_bars)
    x_bar = paddle.matmul(z_bar, first, transpose_y=True) if args else None
    return [*chain.from_iterable(reversed(grads))] if params else None, x_bar


def _outer(rows: list[Tensor], bars: list[Tensor]) -> Tensor:
    """The cotangent of a weight that took each of ``rows`` to one of ``bars``."""
    total, *rest = (
        paddle.matmul(row, bar, transpose_x=True)
        for row, bar in zip(rows, bars, strict=True)
    )
    for product in rest:
        total = total + product
    return total


class _Laplacian(PyLayer):  # type: ignore[misc]
    """The closed form as an operation of Paddle's own graph."""

    @staticmethod
    def forward(ctx: Any, derivatives: Derivatives, x: Tensor, *values: Tensor) -> Any:
        # The last bias takes no part.
        weights = weights_of([*values, values[-1][0]])
        ctx.derivatives = derivatives
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
        params = any(not value.stop_gradient for value in values)
        args = not x.stop_gradient
        grads, x_bar = reverse(weights, x, steps, cotangent, params, args)
        found = (x_bar, *(grads or [None] * len(values)))
        return tuple(
            None if given.stop_gradient else grad
            for given, grad in zip((x, *values), found, strict=True)
        )


def laplacian(net: Net, params: Params, x: Tensor) -> Tensor:
    """The sum of the second derivatives of a fully connected net by each of its inputs.

    Exact and in one pass; differentiable with respect to parameters and ``x``, where
    its reverse pass is in closed form too, and twice.

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
    derivatives, _ = check_input(net, params, x)
    with recording(params, x):
        values = list(net.spec.as_dict(params).values())
        if len(values) > 2 and paddle.is_grad_enabled():
            value = _Laplacian.apply(derivatives, as_rows(x), *values[:-1])
            return with_leading_of(x, value)
        return laplacian_value(derivatives, weights_of(values), x)


def laplacian_value(derivatives: Derivatives, weights: Weights, x: Tensor) -> Tensor:
    """The formula of :func:`laplacian`, unchecked."""
    value, _ = forward(derivatives, weights, as_rows(x), 2)
    return with_leading_of(x, value)


Back = Callable[[Tensor, bool, bool], tuple[list[Tensor] | None, Tensor | None]]
"""``back(cotangent, params, args)``, as :func:`reverse`."""


def laplacian_pullback(
    derivatives: Derivatives, weights: Weights, x: Tensor
) -> tuple[Tensor, Back]:
    """Value and pullback at ``x`` of shape [..., d], without a graph; unchecked."""
    rows = as_rows(x)
    value, steps = forward(derivatives, weights, rows, 3)

    def back(
        cotangent: Tensor, params: bool, args: bool
    ) -> tuple[list[Tensor] | None, Tensor | None]:
        d = as_rows(cotangent)
        grads, x_bar = reverse(weights, rows, steps, d, params, args)
        return grads, None if x_bar is None else with_leading_of(x, x_bar)

    return with_leading_of(x, value), back
