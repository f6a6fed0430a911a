"""Paddle's backward engine, entered by one thread at a time and never from within."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import paddle
from paddle import Tensor

from ..listener import listener
from ..process.random_state import generator_lock
from .kernel_errors import kernels_named
from .pylayers import layers_watched
from .running import INNER, entered_by, refuse_within
from .served_once import refuse_spent


def gradients(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    create_graph: bool,
) -> list[Tensor | None]:
    """Return ``paddle.grad``, None for an input that no output depends on.

    Paddle's engine keeps one global state: two threads inside crash it, and so does a
    second entry from a hook or a PyLayer's backward. The turn is that of drawing, since
    a backward may draw, and what draws may hold a gradient.

    Raises:
        NotImplementedError: a kernel that can't be differentiated again.
        RuntimeError: called while ``paddle.grad`` runs on this thread.
    """
    if (receiver := listener()) is not None:
        return receiver.gradients(outputs, inputs, cotangents, create_graph)
    return _by_engine(outputs, inputs, cotangents, create_graph)


def _by_engine(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    create_graph: bool,
) -> list[Tensor | None]:
    refuse_within()
    if len(cotangents) > 1 and not create_graph:
        # Where several gradients meet, Paddle adds them up in the memory of the first,
        # which may be that of a cotangent (docs/paddle-notes.md).
        cotangents = [cotangent.clone() for cotangent in cotangents]
    refuse_spent(outputs)
    with generator_lock(), kernels_named(), layers_watched(create_graph):
        results: list[Tensor | None] = _grad(
            *([*outputs], [*inputs], [*cotangents]),
            *(True, create_graph, True, True, [], None),
        )
    return results


entered_by(_by_engine)

_PARAMETERS = (
    *("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph"),
    *("only_inputs", "allow_unused", "no_grad_vars", "dump_backward_graph_path"),
)
_grad: Any = paddle.grad
if tuple(inspect.signature(INNER).parameters) == _PARAMETERS:
    # What paddle.grad calls once it has checked its arguments, which takes it a tenth
    # of a small net's gradient.
    _grad = paddle.base.core.eager.run_partial_grad


def or_zeros(tensor: Tensor | None, like: Tensor) -> Tensor:
    """Return a tensor, or zeros where it is missing."""
    return paddle.zeros_like(like) if tensor is None else tensor
