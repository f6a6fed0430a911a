"""Calls within an operator that programs do not look into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...paddle_side.listener import local, not_listening, thread_mode
from ...paddle_side.process.random_state import DRAWING
from .operations import tensors_in


class passive_listening(thread_mode):
    """A context that lets calls of this thread pass, except those that hide something.

    Args:
        tracer: of the function that calls the operator.
        name: name of the PyLayer.
    """

    is_passive, name = True, "listener"

    def __init__(self, tracer: Any, name: str) -> None:
        self._tracer, self._name = tracer, name

    def check(self, name: str, args: Sequence[Any]) -> None:
        """Refuse a call that draws, or takes a tensor of the function around it.

        Raises:
            CaptureError: always in these cases.
        """
        if name in DRAWING:
            self._tracer.fail(
                f"the PyLayer {self._name} draws random numbers, which its backward "
                "would draw again; draw them before, and give them as an argument"
            )
        if any(map(self._tracer.knows, tensors_in(args))):
            self._tracer.fail(
                f"the PyLayer {self._name} uses a tensor of the function around it "
                "that is no argument; give it as an argument of apply"
            )

    def operator(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Call an operator as it is."""
        with not_listening():
            self.check(name, [*args, *kwargs.values()])
            return call(*args, **kwargs)

    escape = operator

    def grad(self, name: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call ``paddle.grad`` as it is."""
        with not_listening():
            return call(*args, **kwargs)


def enclosing_layer() -> passive_listening | None:
    """Return the listener of the PyLayer that this thread's calls are in, if any."""
    result = local.listener
    return result if isinstance(result, passive_listening) else None
