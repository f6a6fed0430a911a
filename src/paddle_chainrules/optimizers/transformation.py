"""The type of optimizers: a first state, and a rule from gradients to updates.

The conventions are those of optax: ``state = init(params)``,
``updates, state = update(grads, state, params)``,
``params = apply_updates(params, updates)``. All are functions of trees of tensors. So a
step is one too, and works with ``jit`` and ``vmap``.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import optree
import paddle
from paddle import Tensor

from ..paddle_side.dtypes import is_complex, single
from ..transforms.containers.tree import Tree, flatten_tree, nesting

Leaf = Any
"""A tensor, or None where there is none."""


class Update(Protocol):
    """Function from gradients and a state to updates of parameters, and a state."""

    def __call__(
        self, grads: Tree, state: Tree, params: Tree = None
    ) -> tuple[Tree, Tree]: ...


class Optimizer(NamedTuple):
    """An optimizer, or a part of one, as two functions.

    Attributes:
        init: the state of parameters before the first step.
        update: of gradients, a state, and the parameters, which some need: what is to
            be added to the parameters, and the next state. A gradient may be None,
            where a parameter has none, which then stays with its part of the state.
    """

    init: Callable[[Tree], Tree]
    update: Update


def names_kernels(step: Callable[..., Any]) -> Callable[..., Any]:
    """Have a step say what to do where Paddle has no kernel for a dtype.

    Raises:
        NotImplementedError: from the step, in place of Paddle's error.
    """

    @functools.wraps(step)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return step(*args, **kwargs)
        except RuntimeError as error:
            result = re.search(MISSING_KERNEL, str(error))
            if result is None:
                raise
            device, dtype, kernel = result.groups()
            remedy = (
                "keep the parameters in float32, and cast them within the loss"
                if "float" in dtype
                else "make their real and imaginary parts the parameters"
            )
            raise NotImplementedError(
                f"Paddle has no kernel {kernel} for {dtype} on {device}, which a step "
                f"of this optimizer needs for such parameters; {remedy}"
            ) from error

    return call


MISSING_KERNEL = r"kernel with key \((\w+), [^,]*, (\w+)\) of kernel `(\w+)`"
"""Paddle's words for a device, a dtype and a kernel that it has not together."""


def with_state(
    kind: type, init: Callable[[Tree], Any], update: Callable[..., Any]
) -> Optimizer:
    """Create an optimizer that checks the type of its state in each step.

    It moves the real and imaginary parts of complex parameters as if these were the
    parameters, as PyTorch's do; its state is of these parts.
    """

    def checked_init(params: Tree) -> Any:
        leaves_without_none(params)
        return init(in_real_parts(params))

    @names_kernels
    def checked_update(
        grads: Tree, state: Tree, params: Tree = None
    ) -> tuple[Tree, Tree]:
        if not isinstance(state, kind):
            raise TypeError(
                f"the state of this optimizer is of the kind {kind.__name__}, got "
                f"{type(state).__name__}; give the one that its own init or update "
                "gave, as update(grads, state, params)"
            )
        if not any(map(_is_complex, flatten_tree(grads)[0])):
            return update(grads, state, in_real_parts(params))
        if params is not None:
            map_leaves(_check_both_complex, grads, params)
        updates, state = update(in_real_parts(grads), state, in_real_parts(params))
        return map_leaves(_like_gradient, grads, updates)[0], state

    return Optimizer(checked_init, checked_update)


def in_real_parts(tree: Tree) -> Tree:
    """Return a tree with real and imaginary parts, on a last axis, for complex leaves.

    Of what is no tree of tensors, nothing is changed.
    """
    leaves, spec = flatten_tree(tree)
    if not any(map(_is_complex, leaves)):
        return tree
    return spec.unflatten([_real_parts(x) if _is_complex(x) else x for x in leaves])


def as_users_have_them(params: Tree) -> Tree:
    """Return parameters without the change of :func:`in_real_parts`."""
    leaves, spec = flatten_tree(params)
    return spec.unflatten([getattr(x, "of_complex", x) for x in leaves])


def _real_parts(leaf: Tensor) -> Tensor:
    result = paddle.as_real(leaf)
    vars(result)["of_complex"] = leaf
    return result


def _is_complex(leaf: Leaf) -> bool:
    return isinstance(leaf, Tensor) and is_complex(leaf)


def _check_both_complex(gradient: Leaf, p: Leaf) -> tuple[None]:
    if _is_complex(gradient) and not _is_complex(p):
        raise TypeError(
            "a gradient is complex, and its parameter is real; give its real part"
        )
    return (None,)


def _like_gradient(gradient: Leaf, update: Leaf) -> tuple[Leaf]:
    """Return an update as a complex tensor if its gradient is one."""
    if update is None or not _is_complex(gradient):
        return (update,)
    return (paddle.as_complex(update),)


