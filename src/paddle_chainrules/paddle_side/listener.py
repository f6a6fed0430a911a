"""The protocol of listeners to a thread's operators; see :mod:`.interception`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
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

    def substituted(
        self, tensors: Sequence[Tensor], others: Sequence[Tensor]
    ) -> AbstractContextManager[None]:
        """Return a context in which tensors stand for the values of others."""

    def apply(
        self, layer: Any, call: Callable[..., Any], args: Any, kwargs: Any
    ) -> Any:
        """Run a call of a ``PyLayer``, of this class."""

    def missed_layer(self, layer: Any) -> None:
        """Note a call of a ``PyLayer`` that was not handed over, and perhaps raise."""

    def grad(self, name: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run ``paddle.grad``."""


class _ThreadModes(threading.local):
    """What the calls of a thread are part of; class defaults make a look-up fast.

    docs/architecture.md says who sets and who reads each of them.
    """

    listener: Any = None
    plain = False
    single_use = False
    whole = False
    sizes_alone = False
    noted_gradients: dict[int, bool] | None = None
    recordings: Any = ()
    suspended = False


local = _ThreadModes()


class thread_mode:
    """A context in which a mode of this thread has a value; then it is as before.

    A class, since a generator that an interrupt has left open ends at any time.

    Attributes:
        name: the mode's.
        value: what it is meanwhile; the context itself where it has none.
    """

    name: str
    value: Any

    def __enter__(self) -> Any:
        self._before = getattr(local, self.name)
        value = getattr(self, "value", self)
        setattr(local, self.name, value)
        return value

    def __exit__(self, *_: object) -> None:
        setattr(local, self.name, self._before)


def listener() -> Listener | None:
    """Return this thread's listener, unless it lets all calls pass."""
    result: Listener | None = local.listener
    return None if result is None or result.is_passive else result


def is_plain() -> bool:
    """Tell whether this thread is to call functions, and not their programs."""
    return local.listener is not None or local.plain


class programs_disabled(thread_mode):
    """A context in which functions are called, and not their programs."""

    name, value = "plain", True


class not_listening(thread_mode):
    """A context that lets the calls of this thread pass."""

    name, value = "listener", None


class single_use_captures(thread_mode):
    """A context in which captures make programs that serve one call alone."""

    name = "single_use"

    def __init__(self, flag: bool = True) -> None:
        self.value = flag


def is_single_use() -> bool:
    """Tell whether captures of this thread serve one call alone."""
    return local.single_use


class undecomposed_operators(thread_mode):
    """A context in which captures keep Paddle's operators whole."""

    name, value = "whole", True


def keeps_operators_whole() -> bool:
    """Tell whether captures of this thread keep operators whole."""
    return local.whole
