"""Whether Paddle's engine runs on this thread, and by what it was entered."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from typing import Any

import paddle
from paddle import Tensor

from .kernel_errors import note_error
from .partial_gradients import node_of, nodes


class EngineBusy(NotImplementedError):
    """A gradient was asked for while Paddle's engine computes another."""


def entered_by(fn: Callable[..., Any]) -> None:
    """Note a function that enters the engine, with its ``inputs``."""
    _ENTRIES.append(fn.__code__)


def refuse_within() -> None:
    """Refuse to enter the engine from within.

    Raises:
        EngineBusy: it runs on this thread, and would crash.
    """
    if _is_running(sys._getframe(2)):
        error = EngineBusy(
            "a gradient was asked for while paddle.grad computes another: inside a "
            "hook of a tensor, or the backward of a PyLayer, where Paddle's engine "
            "would crash. Take the inner gradient in forward or by a program, which "
            "needs no engine (jit(grad(fn))(x)), or write the backward in tensor "
            "operations"
        )
        note_error(error)  # in a hook, too
        raise error


def is_running() -> bool:
    """Tell whether ``paddle.grad`` is among the callers."""
    return _is_running(sys._getframe(1))


def _is_running(frame: FrameType | None) -> bool:
    return any(caller.f_code in _ENTRIES for caller in _callers(frame))


def requested_leaf_test() -> Callable[[Tensor], bool]:
    """Return a test whether Paddle's running engine needs a leaf's gradient.

    A ``backward`` needs those of all leaves, ``paddle.grad`` those of its inputs.
    """
    requested = _requested_nodes()
    if requested is None:
        return lambda leaf: True
    return lambda leaf: not _addresses([leaf]).isdisjoint(requested)


def requested_tensor_test() -> Callable[[Tensor], bool]:
    """Return the test of :func:`requested_leaf_test` for any tensor.

    It also passes if the engine needs the gradient of what the tensor is computed from.
    """
    requested = _requested_nodes()
    if requested is None:
        return lambda tensor: True

    def is_requested(tensor: Tensor) -> bool:
        node = node_of(tensor)
        if tensor.is_leaf:
            return node is not None and node.node_ptr() in requested
        return any(ancestor.node_ptr() in requested for ancestor in nodes([node]))

    return is_requested


def _requested_nodes() -> set[int] | None:
    """Return the nodes of the running engine's inputs; None if it needs all leaves."""
    for frame in _callers(sys._getframe(2)):
        if frame.f_code in _ENTRIES:
            requested = _addresses(frame.f_locals["inputs"])
            return requested - _addresses(frame.f_locals.get("no_grad_vars") or ())
        if frame.f_code in _BACKWARD:
            break
    return None


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield a frame, and those that it was called from."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def _addresses(tensors: Iterable[Tensor]) -> set[int]:
    """Return the addresses of the tensors' nodes, for those that have one."""
    nodes = map(node_of, tensors)
    return {node.node_ptr() for node in nodes if node is not None}


INNER: Any = inspect.unwrap(paddle.grad)
_ENTRIES: list[CodeType] = [INNER.__code__]
_BACKWARD = [
    inspect.unwrap(function).__code__
    for function in (paddle.Tensor.backward, paddle.autograd.backward)
]
