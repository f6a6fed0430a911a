"""First and second derivatives by the input, carried through a net in closed form.

Beside the value ``h`` of a layer go its derivatives ``h_i`` by some of the inputs, and
sums of second ones: u_xx, u_xy, or the Laplacian as one. An affine map acts on each
alone; an activation f of ``z`` gives, with the sum over the pairs (i, j) of inputs that
such a sum differentiates by,

    h = f(z),    h_i = f'(z) z_i,    sum h_ij = f''(z) sum z_i z_j + f'(z) sum z_ij.

The reverse pass transposes these steps. Source: Li, Ye, Zhang, et al., "Forward
Laplacian", Nature Machine Intelligence 6, 2024; Griewank and Walther, "Evaluating
Derivatives", 2nd edition, SIAM 2008, chapters 3 and 13.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from ..paddle_side import kernel_errors
from ..paddle_side.watch import ask_for
from .activation_derivatives import Derivatives
from .blocks import Grads, blocks, gather
from .second_order_plans import Plan
from .weights import Weights, as_rows, weights_of, with_leading_of

Rows = list[Tensor | None]
"""The value, first derivatives and sums of second ones that a plan names, or their
cotangents: [n, width] each, None where it is zero or not needed."""


class Step(NamedTuple):
    """What the reverse pass needs of one hidden layer."""

    z: Rows
    f: Sequence[Tensor]  # the activation and its derivatives at the value of z
    products: list[Tensor]  # of each sum of second derivatives the sum of z_i z_j
    h: Rows


def forward(
    plan: Plan, derivatives: Derivatives, weights: Weights, x: Tensor, order: int
) -> tuple[list[Tensor], list[Step]]:
    """What the plan asks for at ``x`` of shape [n, d], and what was met.

    Derivatives of the activation are evaluated up to ``order``: that of the plan for
    the value, one more where the reverse pass follows.
    """
    (w, b), n = weights[0], x.shape[0]
    # Full matrices: to multiply by a row is slow in Paddle.
    rows, shape = w.unbind(0), [n, w.shape[1]]
    slopes = [rows[i].expand(shape) for i in plan.directions]
    z: Rows = [_affine(w, b, x), *slopes, *[None] * len(plan.seconds)]
    steps: list[Step] = []
    for i, (w, b) in enumerate(weights[1:], start=2):
        wanted = plan.outputs if i == len(weights) else range(len(z))
        step = _activate(plan, derivatives, z, order, wanted)
        steps.append(step)
        value, *rest = step.h
        z = [
            None if value is None else _affine(w, b, value),
            *(None if h is None else h @ w for h in rest),
        ]
    found = [
        paddle.zeros([n, b.shape[0]], x.dtype) if (part := z[i]) is None else part
        for i in plan.outputs
    ]
    return found, steps


def _affine(w: Tensor, b: Tensor, h: Tensor) -> Tensor:
    # The derivative of addmm crashes Paddle 3.3.
    return h @ w + b if paddle.is_grad_enabled() else paddle.addmm(b, h, w)


def _activate(
    plan: Plan,
    derivatives: Derivatives,
    z: Rows,
    order: int,
    wanted: Sequence[int],
) -> Step:
    """One hidden layer: the wanted parts of ``f(z)``."""
    value = _given(z[0])
    f = [
        d if isinstance(d, Tensor) else paddle.full_like(value, d)
        for d in derivatives(value, order)
    ]
    products = [
        _sum([_given(z[i]) * _given(z[j]) for i, j in pairs]) for pairs in plan.seconds
    ]
    h: Rows = [None] * len(z)
    seconds = 1 + len(plan.directions)
    for i in wanted:
        part = z[i]
        if i == 0:
            h[i] = f[0]
        elif i < seconds:
            h[i] = f[1] * _given(part)
        else:
            curved = f[2] * products[i - seconds]
            h[i] = curved if part is None else curved + f[1] * part
    return Step(z, f, products, h)


def reverse(
    plan: Plan,
    weights: Weights,
    x: Tensor,
    steps: list[Step],
    cotangents: Sequence[Tensor | None],
    params: bool,
    args: bool,
) -> tuple[Grads, Tensor | None]:
    """Gradients of weights and biases in forward order, and of ``x``.

    None for the last bias where no value is asked for. What is not asked for is not
    computed.
    """
    bars: Rows = [None] * (1 + len(plan.directions) + len(plan.seconds))
    for i, cotangent in zip(plan.outputs, cotangents, strict=True):
        bars[i] = cotangent
    grads: list[tuple[Tensor, Tensor | None]] = []
    for i in range(len(weights) - 1, -1, -1):
        w, _ = weights[i]
        if params:
            w_bar = _outer(steps[i - 1].h, bars) if i else _outer_first(plan, x, bars)
            bias_bar = None if bars[0] is None else bars[0].sum(0)
            grads.append((paddle.zeros_like(w) if w_bar is None else w_bar, bias_bar))
        if i:
            below = [
                None if bar is None else paddle.matmul(bar, w, transpose_y=True)
                for bar in bars
            ]
            bars = _activate_reverse(plan, steps[i - 1], below)
    x_bar = None
    if args:
        first, _ = weights[0]
        value_bar = bars[0]
        x_bar = (
            paddle.zeros_like(x)
            if value_bar is None
            else paddle.matmul(value_bar, first, transpose_y=True)
        )
    return [*chain.from_iterable(reversed(grads))] if params else None, x_bar


def _activate_reverse(plan: Plan, step: Step, bars: Rows) -> Rows:
    """Cotangents of ``z`` from those of ``f(z)``."""
    z, (_, f1, *higher) = step.z, step.f
    found: Rows = [None] * len(z)
    seconds = 1 + len(plan.directions)

    def add(i: int, term: Tensor) -> None:
        before = found[i]
        found[i] = term if before is None else before + term

    if (bar := bars[0]) is not None:
        add(0, f1 * bar)
    for i in range(1, seconds):
        if (bar := bars[i]) is not None:
            add(0, higher[0] * (_given(z[i]) * bar))
            add(i, f1 * bar)
    for i, (pairs, product) in enumerate(
        zip(plan.seconds, step.products, strict=True), start=seconds
    ):
        if (bar := bars[i]) is None:
            continue
        f2, f3 = higher
        part, by_value = z[i], f3 * product
        if part is not None:
            by_value = by_value + f2 * part
            add(i, f1 * bar)
        add(0, by_value * bar)
        once = f2 * bar
        twice = 2 * once if any(j == k for j, k in pairs) else None
        for j, k in pairs:
            if j == k:
                add(j, _given(twice) * _given(z[j]))
            else:
                add(j, once * _given(z[k]))
                add(k, once * _given(z[j]))
    return found


def _outer(rows: Rows, bars: Rows) -> Tensor | None:
    """The cotangent of a weight that took each of ``rows`` to one of ``bars``."""
    terms = [
        paddle.matmul(row, bar, transpose_x=True)
        for row, bar in zip(rows, bars, strict=True)
        if row is not None and bar is not None
    ]
    return _sum(terms) if terms else None


def _outer_first(plan: Plan, x: Tensor, bars: Rows) -> Tensor | None:
    """The same for the first weight, whose rows are the first derivatives."""
    value_bar, *rest = bars
    terms = []
    if value_bar is not None:
        terms.append(paddle.matmul(x, value_bar, transpose_x=True))
    sums = {
        i: bar.sum(0)
        for i, bar in zip(plan.directions, rest, strict=False)
        if bar is not None
    }
    if sums:
        width = x.shape[1]
        if len(sums) < width:
            zero = paddle.zeros_like(next(iter(sums.values())))
            sums = dict.fromkeys(range(width), zero) | sums
        terms.append(paddle.stack([sums[i] for i in range(width)]))
    return _sum(terms) if terms else None


def _sum(terms: Sequence[Tensor]) -> Tensor:
    total, *rest = terms
    for term in rest:
        total = total + term
    return total


def _given(tensor: Tensor | None) -> Tensor:
    """A part that the plan makes sure of."""
    assert tensor is not None
    return tensor


def forward_in_blocks(
    plan: Plan, derivatives: Derivatives, weights: Weights, x: Tensor, order: int
) -> tuple[list[Tensor], list[Step] | None]:
    """As :func:`forward`, but of many points without what the reverse pass needs."""
    parts = blocks(weights, x)
    if not parts:
        return forward(plan, derivatives, weights, x, order)
    found = [
        forward(plan, derivatives, weights, x[part], plan.order)[0] for part in parts
    ]
    return [paddle.concat(values) for values in zip(*found, strict=True)], None


def reverse_in_blocks(
    plan: Plan,
    derivatives: Derivatives,
    weights: Weights,
    x: Tensor,
    steps: list[Step] | None,
    cotangents: Sequence[Tensor | None],
    params: bool,
    args: bool,
) -> tuple[Grads, Tensor | None]:
    """As :func:`reverse`, of what :func:`forward_in_blocks` gave."""
    if steps is not None:
        return reverse(plan, weights, x, steps, cotangents, params, args)

    def of(part: slice) -> tuple[Grads, Tensor | None]:
        rows = x[part]
        _, steps = forward(plan, derivatives, weights, rows, plan.order + 1)
        bars = [None if bar is None else bar[part] for bar in cotangents]
        return reverse(plan, weights, rows, steps, bars, params, args)

    return gather(map(of, blocks(weights, x)))


class _Operation(PyLayer):
    """The closed form as an operation of Paddle's own graph."""

    @staticmethod
    def forward(
        ctx: Any, plan: Plan, derivatives: Derivatives, x: Tensor, *values: Tensor
    ) -> Any:
        ctx.plan, ctx.derivatives = plan, derivatives
        weights = _weights_without_last(values)
        found, ctx.steps = forward_in_blocks(
            plan, derivatives, weights, x, plan.order + 1
        )
        ctx.save_for_backward(x, *values)
        return tuple(found) if len(found) > 1 else found[0]

    @kernel_errors.backward
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        plan, derivatives = ctx.plan, ctx.derivatives
        x, *values = ctx.saved_tensor()
        weights, steps = _weights_without_last(values), ctx.steps
        if paddle.is_grad_enabled():  # to be differentiated once more
            _, steps = forward(plan, derivatives, weights, x, plan.order + 1)
        params = any(not value.stop_gradient for value in values)
        args = not x.stop_gradient
        grads, x_bar = reverse_in_blocks(
            plan, derivatives, weights, x, steps, cotangents, params, args
        )
        # None where a gradient is needed would crash Paddle.
        found = (x_bar, *(grads or [None] * len(values)))
        return tuple(
            None
            if given.stop_gradient
            else paddle.zeros_like(given)
            if grad is None
            else grad
            for given, grad in zip((x, *values), found, strict=False)
        )


