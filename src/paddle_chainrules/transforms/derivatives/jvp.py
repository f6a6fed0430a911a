"""Forward mode, Jacobians, second derivatives of any function, by nested paddle.grad.

Where Paddle's kernels end, by a program (:mod:`..as_programs.fallback`); derivatives
by coordinates are in :mod:`...nets.derivatives.derivatives`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, Literal, cast, overload

import paddle
from paddle import Tensor

from ...paddle_side.autograd.engine import gradients
from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.listener import listener
from ...paddle_side.process.random_state import undrawn
from ...paddle_side.watch import as_leaf
from ...programs.static_graphs import need_tensors, sot
from ..as_programs.fallback import called_by_program, check_same
from ..as_programs.kept import by_program
from ..containers.tree import Tree, flatten_tree, nesting
from ..tape.cotangents import check_cotangent
from ..tape.kept_graph import KeptGraph
from ..tape.outputs import detached
from ..tape.recording import Recording, records_graph
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
    """Value and Jacobian-vector product: ``(fn(*primals), its derivative along)``.

    Like ``jax.jvp``, but by reverse mode twice, since Paddle has no forward mode; in a
    program what is not needed of that is left out. Where Paddle's kernels end it is
    taken by a program.

    Args:
        fn: function of tensors; it may return a tensor or a tree of them.
        primals: the arguments, tensors or trees of them.
        tangents: nested as primals, with their shapes and dtypes; None for zero.
        has_aux: fn returns ``(output, aux)``; aux is passed on, not differentiated.

    Returns:
        The value, and the derivative nested as it is: zero where the value does not
        depend on the primals, None where it is no floating tensor. With ``has_aux``
        aux is the third.

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
    found = by_program(f"jvp{has_aux}", fn, run, primals, tangents)
    return cast(tuple[Any, ...], found)


