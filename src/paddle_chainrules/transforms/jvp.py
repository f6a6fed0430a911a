"""Forward mode, Jacobians, second derivatives of any function, by nested paddle.grad.

As far as Paddle's kernels go: where one can't be differentiated again, an error names
it. Fully connected nets have :mod:`..nets.derivatives`, which needs no such kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle
from paddle import Tensor

from ..paddle_side.engine import gradients
from ..paddle_side.grad_mode import grad_mode
from ..paddle_side.watch import as_leaf
from .recording import (
    check_cotangent,
    detached,
    is_differentiable,
    record,
    records_graph,
)
from .tree import Tree, flatten_tree


def jvp(
    fn: Callable[..., Tree], primals: tuple[Tree, ...], tangents: tuple[Tree, ...]
) -> tuple[Tree, Tree]:
    """Value and Jacobian-vector product: ``(fn(*primals), its derivative along)``.

    Like ``jax.jvp``, but by reverse mode twice, since Paddle has no forward mode; it
    needs kernels that can be differentiated twice.

    Args:
        fn: function of tensors; it may return a tensor or a tree of them.
        primals: the arguments, tensors or trees of them.
        tangents: nested as primals, with their shapes and dtypes; None for zero.

    Returns:
        The value, and the derivative nested as it is: zero where the value does not
        depend on the primals, None where it is no floating tensor.

    Raises:
        ValueError: a tangent of another structure or shape.
        TypeError: a tangent of another dtype.
        NotImplementedError: a kernel that Paddle can't differentiate again.

    Example:
        >>> import paddle
        >>> from paddle_chainrules import jvp
        >>> x, v = paddle.to_tensor([1.0, 2.0]), paddle.to_tensor([1.0, 0.5])
        >>> y, slope = jvp(lambda x: x * x, (x,), (v,))
        >>> slope.tolist()
        [2.0, 2.0]
    """
    leaves, spec = flatten_tree(tuple(primals))
    given, found_spec = flatten_tree(tuple(tangents))
    if found_spec != spec:
        raise ValueError(
            f"tangents are nested as {found_spec}, primals as {spec}; give one tensor, "
            "or None for zero, per primal"
        )
    for leaf, tangent in zip(leaves, given, strict=True):
        if tangent is not None and isinstance(leaf, Tensor):
            check_cotangent(tangent, leaf.shape, leaf.dtype, "tangent", "primal")
    out_spec = spec

    def flat(stand_ins: list[Any]) -> list[Any]:
        nonlocal out_spec
        outputs, out_spec = flatten_tree(fn(*spec.unflatten(stand_ins)))
        return outputs

    values, recording = record(flat, leaves, create_graph=True)
    connected = recording.connected or records_graph(given)
    # The pullback is linear in the cotangent: its own pullback is what is asked for.
    outputs = [o for o in recording.outputs if is_differentiable(o)]
    slopes: list[Tensor | None] = [None] * len(outputs)
    traced = [*{id(o): o for o in outputs if not o.stop_gradient}.values()]
    if traced:
        with grad_mode(True):
            seeds = [as_leaf(paddle.zeros_like(output)) for output in traced]
            grads = recording.differentiable_gradients(traced, seeds)
        tangent_of = iter(given[i] for i in recording.differentiable)
        pairs = [
            (grad, tangent)
            for grad, tangent in zip(grads, tangent_of, strict=False)
            if grad is not None and tangent is not None and not grad.stop_gradient
        ]
        if pairs:
            # Some second derivatives of Paddle's fail where not all are asked for.
            found = gradients(
                [grad for grad, _ in pairs],
                [*seeds, *recording.inputs],
                [tangent for _, tangent in pairs],
                connected,
            )
            of = dict(zip(map(id, traced), found, strict=False))
            slopes = [of.get(id(output)) for output in outputs]
    filled = iter(
        paddle.zeros_like(output) if slope is None else slope
        for slope, output in zip(slopes, outputs, strict=True)
    )
    row = [next(filled) if is_differentiable(o) else None for o in recording.outputs]
    row = row if connected else detached(row, given)
    return out_spec.unflatten(values), out_spec.unflatten(row)
