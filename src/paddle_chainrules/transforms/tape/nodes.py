"""Results on a graph that Paddle records, whose gradients are not Paddle's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import paddle
from paddle import Tensor

from ...paddle_side.autograd.hooked_layers import HookedLayer
from ...paddle_side.autograd.running import asked_for
from ...paddle_side.autograd.served_once import SingleUseHook, watch
from ...paddle_side.interception import RAW
from ...paddle_side.watch import recordings
from ...programs.derivatives.partials import or_zeros
from .reached import note_reached


class Differentiable(Protocol):
    """A computed result, and the way to its gradients.

    Attributes:
        inputs: tensors of the graph that gradients are asked for.
    """

    inputs: Sequence[Tensor]

    def backward(
        self, cotangents: Sequence[Tensor | None]
    ) -> tuple[list[Tensor | None], list[bool]]:
        """Return the gradients of the inputs, on the graph where gradients are on.

        None stands where there is none; the flags tell where Paddle has zeros there.
        """

    def feeds_another(self, place: int) -> bool:
        """Return whether another result is computed of the one at a place."""


def on_graph(results: Sequence[Tensor], of: Differentiable) -> tuple[Tensor, ...]:
    """Return the results as tensors of the graph of ``of.inputs``."""
    inputs = of.inputs
    given = inputs if all(x.is_leaf for x in inputs) else [_packed(inputs)]
    once: list[SingleUseHook] = []
    result = _Node.apply((of, results, once), *given)
    result = result if isinstance(result, tuple) else (result,)
    if not recordings():  # it may be on the caller's graph
        watch(result, once[0])
    return result


def _packed(tensors: Sequence[Tensor]) -> Tensor:
    """Pack all in one, since only leaves may have no gradient (paddle-notes.md)."""
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
    def forward(ctx: Any, call: Any, *given: Tensor) -> Any:
        ctx.of, results, once = call
        ctx.hooks.feeds_another = ctx.of.feeds_another
        once.append(SingleUseHook(ctx))
        ctx.several = len(given) > 1
        ctx.set_materialize_grads(False)
        return tuple(x.detach() for x in results)

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> Any:
        inputs = ctx.of.inputs
        grads, zeros = ctx.of.backward(given)
        pairs = zip(grads, zeros, strict=True)
        there = [grad is not None or zero for grad, zero in pairs]
        note_reached(inputs, there)
        if not ctx.several:
            return _packed([*map(or_zeros, grads, inputs)])
        is_asked = asked_for()
        return tuple(
            or_zeros(grad, x) if flag and is_asked(x) else None
            for x, grad, flag in zip(inputs, grads, there, strict=True)
        )
