"""Graphs that ``backward`` walks more than once, which programs on them don't survive.

Paddle's nodes of Python lose what they need at the first ``backward``, retained or not,
and the next one ends the process (docs/paddle-notes.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from paddle import Tensor

from ..paddle_side.autograd.partial_gradients import PROGRAM, node_of, nodes
from ..transforms.recordings.reached import program_gradients_noted

RETAINS = "backward(retain_graph=True) goes back through a graph more than once"

SERVES_ONCE = "which Paddle's graphs with a net's program serve but once"


class Retained:
    """A guard of calls of ``backward`` within a context.

    Args:
        tell: is called, with the reason, when a graph is to be retained.
        params: gives the parameters of the nets that may run as programs.
        has_programs: tells whether a net has run as one.
    """

    def __init__(
        self,
        tell: Callable[[str], None],
        params: Callable[[], Iterable[Tensor]],
        has_programs: Callable[[], bool],
    ) -> None:
        self._tell, self._params, self._has_programs = tell, params, has_programs
        # Their nodes are alive, so that no others have their addresses.
        self._walked: deque[tuple[list[Any], set[int]]] = deque(maxlen=16)

    def guard_backward(self, native: Callable[..., Any]) -> Callable[..., Any]:
        """Return Paddle's ``backward``, with an error where there would be a crash.

        Args:
            native: of a tensor, or of several; cotangents come second, and whether the
                graph is to be retained third.
        """

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            tensor_list = tensors if isinstance(tensors, list | tuple) else [tensors]
            retains = args[1] if len(args) > 1 else kwargs.get("retain_graph", False)
            if retains:
                self._tell(RETAINS)
            if not self._has_programs():
                return native(tensors, *args, **kwargs)
            self._check_graph(tensor_list, retains)
            with self._grads_as_native():
                return native(tensors, *args, **kwargs)

        return backward

    @contextmanager
    def _grads_as_native(self) -> Iterator[None]:
        """Leave ``.grad`` as native Paddle would if a program gives zeros."""
        without_grad = [p for p in self._params() if p.grad is None]
        if not without_grad:
            yield
            return
        with program_gradients_noted() as has_gradient:
            yield
        for parameter in without_grad:
            is_unused = has_gradient.get(id(parameter)) is False
            if is_unused and parameter.grad is not None and not parameter.grad.any():
                parameter.clear_gradient(False)

    def _check_graph(self, tensors: Iterable[Tensor], retains: bool) -> None:
        """Refuse what would crash, now or at the next call.

        Raises:
            RuntimeError: it would.
        """
        roots = [*map(node_of, tensors)]
        ends = filter(_is_program, nodes(roots, _is_program))
        programs = {node.node_ptr() for node in ends}
        if not programs:
            return
        if retains:
            raise RuntimeError(
                f"{RETAINS}, {SERVES_ONCE}; call it once for the sum of the losses, or "
                "take the step again, which runs natively from now on"
            )
        if any(programs & walked for _, walked in self._walked):
            raise RuntimeError(
                "backward goes back through a graph for the second time, "
                f"{SERVES_ONCE}; call it once for the sum of the losses, use "
                "paddle.grad(..., retain_graph=True), or leave the context of "
                "taylor_mode for this step"
            )
        self._walked.append((roots, programs))


def _is_program(node: Any) -> bool:
    return bool(node.name() == PROGRAM)