def _weights_without_last(values: Sequence[Tensor]) -> Weights:
    """Pairs, the last bias made up where it takes no part."""
    return weights_of([*values, values[-1][0]] if len(values) % 2 else values)


def recorded(
    plan: Plan, derivatives: Derivatives, values: Sequence[Tensor], x: Tensor
) -> list[Tensor]:
    """What the plan asks for at ``x`` of shape [..., d], on Paddle's graph.

    ``values`` are weights and biases in forward order.
    """
    taking_part = values if 0 in plan.outputs else values[:-1]
    ask_for([x, *taking_part])  # Paddle has a layer give all of its gradients, or fail
    found = _Operation.apply(plan, derivatives, as_rows(x), *taking_part)
    parts = found if isinstance(found, tuple | list) else [found]
    return [with_leading_of(x, part) for part in parts]


def value(
    plan: Plan, derivatives: Derivatives, weights: Weights, x: Tensor
) -> list[Tensor]:
    """The same without a graph."""
    found, _ = forward_in_blocks(plan, derivatives, weights, as_rows(x), plan.order)
    return [with_leading_of(x, part) for part in found]


Back = Callable[
    [Sequence[Tensor | None], bool, bool],
    tuple[Grads, Tensor | None],
]
"""``back(cotangents, params, args)``, as :func:`reverse`."""


def pullback(
    plan: Plan, derivatives: Derivatives, weights: Weights, x: Tensor
) -> tuple[list[Tensor], Back]:
    """Value and pullback at ``x`` of shape [..., d], without a graph."""
    rows = as_rows(x)
    found, steps = forward_in_blocks(plan, derivatives, weights, rows, plan.order + 1)

    def back(
        cotangents: Sequence[Tensor | None], params: bool, args: bool
    ) -> tuple[Grads, Tensor | None]:
        bars = [None if bar is None else as_rows(bar) for bar in cotangents]
        grads, x_bar = reverse_in_blocks(
            plan, derivatives, weights, rows, steps, bars, params, args
        )
        return grads, None if x_bar is None else with_leading_of(x, x_bar)

    return [with_leading_of(x, part) for part in found], back
