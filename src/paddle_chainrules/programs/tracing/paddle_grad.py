"""``paddle.grad``, as users call it, on a trace."""

from __future__ import annotations

from typing import Any, Protocol

import paddle
from paddle import Tensor

from ...paddle_side.listener import Listener


class GradientTrace(Listener, Protocol):
    """The methods of :class:`.record.Tracer` that this module uses."""

    def fail(self, reason: str) -> Any: ...


def grad(
    tracer: GradientTrace,
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool = False,
    no_grad_vars: Any = None,
) -> list[Tensor | None]:
    """Return the gradients that ``paddle.grad`` gives, by the rules of the table.

    Raises:
        CaptureError: an input is not used, or there are ``no_grad_vars``.
    """
    outputs, inputs = _as_list(outputs), _as_list(inputs)
    optional_seeds = (
        [None] * len(outputs) if grad_outputs is None else _as_list(grad_outputs)
    )
    if no_grad_vars:
        tracer.fail("paddle.grad with no_grad_vars: detach these tensors instead")
    seeds = [
        paddle.ones_like(o) if seed is None else seed
        for o, seed in zip(outputs, optional_seeds, strict=True)
    ]
    results = tracer.gradients(outputs, inputs, seeds, bool(create_graph))
    if any(gradient is None for gradient in results) and not allow_unused:
        tracer.fail("paddle.grad by a tensor that is not used; see allow_unused")
    return results


def _as_list(tensors: Any) -> list[Any]:
    return [*tensors] if isinstance(tensors, list | tuple) else [tensors]
