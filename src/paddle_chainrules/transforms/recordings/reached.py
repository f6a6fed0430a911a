"""Gradients that exist by way of programs, where Paddle's tape gives zeros."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paddle import Tensor

from ...paddle_side.listener import local, thread_mode


class program_gradients_noted(thread_mode):
    """A context that notes which gradients backward passes give by way of programs.

    A graph of Paddle's gives zeros where there are none; by the identity of a tensor,
    whether there was one.
    """

    name = "noted_gradients"

    def __init__(self) -> None:
        self.value: dict[int, bool] = {}


def note_reached(inputs: Iterable[Tensor], has_grad: Iterable[bool]) -> None:
    """Note which inputs of a program have a gradient, where that is requested."""
    noted = local.noted_gradients
    if noted is not None:
        for x, flag in zip(inputs, has_grad, strict=True):
            noted[id(x)] = noted.get(id(x), False) or flag


def without_zeros(
    grads: Sequence[Tensor | None], fn_inputs: Sequence[Tensor], noted: dict[int, bool]
) -> Sequence[Tensor | None]:
    """Return gradients, with None for zeros that stand for a missing gradient.

    Args:
        fn_inputs: what the gradients are of, as the function got it.
        noted: what :class:`program_gradients_noted` has noted.
    """
    if False not in noted.values():
        return grads
    pairs = zip(grads, fn_inputs, strict=True)
    return [None if noted.get(id(x)) is False and _is_zero(g) else g for g, x in pairs]


def _is_zero(grad: Tensor | None) -> bool:
    return grad is None or not grad.detach().numpy().any()
