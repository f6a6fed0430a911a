"""Paddle's backward engine, entered by one thread at a time and never from within."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

import paddle
from paddle import Tensor

from ..listener import listener
from ..process.random_state import in_turn
from .kernel_errors import kernels_named, note
from .partial_gradients import node_of, nodes
from .pylayers import layers_watched
from .served_once import check


class EngineBusy(RuntimeError):
    """A gradient was asked for while Paddle's engine computes another."""


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
    if (who := listener()) is not None:
        return who.gradients(outputs, inputs, cotangents, create_graph)
    return _by_engine(outputs, inputs, cotangents, create_graph)


def _by_engine(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    create_graph: bool,
) -> list[Tensor | None]:
    if is_running():
        error = EngineBusy(
            "a gradient was asked for while paddle.grad computes another: inside a "
            "hook of a tensor, or the backward of a PyLayer, where Paddle's engine "
            "would crash. Take the inner gradient in forward or by a program, which "
            "needs no engine (jit(grad(fn))(x)), or write the backward in tensor "
            "operations"
        )
        note(error)  # in a hook, too
        raise error
    if len(cotangents) > 1 and not create_graph:
        # Where several gradients meet, Paddle adds them up in the memory of the first,
        # which may be that of a cotangent (docs/paddle-notes.md).
        cotangents = [cotangent.clone() for cotangent in cotangents]
    check(outputs)
    with in_turn(), kernels_named(), layers_watched(create_graph):
        found: list[Tensor | None] = _grad(
            *([*outputs], [*inputs], [*cotangents]),
            *(True, create_graph, True, True, [], None),
        )
    return found


def is_running() -> bool:
    """Tell whether ``paddle.grad`` is among the callers."""
    codes = _GRAD, _by_engine.__code__
    return any(frame.f_code in codes for frame in _callers(sys._getframe(2)))


def asked_for() -> Callable[[Tensor], bool]:
    """Return a test that tells whether Paddle's running engine needs a leaf's gradient.

    A ``backward`` needs those of all leaves, ``paddle.grad`` those of its inputs.
    """
    asked = _asked()
    if asked is None:
        return lambda leaf: True
    return lambda leaf: not _addresses([leaf]).isdisjoint(asked)


def asked_behind() -> Callable[[Tensor], bool]:
    """Return the test of :func:`asked_for` for any tensor.

    It also passes if the engine needs the gradient of what the tensor is computed from.
    """
    asked = _asked()
    if asked is None:
        return lambda tensor: True

    def is_asked(tensor: Tensor) -> bool:
        node = node_of(tensor)
        if tensor.is_leaf:
            return node is not None and node.node_ptr() in asked
        return any(behind.node_ptr() in asked for behind in nodes([node]))

    return is_asked


def _asked() -> set[int] | None:
    """Return the nodes of the running engine's inputs; None if it needs all leaves."""
    for frame in _callers(sys._getframe(2)):
        if frame.f_code in (_GRAD, _by_engine.__code__):
            asked = _addresses(frame.f_locals["inputs"])
            return asked - _addresses(frame.f_locals.get("no_grad_vars") or ())
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


_inner: Any = inspect.unwrap(paddle.grad)
_GRAD = _inner.__code__
_BACKWARD = [
    inspect.unwrap(way).__code__
    for way in (paddle.Tensor.backward, paddle.autograd.backward)
]

_PARAMETERS = (
    *("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph"),
    *("only_inputs", "allow_unused", "no_grad_vars", "dump_backward_graph_path"),
)
_grad: Any = paddle.grad
if tuple(inspect.signature(_inner).parameters) == _PARAMETERS:
    # What paddle.grad calls once it has checked its arguments, which takes it a tenth
    # of a small net's gradient.
    _grad = paddle.base.core.eager.run_partial_grad
