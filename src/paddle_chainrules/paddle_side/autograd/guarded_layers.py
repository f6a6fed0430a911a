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

_guarded: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def guarded(layer: Any) -> Any:
    """Return the layer's subclass that makes up for Paddle; our own layers need none.

    Its results have memory of their own, unless the forward writes into an argument.
    Its backward gets copies of the gradients, and gives some of the arguments' shapes
    and dtypes. It raises :class:`.Overwritten` if what the forward has saved was
    written into.
    """
    if layer.__module__.partition(".")[0] == "paddle_chainrules":
        return layer
    result = _guarded.get(layer)
    if result is None:
        result = _guarded[layer] = _subclass_of(layer)
    return result


def _subclass_of(layer: Any) -> Any:
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        given = tensors_in_tree([args, kwargs])
        before = [x._inplace_version() for x in given]
        result = layer.forward(ctx, *args, **kwargs)
        if [x._inplace_version() for x in given] == before:
            result = _in_own_memory(ctx, result, given)
        state = [*(ctx.saved_tensor() or ()), *vars(ctx).values()]
        saved = [(x, x._inplace_version()) for x in tensors_in_tree(state)]
        requested = [a for a in (*args, *kwargs.values()) if has_gradient(a)]
        ctx._guard = saved, [*map(_asked_of, requested)]
        return result

    def backward(ctx: Any, *cotangents: Any) -> Any:
        saved, requested = ctx._guard
        if _are_written(saved):
            raise Overwritten(
                f"the backward of the PyLayer {layer.__name__} needs a tensor that has "
                "been written into since its forward has saved it; write it out of "
                "place, y = y + v, or into a copy, y = y.clone()"
            )
        outcome = layer.backward(ctx, *map(copy_of_cotangent, cotangents))
        if _are_written(saved):
            raise ValueError(
                f"the backward of the PyLayer {layer.__name__} writes into what its "
                "forward has saved, which others read; have it write into a copy"
            )
        if isinstance(outcome, Tensor) or outcome is None:
            return _fitted(layer, [outcome], requested)[0]
        if not isinstance(outcome, list | tuple):
            return outcome  # which Paddle refuses
        fitted = _fitted(layer, outcome, requested)
        return fitted if isinstance(outcome, list) else tuple(fitted)

    methods = {
        "__module__": layer.__module__,
        "forward": staticmethod(forward),
        "backward": staticmethod(backward),
    }
    return type(layer)(layer.__name__, (layer,), methods)


def _are_written(saved: Sequence[tuple[Tensor, int]]) -> bool:
    """Tell whether a tensor has another version than noted beside it."""
    return any(x._inplace_version() != version for x, version in saved)


def tensors_in_tree(tree: Any) -> list[Tensor]:
    """Return the tensors in a tree of any containers."""
    leaves = optree.tree_leaves(tree, none_is_leaf=True)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def copy_of_cotangent(cotangent: Any) -> Any:
    """Return a copy that a backward may write into; anything else as it is."""
    return cotangent.clone() if isinstance(cotangent, Tensor) else cotangent


def _in_own_memory(ctx: Any, result: Any, given: Sequence[Tensor]) -> Any:
    """Return the result, of which no tensor is an argument, a view of one or twice."""
    known: set[int] = set()
    unmarked: dict[int, Tensor] = {}

    def own(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if id(leaf) in known or any(share_memory(leaf, x) for x in given):
            unmarked[id(leaf)] = copy = leaf.detach().clone()
            return copy
        known.add(id(leaf))
        return leaf

    outcome = optree.tree_map(own, result, none_is_leaf=True)
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
        return any(isinstance(part, Tensor) for part in argument)
    return isinstance(argument, Tensor)


class _RequestedGradients(NamedTuple):
    """What Paddle's engine asks a gradient to be; None for a list of them.

    Attributes:
        needed: whether it can't do without, as for an intermediate result.
    """

    shape: list[int]
    dtype: paddle.dtype
    needed: bool


def _asked_of(argument: Any) -> _RequestedGradients | None:
    if not isinstance(argument, Tensor):
        return None
    needed = not (argument.stop_gradient or argument.is_leaf)
    return _RequestedGradients(argument.shape, argument.dtype, needed)


def _fitted(
    layer: Any, grads: Sequence[Any], asked: Sequence[_RequestedGradients | None]
) -> list[Any]:
    """Return gradients of the arguments' shapes and dtypes, with zeros where needed.

    Paddle would cut what it casts off the graph.

    Raises:
        ValueError: one has another number of elements.
    """
    results: list[Any] = []
    rest = [None] * max(0, len(grads) - len(asked))
    for grad, like in zip(grads, [*asked, *rest], strict=False):
        if like is None or not (grad is None or isinstance(grad, Tensor)):
            results.append(grad)
        elif grad is None:
            results.append(
                paddle.zeros(like.shape, like.dtype) if like.needed else None
            )
        else:
            results.append(_fitted_one(layer, grad, like))
    return results


def _fitted_one(layer: Any, grad: Tensor, like: _RequestedGradients) -> Tensor:
    if grad.size != math.prod(like.shape):
        raise ValueError(
            f"the backward of the PyLayer {layer.__name__} gives a gradient of shape "
            f"{list(grad.shape)} for an argument of shape {list(like.shape)}; have it "
            "give the argument's shape"
        )
    if grad.shape != like.shape:
        grad = grad.reshape(like.shape)
    both_real = grad.is_floating_point() and "complex" not in dtype_name(like.dtype)
    return grad.astype(like.dtype) if both_real and grad.dtype != like.dtype else grad