@names_kernels
def apply_updates(params: Tree, updates: Tree) -> Tree:
    """Add updates to parameters, each in the dtype of its parameter.

    Args:
        params: a tree of tensors.
        updates: nested as these; None if a parameter stays.

    Raises:
        ValueError: they are nested otherwise.
        TypeError: a leaf is neither a tensor nor None.
    """

    leaves_without_none(updates)

    def add(p: Leaf, u: Leaf) -> tuple[Leaf]:
        if p is None or u is None:
            return (p,)
        if p.shape != u.shape:
            raise ValueError(
                f"an update of shape {list(u.shape)} is none of a parameter of shape "
                f"{list(p.shape)}; give updates of the parameters' shapes"
            )
        return (p + (u if u.dtype == p.dtype else u.astype(p.dtype)),)

    return map_leaves(add, params, updates)[0]


def chain(*parts: Optimizer) -> Optimizer:
    """Apply one part after another: each is given the updates of the one before.

    The state is a tuple of theirs.
    """

    for part in parts:
        if not isinstance(part, Optimizer):
            raise TypeError(
                f"chain takes optimizers and parts of them, got {type(part).__name__}; "
                "give adam(1e-3), for one, with its brackets"
            )

    def init(params: Tree) -> Tree:
        return tuple(part.init(params) for part in parts)

    def update(grads: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        if len(state) != len(parts):
            raise ValueError(
                f"a chain of {len(parts)} parts is given a state of {len(state)}; give "
                "the state that its own init or update gave"
            )
        results = []
        for part, own_state in zip(parts, state, strict=True):
            grads, own_state = part.update(grads, own_state, params)
            results.append(own_state)
        return grads, tuple(results)

    return with_state(tuple, init, update)


def stateless_update(rule: Callable[[Tree, Tree], Tree]) -> Optimizer:
    """Return an optimizer without state, from a rule on gradients and parameters."""

    def update(grads: Tree, state: Tree, params: Tree = None) -> tuple[Tree, Tree]:
        return rule(grads, params), state

    return with_state(tuple, lambda params: (), update)


def leaves_without_none(tree: Tree) -> list[Tensor]:
    """Return the leaves of a tree, without None.

    Raises:
        TypeError: one is no tensor.
    """
    leaves = flatten_tree(tree)[0]
    _check_tensors(leaves)
    return [leaf for leaf in leaves if leaf is not None]


def _check_tensors(leaves: Sequence[Leaf]) -> None:
    for leaf in leaves:
        if leaf is not None and not isinstance(leaf, Tensor):
            raise TypeError(
                "gradients, parameters and updates are trees of tensors, got "
                f"{type(leaf).__name__} among them; convert it by paddle.to_tensor"
            )


def map_leaves(
    rule: Callable[..., Sequence[Leaf]], tree: Tree, *others: Tree
) -> list[Tree]:
    """Apply a rule to each leaf, with the leaves of other trees at the same position.

    Args:
        rule: gives one or more results.
        tree: a tree of tensors and None.

    Raises:
        ValueError: a tree is nested otherwise than the first one.
        TypeError: a leaf of the first one is neither a tensor nor None.
    """
    leaves, spec = flatten_tree(tree)
    _check_tensors(leaves)
    rows = [leaves]
    for other in others:
        row, other_spec = flatten_tree(other)
        if other_spec != spec:
            raise ValueError(
                "gradients, parameters and the state of an optimizer are nested alike, "
                f"and one of them is {nesting(spec)}, another {nesting(other_spec)}; "
                "give the parameters that init was given, and their gradients"
            )
        rows.append(row)
    results = [rule(*leaf_row) for leaf_row in zip(*rows, strict=True)]
    count = len(results[0]) if results else 1
    return [
        optree.tree_unflatten(spec, [leaf_row[k] for leaf_row in results])
        for k in range(count)
    ]


def full_like_params(params: Tree, value: float = 0.0) -> Tree:
    """Return a number for each of the parameters', of their shapes and dtypes."""

    def full(p: Leaf) -> tuple[Leaf]:
        return (None if p is None else paddle.full_like(p, value),)

    return map_leaves(full, params)[0]


def none_like_params(params: Tree) -> Tree:
    """Return a tree of None, nested as the parameters."""
    return map_leaves(lambda p: (None,), params)[0]


def in_dtype_of(value: Any, x: Tensor) -> Any:
    """Return a number, or a tensor of one, as precise as another tensor."""
    if isinstance(value, Tensor) and value.dtype != x.dtype:
        return value.astype(x.dtype)
    is_rounded = type(value) is float and x.dtype == paddle.float32
    return single(value) if is_rounded else value


def step_number(count: int = 0) -> Tensor:
    """Return a number of steps, as states have it: int64, of no dimensions."""
    return paddle.full([], count, "int64")


def scalar(value: float, params: Tree) -> Tensor:
    """Return a number that goes along with the steps, as precise as the parameters."""
    is_double = any(
        leaf.dtype == paddle.float64 for leaf in leaves_without_none(params)
    )
    return paddle.full([], value, "float64" if is_double else "float32")
