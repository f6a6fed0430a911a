"""Forward mode of any function, by reverse mode twice.

Derivatives by coordinates are in :mod:`...nets.derivatives.derivatives`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, Literal, cast, overload

import paddle
from paddle import Tensor

from ...paddle_side.arguments import refuse_hand_made
from ...paddle_side.autograd.engine import gradients
from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.listener import listener
from ...paddle_side.process.random_state import random_state_restored_on_error
from ...paddle_side.static_graphs import need_tensors, sot
from ..as_programs.auto_jit import by_program
from ..containers.tree import Tree, flatten_tree, nesting
from ..recordings.cotangents import check_cotangent
from ..recordings.kept_graph import KeptGraph
from ..recordings.recording import Recording
from .typed import Aux, Function, WithAux, Y, Y_co
from .vjp import FlatFunction


@overload
def jvp(
    fn: Function[Y],
    primals: Sequence[Tree],
    tangents: Sequence[Tree],
    has_aux: Literal[False] = False,
) -> tuple[Y, Y]: ...


@overload
def jvp(
    fn: WithAux[Y, Aux],
    primals: Sequence[Tree],
    tangents: Sequence[Tree],
    has_aux: Literal[True],
) -> tuple[Y, Y, Aux]: ...


@overload
def jvp(
    fn: Function[Any], primals: Sequence[Tree], tangents: Sequence[Tree], has_aux: bool
) -> tuple[Any, ...]: ...


def jvp(
    fn: Callable[..., Tree],
    primals: Sequence[Tree],
    tangents: Sequence[Tree],
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """Return value and Jacobian-vector product: ``(fn(*primals), its derivative)``.

    It is like ``jax.jvp``, but by reverse mode twice, since Paddle has no forward mode.
    A program leaves out what is not needed of that. If Paddle has no kernel for it, a
    program takes the derivative.

    Args:
        fn: function of tensors; it may return a tensor or a tree of them.
        primals: the arguments, tensors or trees of them.
        tangents: nested as primals, with their shapes and dtypes; None for zero.
        has_aux: fn returns ``(output, aux)``; aux is passed on, not differentiated.

    Returns:
        The value, and the derivative nested as it is: zero if the value does not depend
        on the primals, None if it is no floating tensor. With ``has_aux`` aux is the
        third.

    Raises:
        ValueError: a tangent of another structure or shape.
        TypeError: a tangent of another dtype, or no tuples.
        NotImplementedError: a kernel that Paddle can't differentiate again, of what is
            no program.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import jvp
        >>> x, v = paddle.to_tensor([1.0, 2.0]), paddle.to_tensor([1.0, 0.5])
        >>> y, slope = jvp(lambda x: x * x, (x,), (v,))
        >>> slope.tolist()
        [2.0, 2.0]
    """
    run = partial(_jvp, fn, has_aux)
    result = by_program(f"jvp{has_aux}", fn, run, 2, (primals, tangents), {})
    return cast(tuple[Any, ...], result)


def _jvp(
    fn: Callable[..., Tree], has_aux: bool, primals: Any, tangents: Any
) -> tuple[Any, ...]:
    need_tensors(sot.fallback(True))
    for what, trees in (("primals", primals), ("tangents", tangents)):
        if not isinstance(trees, tuple | list):
            raise TypeError(
                f"{what} must be a tuple with an item for each argument of fn, got "
                f"{type(trees).__name__}; give (x,) for the one argument x"
            )
    leaves, spec = flatten_tree(tuple(primals))
    tangent_leaves = _tangent_leaves(tuple(tangents), leaves, spec)
    with random_state_restored_on_error():
        value, pushforward, *aux = _linearize(fn, leaves, spec, has_aux)
        slope = pushforward._apply_to_leaves(tangent_leaves)
    return value, slope, *aux


@overload
def linearize(
    fn: Function[Y], *primals: Tree, has_aux: Literal[False] = False
) -> tuple[Y, Pushforward[Y]]: ...


@overload
def linearize(
    fn: WithAux[Y, Aux], *primals: Tree, has_aux: Literal[True]
) -> tuple[Y, Pushforward[Y], Aux]: ...


@overload
def linearize(fn: Function[Any], *primals: Tree, has_aux: bool) -> tuple[Any, ...]: ...


def linearize(
    fn: Function[Any], *primals: Tree, has_aux: bool = False
) -> tuple[Any, ...]:
    """Return ``(fn(*primals), pushforward)``: one forward, then many directions.

    Like ``jax.linearize``: ``pushforward(*tangents)`` is the derivative of
    :func:`jvp` at the same primals. With ``has_aux`` aux is the third.

    Raises:
        As :func:`jvp`.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import linearize
        >>> y, pushforward = linearize(lambda x: x * x, paddle.to_tensor([1.0, 2.0]))
        >>> pushforward(paddle.to_tensor([1.0, 0.5])).tolist()
        [2.0, 2.0]
    """
    need_tensors(sot.fallback(True))
    return _linearize(fn, *flatten_tree(primals), has_aux)


def _tangent_leaves(
    tangents: tuple[Tree, ...], leaves: Sequence[Any], spec: Any
) -> list[Any]:
    tangent_leaves, tangents_spec = flatten_tree(tangents)
    if tangents_spec != spec:
        raise ValueError(
            f"tangents are nested as {nesting(tangents_spec)}, primals as "
            f"{nesting(spec)}; give one tensor, or None for zero, per primal"
        )
    for leaf, tangent in zip(leaves, tangent_leaves, strict=True):
        if tangent is not None and isinstance(leaf, Tensor):
            check_cotangent(tangent, leaf.shape, leaf.dtype, "tangent", "primal")
    return tangent_leaves


def _linearize(
    fn: Callable[..., Tree], leaves: list[Any], spec: Any, has_aux: bool
) -> tuple[Any, ...]:
    if leaves and not any(isinstance(leaf, Tensor) for leaf in leaves):
        raise TypeError(
            "derivatives along a direction are of functions of tensors, got "
            f"{type(leaves[0]).__name__}; give paddle.to_tensor of it"
        )
    function = FlatFunction(fn, spec, has_aux)
    value, aux, recording = function.recorded(leaves, None, nested=True)
    return value, Pushforward(recording, spec, function.out_spec), *aux


class Pushforward(KeptGraph, Generic[Y_co]):
    """The linear map from tangents of the inputs to that of the output.

    It may be called any number of times. It keeps the recorded graph alive, so drop it
    when done.
    """

    def __init__(self, recording: Recording, in_spec: Any, out_spec: Any) -> None:
        if not isinstance(recording, Recording):
            refuse_hand_made(Pushforward, "linearize(fn, *primals)")
        self._recording = recording
        self._in_spec, self._out_spec = in_spec, out_spec
        recording.precompute(self._transpose)

    def _transpose(self, recording: Recording) -> None:
        """Record the pullback: it is linear, and its own pullback is the jvp."""
        outputs = [*filter(is_differentiable, recording.outputs)]
        traced = {id(o): o for o in outputs if not o.stop_gradient}
        self._outputs = recording.outputs
        self._output_indices = {key: i for i, key in enumerate(traced)}
        self._inputs = recording.inputs
        with grad_mode(True):
            self._seeds = [_seed(output) for output in traced.values()]
            self._grads: list[Any] = []
            if traced:
                ends = [*traced.values()]
                self._grads = gradients(ends, self._inputs, self._seeds, True)

    def __call__(self, *tangents: Tree) -> Y_co:
        """Return the derivative along tangents, nested as primals, None for zero."""
        need_tensors(sot.fallback(True))
        leaves = self._recording.leaves
        return self._apply_to_leaves(_tangent_leaves(tangents, leaves, self._in_spec))

    def _apply_to_leaves(self, tangents: Sequence[Any]) -> Y_co:
        """Return the derivative along checked tangents, one per leaf."""
        recording = self._recording
        if (replacement := recording.replacement()) is not None:
            return Pushforward(
                replacement, self._in_spec, self._out_spec
            )._apply_to_leaves(tangents)
        slope: Any = self._out_spec.unflatten(
            recording.run_on_record(self._output_tangents, tangents)
        )
        return slope

    def _output_tangents(self, tangents: Sequence[Any]) -> list[Any]:
        leaf_tangents = [tangents[i] for i in self._recording.differentiable]
        pairs = [
            (grad, tangent)
            for grad, tangent in zip(self._grads, leaf_tangents, strict=False)
            if grad is not None and tangent is not None and not grad.stop_gradient
        ]
        results: Sequence[Any] = [None] * len(self._seeds)
        if pairs:
            results = gradients(
                [grad for grad, _ in pairs],
                self._seeds,
                [tangent for _, tangent in pairs],
                paddle.is_grad_enabled(),
            )
        return [self._output_tangent(output, results) for output in self._outputs]

    def _output_tangent(self, output: Any, slopes: Sequence[Any]) -> Tensor | None:
        if not is_differentiable(output):
            return None
        index = self._output_indices.get(id(output))
        slope = None if index is None else slopes[index]
        return paddle.zeros_like(output) if slope is None else slope


def _seed(output: Tensor) -> Tensor:
    """Return zeros to differentiate by, which no derivative depends on."""
    seed = paddle.zeros_like(output)
    seed.stop_gradient = False
    record: Any = listener()
    if record is not None:
        record.dummies.append(seed)
    return seed
