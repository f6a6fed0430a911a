"""``paddle.grad``, as users call it, on a record."""

from __future__ import annotations

from typing import Any, Protocol

import paddle
from paddle import Tensor

from ...paddle_side.listener import Listener


class GradientTrace(Listener, Protocol):
    """The part of :class:`.record.GradientTrace` that this module uses."""

    def fail(self, reason: str) -> Any: ...


def grad(
    record: GradientTrace,
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
    outputs, inputs = _listed(outputs), _listed(inputs)
    given = [None] * len(outputs) if grad_outputs is None else _listed(grad_outputs)
    if no_grad_vars:
        record.fail("paddle.grad with no_grad_vars: detach these tensors instead")
    seeds = [
        paddle.ones_like(o) if seed is None else seed
        for o, seed in zip(outputs, given, strict=True)
    ]
    results = record.gradients(outputs, inputs, seeds, bool(create_graph))
    if any(part is None for part in results) and not allow_unused:
        record.fail("paddle.grad by a tensor that is not used; see allow_unused")
    return results


def _listed(tensors: Any) -> list[Any]:
    return [*tensors] if isinstance(tensors, list | tuple) else [tensors]
