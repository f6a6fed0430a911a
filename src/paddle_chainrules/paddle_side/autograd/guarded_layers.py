"""A ``PyLayer`` whose gradient Paddle's tape gets right, or refuses.

Paddle takes a result that is an argument, or a view of one, for a write in place. It
does not notice writes into what a layer has saved, and lets a backward write into a
gradient that others add to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import optree
import paddle
from paddle import Tensor

from ..dtypes import dtype_name
from ..shared_memory import share_memory
from .kernel_errors import Overwritten

_guarded_subclasses: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def guarded(layer: Any) -> Any:
    """Return the layer's subclass that makes up for Paddle; our own layers need none.

    Its results have memory of their own, unless the forward writes into an argument.
    Its backward gets copies of the gradients, and gives some of the arguments' shapes
    and dtypes. It raises :class:`.Overwritten` if what the forward has saved was
    written into.
    """
    if layer.__module__.partition(".")[0] == "paddle_chainrules":
        return layer
    result = _guarded_subclasses.get(layer)
    if result is None:
        result = _guarded_subclasses[layer] = _subclass_of(layer)
    return result


def _subclass_of(layer: Any) -> Any:
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        inputs = tensors_in_tree([args, kwargs])
        versions = [x._inplace_version() for x in inputs]
        result = layer.forward(ctx, *args, **kwargs)
        if [x._inplace_version() for x in inputs] == versions:
            result = _without_aliases(ctx, result, inputs)
        state = [*(ctx.saved_tensor() or ()), *vars(ctx).values()]
        saved = [(x, x._inplace_version()) for x in tensors_in_tree(state)]
        requested = [a for a in (*args, *kwargs.values()) if has_gradient(a)]
        ctx._guard = saved, [*map(_request_of, requested)]
        return result

    def backward(ctx: Any, *cotangents: Any) -> Any:
        saved, requested = ctx._guard
        if _is_any_written(saved):
            raise Overwritten(
                f"the backward of the PyLayer {layer.__name__} needs a tensor that has "
                "been written into since its forward has saved it; write it out of "
                "place, y = y + v, or into a copy, y = y.clone()"
            )
        grads = layer.backward(ctx, *map(copy_of_cotangent, cotangents))
        if _is_any_written(saved):
            raise ValueError(
                f"the backward of the PyLayer {layer.__name__} writes into what its "
                "forward has saved, which others read; have it write into a copy"
            )
        if isinstance(grads, Tensor) or grads is None:
            return _fit_gradients(layer, [grads], requested)[0]
        if not isinstance(grads, list | tuple):
            return grads  # which Paddle refuses
        fitted = _fit_gradients(layer, grads, requested)
        return fitted if isinstance(grads, list) else tuple(fitted)

    methods = {
        "__module__": layer.__module__,
        "forward": staticmethod(forward),
        "backward": staticmethod(backward),
    }
    return type(layer)(layer.__name__, (layer,), methods)


def _is_any_written(saved: Sequence[tuple[Tensor, int]]) -> bool:
    """Tell whether a tensor has another version than noted beside it."""
    return any(x._inplace_version() != version for x, version in saved)


def tensors_in_tree(tree: Any) -> list[Tensor]:
    """Return the tensors in a tree of any containers."""
    leaves = optree.tree_leaves(tree, none_is_leaf=True)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def copy_of_cotangent(cotangent: Any) -> Any:
    """Return a copy that a backward may write into; anything else as it is."""
    return cotangent.clone() if isinstance(cotangent, Tensor) else cotangent


def _without_aliases(ctx: Any, result: Any, inputs: Sequence[Tensor]) -> Any:
    """Return the result, with copies of tensors that alias an input or each other."""
    seen: set[int] = set()
    unmarked: dict[int, Tensor] = {}

    def unaliased(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if id(leaf) in seen or any(share_memory(leaf, x) for x in inputs):
            unmarked[id(leaf)] = copy = leaf.detach().clone()
            return copy
        seen.add(id(leaf))
        return leaf

    outcome = optree.tree_map(unaliased, result, none_is_leaf=True)
    marked = ctx.non_differentiable
    if marked and unmarked:
        copies = (unmarked[id(x)] for x in marked if id(x) in unmarked)
        ctx.mark_non_differentiable(*marked, *copies)
    return outcome


def has_gradient(argument: Any) -> bool:
    """Tell whether Paddle asks the backward of a layer for a gradient of an argument.

    It does for a tensor, and for a list or tuple of tensors.
    """
    if isinstance(argument, list | tuple):
        return any(isinstance(item, Tensor) for item in argument)
    return isinstance(argument, Tensor)


class _RequestedGradients(NamedTuple):
    """What Paddle's engine asks a gradient to be; None for a list of them.

    Attributes:
        needed: whether it can't do without, as for an intermediate result.
    """

    shape: list[int]
    dtype: paddle.dtype
    needed: bool


def _request_of(argument: Any) -> _RequestedGradients | None:
    if not isinstance(argument, Tensor):
        return None
    needed = not (argument.stop_gradient or argument.is_leaf)
    return _RequestedGradients(argument.shape, argument.dtype, needed)


def _fit_gradients(
    layer: Any, grads: Sequence[Any], requested: Sequence[_RequestedGradients | None]
) -> list[Any]:
    """Return gradients of the arguments' shapes and dtypes, with zeros where needed.

    Paddle would cut what it casts off the graph.

    Raises:
        ValueError: one has another number of elements.
    """
    results: list[Any] = []
    padding = [None] * max(0, len(grads) - len(requested))
    for grad, request in zip(grads, [*requested, *padding], strict=False):
        if request is None or not (grad is None or isinstance(grad, Tensor)):
            results.append(grad)
        elif grad is None:
            results.append(
                paddle.zeros(request.shape, request.dtype) if request.needed else None
            )
        else:
            results.append(_fit_gradient(layer, grad, request))
    return results


def _fit_gradient(layer: Any, grad: Tensor, request: _RequestedGradients) -> Tensor:
    if grad.size != math.prod(request.shape):
        raise ValueError(
            f"the backward of the PyLayer {layer.__name__} gives a gradient of shape "
            f"{list(grad.shape)} for an argument of shape {list(request.shape)}; have "
            "it give the argument's shape"
        )
    if grad.shape != request.shape:
        grad = grad.reshape(request.shape)
    both_real = grad.is_floating_point() and "complex" not in dtype_name(request.dtype)
    return (
        grad.astype(request.dtype)
        if both_real and grad.dtype != request.dtype
        else grad
    )
