"""The protocol of listeners to a thread's operators; see :mod:`.interception`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from paddle import Tensor


class Listener(Protocol):
    """An object that is handed the calls of its thread.

    Attributes:
        is_passive: whether it lets all calls pass, or refuses them, so that transforms
            run as if nobody listened.
    """

    is_passive: bool = False

    def operator(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Run an operator, or an attribute of tensors that computes."""

    def escape(
        self, name: str, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Run an attribute by which a tensor's value escapes to Python."""

    def gradients(
        self,
        outputs: Sequence[Tensor],
        inputs: Sequence[Tensor],
        cotangents: Sequence[Tensor],
        create_graph: bool,
    ) -> list[Tensor | None]:
        """Return gradients in place of :func:`.autograd.engine.gradients`."""

    def reaches_free(self, outputs: Sequence[Any], own: Sequence[Any]) -> bool:
        """Tell whether they depend on tensors with gradients beside their own."""

    def stands_in(self, leaves: Sequence[Tensor], recording: Any) -> None:
        """Note leaves by which a recording differentiates, as long as it exists."""

    def apply(
        self, layer: Any, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Run a call of a ``PyLayer``, of this class."""

    def missed_layer(self, layer: Any) -> None:
        """Note a call of a ``PyLayer`` that was not handed over, and perhaps raise."""

    def grad(self, name: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run ``paddle.grad``."""


class _Local(threading.local):
    """Hold what a thread listens to; class defaults make a look-up fast."""

    listener: Any = None
    plain = False


local = _Local()


def listener() -> Listener | None:
    """Return this thread's listener, unless it lets all calls pass."""
    result: Listener | None = local.listener
    return None if result is None or result.is_passive else result


def is_plain() -> bool:
    """Tell whether this thread is to call functions, and not their programs."""
    return local.listener is not None or local.plain


class programs_disabled:
    """A context in which functions are called, and not their programs."""

    def __enter__(self) -> None:
        self._before = local.plain
        local.plain = True

    def __exit__(self, *_: object) -> None:
        local.plain = self._before


class not_listening:
    """Let the calls of this thread pass.

    A class, since a generator that an interrupt has left open ends at any time.
    """

    def __enter__(self) -> None:
        self._before = local.listener
        local.listener = None

    def __exit__(self, *_: object) -> None:
        local.listener = self._before
