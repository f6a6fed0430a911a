"""Gradients that exist by way of programs, where Paddle's tape gives zeros."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paddle import Tensor

from ...paddle_side.listener import local


class program_gradients_noted:
    """A context that notes which gradients backward passes give by way of programs.

    A graph of Paddle's gives zeros where there are none; by the identity of a tensor,
    whether there was one.
    """

    def __enter__(self) -> dict[int, bool]:
        self._before = getattr(local, "reached", None)
        results: dict[int, bool] = {}
        local.reached = results
        return results

    def __exit__(self, *_: object) -> None:
        local.reached = self._before


def note_reached(inputs: Iterable[Tensor], there: Iterable[bool]) -> None:
    """Note for which inputs of a program there is a gradient, for all that ask."""
    results: dict[int, bool] | None = getattr(local, "reached", None)
    if results is not None:
        for x, flag in zip(inputs, there, strict=True):
            results[id(x)] = results.get(id(x), False) or flag


def without_zeros(
    grads: Sequence[Tensor | None], given: Sequence[Tensor], results: dict[int, bool]
) -> Sequence[Tensor | None]:
    """Return gradients, with None in the place of zeros that stand for none.

    Args:
        given: by what they are, in the hands of the function.
        results: what :class:`program_gradients_noted` has noted.
    """
    if False not in results.values():
        return grads
    pairs = zip(grads, given, strict=True)
    return [
        None if results.get(id(x)) is False and _is_zero(g) else g for g, x in pairs
    ]


def _is_zero(grad: Tensor | None) -> bool:
    return grad is None or not grad.detach().numpy().any()
