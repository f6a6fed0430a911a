"""Calls within an operator that programs do not look into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paddle import Tensor

from ...paddle_side.autograd.engine import gradients
from ...paddle_side.listener import listener, local, not_listening
from ...paddle_side.process.random_state import DRAWING
from .operations import tensors_in


class within:
    """A context that lets calls of this thread pass, except those that hide something.

    Args:
        record: of the function that calls the operator.
        name: name of the PyLayer.
    """

    def __init__(self, record: Any, name: str) -> None:
        self._record, self._name = record, name

    def __enter__(self) -> None:
        self._before = listener()
        local.listener = self

    def __exit__(self, *_: object) -> None:
        local.listener = self._before

    def _check(self, name: str, given: Sequence[Any]) -> None:
        if name in DRAWING:
            self._record.fail(
                f"the PyLayer {self._name} draws random numbers, which its backward "
                "would draw again; draw them before, and give them as an argument"
            )
        if any(map(self._record.knows, tensors_in(given))):
            self._record.fail(
                f"the PyLayer {self._name} uses a tensor of the function around it "
                "that is no argument; give it as an argument of apply"
            )

    def operator(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Call an operator as it is."""
        with not_listening():
            self._check(name, [*args, *kwargs.values()])
            return call(*args, **kwargs)

    leaves = operator

    def gradients(
        self,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        cotangents: Sequence[Tensor],
        create_graph: bool,
    ) -> list[Tensor | None]:
        """Return gradients on Paddle's tape."""
        with not_listening():
            return gradients(outputs, inputs, cotangents, create_graph)

    def grad(self, name: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call ``paddle.grad`` as it is."""
        with not_listening():
            return call(*args, **kwargs)

    def apply(
        self, layer: Any, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Call another PyLayer."""
        return call(*args, **kwargs)

    def missed(self, layer: Any) -> None:
        """Do nothing: a context is made, as it should be."""

    def reaches_free(self, outputs: Sequence[Any], own: Sequence[Any]) -> bool:
        """Return False: nothing here is tracked."""
        return False

    def stands_in(self, leaves: Sequence[Tensor], recording: Any) -> None:
        """Do nothing: nothing here is tracked."""
