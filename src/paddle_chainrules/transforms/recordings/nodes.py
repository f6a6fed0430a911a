"""Results on a graph that Paddle records, whose gradients are not Paddle's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import paddle
from paddle import Tensor

from ...paddle_side.autograd.engine import or_zeros
from ...paddle_side.autograd.hooked_layers import HookedLayer
from ...paddle_side.autograd.running import requested_leaf_test
from ...paddle_side.autograd.served_once import SingleUseHook, guard_single_use
from ...paddle_side.interception import RAW
from ...paddle_side.watch import recordings
from .reached import note_reached


class Differentiable(Protocol):
    """Computed results, and the function that gives their gradients.

    Attributes:
        inputs: tensors of the graph that gradients are asked for.
    """

    inputs: Sequence[Tensor]

    def backward(
        self, cotangents: Sequence[Tensor | None]
    ) -> tuple[list[Tensor | None], list[bool]]:
        """Return the gradients of the inputs, on the graph where gradients are on.

        A missing gradient is None; the flags tell for which of these Paddle has zeros.
        """

    def feeds_another(self, index: int) -> bool:
        """Return whether another result is computed from the one at an index."""


def attach_to_graph(
    results: Sequence[Tensor], differentiable: Differentiable
) -> tuple[Tensor, ...]:
    """Return the results as tensors of the graph of ``of.inputs``."""
    inputs = differentiable.inputs
    node_inputs = inputs if all(x.is_leaf for x in inputs) else [_pack(inputs)]
    hooks: list[SingleUseHook] = []
    result = _Node.apply((differentiable, results, hooks), *node_inputs)
    result = result if isinstance(result, tuple) else (result,)
    if not recordings():  # it may be on the caller's graph
        guard_single_use(result, hooks[0])
    return result


def _pack(tensors: Sequence[Tensor]) -> Tensor:
    """Concatenate all, since only leaves may have no gradient (paddle-notes.md)."""
    if len(tensors) == 1:
        return tensors[0]
    if len({t.dtype for t in tensors}) > 1:
        real = not any(t.is_complex() for t in tensors)
        tensors = [t.astype("float64" if real else "complex128") for t in tensors]
    if recordings():
        return paddle.concat([t.reshape([-1]) for t in tensors])
    flat = [t if t.ndim == 1 else RAW.reshape(t, [-1]) for t in tensors]
    result: Tensor = RAW.concat(flat, 0)
    return result


class _Node(HookedLayer):
    """One operator among those that Paddle records."""

    @staticmethod
    def forward(ctx: Any, call: Any, *inputs: Tensor) -> Any:
        ctx.differentiable, results, hooks = call
        ctx.hooks.feeds_another = ctx.differentiable.feeds_another
        hooks.append(SingleUseHook(ctx))
        ctx.unpacked = len(inputs) > 1
        ctx.set_materialize_grads(False)
        return tuple(x.detach() for x in results)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> Any:
        inputs = ctx.differentiable.inputs
        grads, zeros = ctx.differentiable.backward(cotangents)
        pairs = zip(grads, zeros, strict=True)
        has_grad = [grad is not None or zero for grad, zero in pairs]
        note_reached(inputs, has_grad)
        if not ctx.unpacked:
            return _pack([*map(or_zeros, grads, inputs)])
        is_requested = requested_leaf_test()
        return tuple(
            or_zeros(grad, x) if flag and is_requested(x) else None
            for x, grad, flag in zip(inputs, grads, has_grad, strict=True)
        )