def _jvp(
    fn: Callable[..., Tree], has_aux: bool, primals: Any, tangents: Any
) -> tuple[Any, ...]:
    need_tensors(sot.fallback(True))
    for what, row in (("primals", primals), ("tangents", tangents)):
        if not isinstance(row, tuple | list):
            raise TypeError(
                f"{what} must be a tuple with an item for each argument of fn, got "
                f"{type(row).__name__}; give (x,) for the one argument x"
            )
    leaves, spec = flatten_tree(tuple(primals))
    given = _tangent_leaves(tuple(tangents), leaves, spec)
    with undrawn():
        value, pushforward, *aux = _linearized(fn, leaves, spec, has_aux)
        slope = pushforward.along(given)
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
    """``(fn(*primals), pushforward)``: one forward, then any number of directions.

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
    return _linearized(fn, *flatten_tree(primals), has_aux)


def _tangent_leaves(
    tangents: tuple[Tree, ...], leaves: Sequence[Any], spec: Any
) -> list[Any]:
    given, found = flatten_tree(tangents)
    if found != spec:
        raise ValueError(
            f"tangents are nested as {nesting(found)}, primals as {nesting(spec)}; "
            "give one tensor, or None for zero, per primal"
        )
    for leaf, tangent in zip(leaves, given, strict=True):
        if tangent is not None and isinstance(leaf, Tensor):
            check_cotangent(tangent, leaf.shape, leaf.dtype, "tangent", "primal")
    return given


def _linearized(
    fn: Callable[..., Tree], leaves: list[Any], spec: Any, has_aux: bool
) -> tuple[Any, ...]:
    function = FlatFunction(fn, spec, has_aux)
    try:
        with undrawn() as drawing:
            value, aux, recording = function.recorded(leaves, None, create_graph=True)
            pushforward = Pushforward[Any](recording, spec, function)
        return value, pushforward, *aux
    except NotImplementedError as refusal:
        seen, specs = called_by_program(function, leaves, refusal)
        value, aux = function.nested(seen, specs)
        state = drawing.state
        return value, _Refused(leaves, seen, spec, function, refusal, state), *aux


class Pushforward(KeptGraph, Generic[Y_co]):
    """The linear map from tangents of the inputs to that of the output.

    It may be called any number of times. It keeps the recorded graph alive, so drop it
    when done.
    """

    def __init__(
        self, recording: Recording, in_spec: Any, function: FlatFunction
    ) -> None:
        self._recording = recording
        self._leaves, self._seen = recording.leaves, recording.outputs
        self._in_spec, self._out_spec = in_spec, function.out_spec
        self._function, self._drawn_from = function, recording.drawn_from
        self._is_outside = listener() is None
        outputs = filter(is_differentiable, recording.outputs)
        traced = {id(o): o for o in outputs if not o.stop_gradient}
        self._places = {key: i for i, key in enumerate(traced)}
        # The pullback is linear: its own pullback is what is asked for.
        self._seeds, self._grads = [], []
        if traced:
            with grad_mode(True):
                self._seeds = [as_leaf(paddle.zeros_like(o)) for o in traced.values()]
                self._grads = recording.differentiable_gradients(
                    [*traced.values()], self._seeds
                )

    def __call__(self, *tangents: Tree) -> Y_co:
        """The derivative along tangents, nested as the primals, None for zero."""
        need_tensors(sot.fallback(True))
        return self.along(_tangent_leaves(tangents, self._leaves, self._in_spec))

    def along(self, tangents: Sequence[Any]) -> Y_co:
        """The same of checked tangents in a row."""
        if self._is_outside and listener() is not None:
            recording = self._function.once_more(self._recording)
            return Pushforward[Y_co](recording, self._in_spec, self._function).along(
                tangents
            )
        try:
            row = self._on_tape(tangents)
        except NotImplementedError as refusal:
            row = self._by_program(tangents, refusal)
        slope: Any = self._out_spec.unflatten(row)
        return slope

    def _by_program(
        self, tangents: Sequence[Any], refusal: NotImplementedError
    ) -> list[Any]:
        leaves, function = self._leaves, self._function
        if not self._explains(refusal):
            raise refusal
        function.check_unchanged()
        count = len(self._seen)

        def both(every: list[Any]) -> tuple[list[Any], Any]:
            given, directions = every[: len(leaves)], every[len(leaves) :]
            _, _, recording = function.recorded(given, None, create_graph=True)
            pushforward: Any = Pushforward(recording, self._in_spec, function)
            row = pushforward._on_tape(directions)
            return [*recording.outputs, *row], None

        every = [*leaves, *tangents]
        found, _ = called_by_program(both, every, refusal, self._drawn_from)
        check_same(self._seen, found[:count], refusal)
        return found[count:]

    def _explains(self, refusal: NotImplementedError) -> bool:
        return self._recording.explains(refusal)

    def _on_tape(self, tangents: Sequence[Any]) -> list[Any]:
        recording = self._recording
        connected = recording.connected or records_graph(tangents)
        tangent_of = iter(tangents[i] for i in recording.differentiable)
        pairs = [
            (grad, tangent)
            for grad, tangent in zip(self._grads, tangent_of, strict=False)
            if grad is not None and tangent is not None and not grad.stop_gradient
        ]
        found: Sequence[Any] = [None] * len(self._seeds)
        if pairs:
            # Some second derivatives of Paddle's fail where not all are asked for.
            found = gradients(
                [grad for grad, _ in pairs],
                [*self._seeds, *recording.inputs],
                [tangent for _, tangent in pairs],
                connected,
            )
        row = [self._slope(output, found) for output in recording.outputs]
        return row if connected else detached(row, tangents)

    def _slope(self, output: Any, found: Sequence[Any]) -> Tensor | None:
        if not is_differentiable(output):
            return None
        place = self._places.get(id(output))
        slope = None if place is None else found[place]
        return paddle.zeros_like(output) if slope is None else slope


class _Refused(Pushforward[Any]):
    """The same of a function that no tape records."""

    def __init__(
        self,
        leaves: Sequence[Any],
        seen: Sequence[Any],
        in_spec: Any,
        function: FlatFunction,
        refusal: NotImplementedError,
        drawn_from: Any,
    ) -> None:
        self._drawn_from = drawn_from
        self._in_spec, self._out_spec = in_spec, function.out_spec
        self._function, self._refusal = function, refusal
        self._leaves, self._seen = leaves, function.alone(seen)
        self._is_outside = False

    def _explains(self, refusal: NotImplementedError) -> bool:
        return True

    def _on_tape(self, tangents: Sequence[Any]) -> list[Any]:
        raise self._refusal
