"""One sample as vectors, for a layer that takes batches alone: a batch of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optree
from paddle import Tensor

from ...paddle_side.process.random_state import random_state_restored_on_error
from ...transforms.containers.tree import Tree, flatten_tree, is_indexed
from ...transforms.recordings.effects import is_refused_write, tensors_among, versions

_REFUSALS = (ValueError, IndexError, AssertionError)
"""Errors that layers raise for a tensor with too few axes."""


class OneSample:
    """Calls of a layer with vectors, which is a sample where the layer refuses it.

    A call that is refused is made with a batch of one, and so are those like it from
    then on. Where that is refused too, the error is that of the vectors.
    """

    def __init__(self) -> None:
        self._refused_shapes: set[Any] = set()

    def call(
        self, run: Callable[..., Tree], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Tree:
        """Return ``run(args, kwargs)``, or the same for a batch of one."""
        if (shapes := _vectors(args, kwargs)) is None:
            return run(args, kwargs)
        if shapes in self._refused_shapes and (
            result := _try_batch_of_one(run, args, kwargs)
        ):
            return result[0]
        tensors = tensors_among(_leaves((args, kwargs)))
        versions_before = versions(tensors)
        try:
            with random_state_restored_on_error():
                return run(args, kwargs)
        except _REFUSALS as refusal:
            wrote = versions(tensors) != versions_before or is_refused_write(refusal)
            if wrote or not (result := _try_batch_of_one(run, args, kwargs)):
                raise
        self._refused_shapes.add(shapes)
        return result[0]


def _vectors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """Return the lengths of the tensors among the arguments, if all are vectors."""
    if args and isinstance(args[0], Tensor) and args[0].ndim != 1:
        return None
    leaves = _leaves(args)
    tensors = tensors_among(leaves) or tensors_among(leaves := _leaves(kwargs))
    if not tensors or any(x.ndim != 1 for x in tensors) or any(map(is_indexed, leaves)):
        return None
    return (*(x.shape[0] for x in tensors), *kwargs)


def _leaves(tree: Tree) -> list[Any]:
    """Return the leaves; objects with indices beside values stay whole."""
    return optree.tree_leaves(tree, is_indexed, none_is_leaf=True)


def _try_batch_of_one(
    run: Callable[..., Tree], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """Run a batch of one; return its result in a tuple, or () if it is refused."""
    if tensors_among(_leaves(args)):
        args = _map_tensors(_add_batch_axis, args)
    else:
        kwargs = _map_tensors(_add_batch_axis, kwargs)
    try:
        return (_map_tensors(_drop_batch_axis, run(args, kwargs)),)
    except _REFUSALS as refusal:
        if is_refused_write(refusal):
            raise
        return ()


def _map_tensors(function: Callable[[Tensor], Tensor], tree: Tree) -> Any:
    leaves, spec = flatten_tree(tree)
    return spec.unflatten([function(x) if isinstance(x, Tensor) else x for x in leaves])


def _add_batch_axis(x: Tensor) -> Tensor:
    return x.unsqueeze(0)


def _drop_batch_axis(y: Tensor) -> Tensor:
    """Return a result without the axis of samples, if it has any axis."""
    if y.ndim and y.shape[0] != 1:
        raise ValueError(
            f"a result of a batch of one has shape {list(y.shape)}; give a batch"
        )
    return y.squeeze(0) if y.ndim else y
