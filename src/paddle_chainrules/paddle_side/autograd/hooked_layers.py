"""Layers of Python whose results may have hooks.

Paddle calls the hooks of a ``PyLayer``'s results, and hands the layer the gradients as
they were before (docs/paddle-notes.md). Here each hook leaves its result for the layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any
from weakref import ref

import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from ..dtypes import dtype_name
from ..patching.patch_sites import PatchSet, without_listener
from .by_node import NodeMap
from .kernel_errors import note_error, refused_later
from .partial_gradients import node_of

Hook = Callable[[Tensor], Tensor | None]

_tensor: Any = paddle.Tensor
_register = _tensor._register_grad_hook
"""Paddle's method that registers a hook, used as long as nobody listens."""


DIFFERENTIATED = (
    "gradients that a hook of a program's result has seen are differentiated once "
    "more, where Paddle calls the hook for whatever its own operators have kept. "
    "Remove the hook first, or call the function without jit, or outside of "
    "taylor_mode"
)


class HookedLayer(PyLayer):
    """A ``PyLayer`` whose ``backward`` gets what hooks of its results return.

    Its ``forward`` finds them in ``ctx.hooks``.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        forward: Any = cls.forward
        backward: Any = cls.backward

        @wraps(forward)
        def hooked_forward(ctx: Any, hooks: Hooks, *args: Any) -> Any:
            ctx.hooks = hooks
            return forward(ctx, *args)

        @wraps(backward)
        def hooked_backward(ctx: Any, *cotangents: Tensor | None) -> Any:
            changed = ctx.hooks.pop_results()
            if not changed:
                return backward(ctx, *cotangents)
            result = backward(
                ctx, *(changed.get(i, g) for i, g in enumerate(cotangents))
            )
            if not paddle.is_grad_enabled():
                return result
            grads = result if isinstance(result, tuple) else (result,)
            sources = [grad for grad in grads if grad is not None]
            refused = tuple(refused_later(DIFFERENTIATED, grads, sources))
            return refused if isinstance(result, tuple) else refused[0]

        cls.forward, cls.backward = (  # type: ignore[method-assign]
            staticmethod(hooked_forward),
            staticmethod(hooked_backward),
        )

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Call the layer."""
        hooks = Hooks()
        result = super().apply(hooks, *args)
        hooks.attach(result if isinstance(result, tuple) else (result,))
        return result


class Hooks:
    """The hooks of one call's results; its node keeps them alive.

    Attributes:
        feeds_another: whether another result is computed from the one at an index.
    """

    def __init__(self) -> None:
        self.feeds_another: Callable[[int], bool] = lambda index: False
        self._results: list[ref[Tensor]] = []
        self._hooked: set[int] = set()
        self._hook_results: dict[int, Tensor] = {}

    def attach(self, results: Sequence[Tensor]) -> None:
        """Have hooks of these results come here."""
        on_graph = next((x for x in results if not x.stop_gradient), None)
        if on_graph is not None:
            _patch_register_hook()
            self._results = [*map(ref, results)]
            _hooks.add(node_of(on_graph), self)

    def wrap_hook(self, result: Tensor, hook: Hook) -> Hook:
        """Return the hook, which leaves its result here.

        Raises:
            RuntimeError: it would see part of a gradient.
        """
        index = self._result_index(result)
        if self.feeds_another(index):
            raise RuntimeError(
                f"a hook was registered on result {index} of a program, of which the "
                "program computes other results; their gradients would not pass the "
                "hook. Compute them of this result outside of the program, or call the "
                "function without jit, or outside of taylor_mode"
            )
        if index not in self._hooked:
            self._hooked.add(index)
            _register(result, lambda _: self._forget_result(index))
        shape, dtype = [*result.shape], result.dtype

        def hook_and_store(grad: Tensor | None) -> Tensor | None:
            if grad is None:  # another result's gradient brought Paddle here
                return None
            changed = hook(grad)
            new_grad = grad if changed is None else changed
            self._hook_results[index] = _checked_hook_result(new_grad, shape, dtype)
            return new_grad

        return hook_and_store

    def _result_index(self, result: Tensor) -> int:
        for index, reference in enumerate(self._results):
            if reference() is result:
                return index
        if len(self._results) == 1:
            return 0
        raise RuntimeError(
            "a hook was registered on a copy of one of a program's results, which does "
            "not tell which of them it is; register it on the tensor that was returned"
        )

    def _forget_result(self, index: int) -> None:
        """Forget what hooks have returned in an earlier backward pass."""
        self._hook_results.pop(index, None)

    def pop_results(self) -> dict[int, Tensor]:
        """Take what hooks made of this pass's gradients, by result index."""
        result, self._hook_results = self._hook_results, {}
        return result


def _checked_hook_result(grad: Any, shape: Sequence[int], dtype: Any) -> Tensor:
    """Return what a hook has returned, which compiled code is going to read.

    Raises:
        TypeError, ValueError: it is no gradient of this tensor.
    """
    error: Exception | None = None
    if not isinstance(grad, Tensor):
        error = TypeError(
            f"a hook returned a {type(grad).__name__}, and not a tensor or None; "
            "return the gradient as a tensor"
        )
    elif [*grad.shape] != shape or grad.dtype != dtype:
        error = ValueError(
            f"a hook returned a gradient of shape {[*grad.shape]} and dtype "
            f"{dtype_name(grad.dtype)} for a tensor of shape {shape} and dtype "
            f"{dtype_name(dtype)}; return one of the tensor's own shape and dtype"
        )
    if error is not None:
        note_error(error)
        raise error
    return grad


_hooks: NodeMap[Hooks] = NodeMap()


@cache
def _patch_register_hook() -> None:
    """Have hooks of our layers' results come here, from now on."""
    native = without_listener(_tensor.register_hook)

    def register_hook(self: Tensor, hook: Hook) -> Any:
        node = None if self.stop_gradient else node_of(self)
        hooks = None if node is None else _hooks.get(node)
        return native(self, hook if hooks is None else hooks.wrap_hook(self, hook))

    PatchSet({"register_hook": (_tensor.register_hook, register_hook)}).switch(1)
