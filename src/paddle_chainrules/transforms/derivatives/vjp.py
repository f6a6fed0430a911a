"""Reverse-mode derivatives of plain functions of tensors and trees of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

import optree
import paddle

from ...paddle_side.arguments import checked_flag, checked_function, refuse_hand_made
from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.static_graphs import need_tensors, sot
from ..containers.tree import ONE_LEAF, Tree, cotangent_leaves, flatten_tree
from ..recordings.dispatch import record
from ..recordings.effects import Effects
from ..recordings.kept_graph import KeptGraph
from ..recordings.recording import Recording
from .closures import may_reach
from .typed import Aux, Function, WithAux, Y, Y_co

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .typed import Primals


class Pullback(KeptGraph, Generic[Y_co]):
    """The linear map from an output's cotangent to the gradients of the inputs.

    It may be called any number of times. It keeps the recorded graph alive, so drop
    it when done.
    """

    def __init__(
        self,
        recording: Recording,
        in_spec: optree.PyTreeSpec,
        out_spec: optree.PyTreeSpec,
    ) -> None:
        if not isinstance(recording, Recording):
            refuse_hand_made(Pullback, "vjp(fn, *primals)")
        self._recording = recording
        self._in_spec = in_spec
        self._out_spec = out_spec

    def __call__(self, cotangent: Tree, *, wrt: Sequence[int] | None = None) -> Y_co:
        """Return gradients, one per primal and nested as it is.

        Args:
            cotangent: nested as the output; each tensor with the output's shape and
                dtype, or None for zero.
            wrt: positions of the primals to differentiate, counted from 0; all when
                None. The others cost nothing and come back as None.

        Raises:
            ValueError: a structure or a shape that differs from the output's, or a
                position where there is no primal.
            TypeError: a cotangent that is not a tensor or has another dtype.
        """
        requested = None if wrt is None else self._leaves_of(wrt)
        grads = self._gradients(cotangent, requested)
        for i, leaf in enumerate(self._recording.leaves):
            is_missing = grads[i] is None and (requested is None or i in requested)
            if is_missing and is_differentiable(leaf):
                grads[i] = paddle.zeros_like(leaf)
        results: Any = self._in_spec.unflatten(grads)
        if wrt is not None:
            results = tuple(
                grad if i in wrt else None for i, grad in enumerate(results)
            )
        return results

    def or_none(self, cotangent: Tree) -> Any:
        """Return gradients as a call does, with None if the output is independent."""
        return self._in_spec.unflatten(self._gradients(cotangent, None))

    def _gradients(self, cotangent: Tree, requested: set[int] | None) -> list[Any]:
        need_tensors(sot.fallback(True))
        leaves = cotangent_leaves(cotangent, self._out_spec)
        return self._recording.gradients(leaves, requested)

    def _leaves_of(self, wrt: Sequence[int]) -> set[int]:
        """Return positions of the leaves of some primals."""
        stops = [*accumulate(child.num_leaves for child in self._in_spec.children())]
        requested: set[int] = set()
        if not isinstance(wrt, Sequence) or not {*wrt} <= {*range(len(stops))}:
            raise ValueError(
                "wrt must be a list of positions of the primals, of which there are "
                f"{len(stops)}, the first being 0; got {wrt!r}"
            )
        for primal in wrt:
            requested.update(range(stops[primal - 1] if primal else 0, stops[primal]))
        return requested


@overload
def vjp(
    fn: Function[Y], *primals: Unpack[Primals], has_aux: Literal[False] = False
) -> tuple[Y, Pullback[tuple[Unpack[Primals]]]]: ...


@overload
def vjp(
    fn: WithAux[Y, Aux], *primals: Unpack[Primals], has_aux: Literal[True]
) -> tuple[Y, Pullback[tuple[Unpack[Primals]]], Aux]: ...


@overload
def vjp(fn: Function[Any], *primals: Any, has_aux: bool) -> tuple[Any, ...]: ...


def vjp(  # type: ignore[misc]  # mypy takes no star for many
    fn: Function[Any], *primals: Any, has_aux: bool = False
) -> tuple[Any, ...]:
    """Evaluate ``fn(*primals)`` and give its pullback.

    Like ``jax.vjp``: one forward, then any number of cheap vector-Jacobian products.
    Unlike ``paddle.grad`` it takes trees, leaves the caller's tensors as they are (no
    ``.grad``, no change of ``stop_gradient``), and counts one tensor handed in twice
    as two inputs.

    It may stand inside any other transform. Results and gradients stay differentiable
    with respect to all that an enclosing transform differentiates by, passed or closed
    over, and to tensors of the caller's that require gradients
    (``stop_gradient=False``). Where Paddle's kernels end, differentiating once more
    raises. From anything else the results are cut off.

    Args:
        fn: function of tensors; it may return a tensor or a tree of them.
        *primals: tensors or trees of tensors. Integer and Boolean tensors and leaves
            that are no tensors are passed on and get the gradient None.
        has_aux: fn returns ``(output, aux)``; aux is passed on, not differentiated.

    Returns:
        ``(output, pullback)``, with aux as a third where asked. ``pullback(cotangent)``
        gives a tuple, one entry per primal, nested as the primal: zeros if the output
        does not depend on it, None if it has no derivative.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import vjp
        >>> x = paddle.to_tensor([1.0, 2.0])
        >>> y, pullback = vjp(lambda x: x * x, x)
        >>> pullback(paddle.to_tensor([1.0, 10.0]))[0].tolist()
        [2.0, 40.0]
    """
    need_tensors(sot.fallback(True))
    nested = paddle.is_grad_enabled() and may_reach(fn)
    return recorded_vjp(fn, primals, has_aux, nested=nested)


def recorded_vjp(
    fn: Callable[..., Tree],
    primals: tuple[Tree, ...],
    has_aux: bool = False,
    effects: Effects | None = None,
    nested: bool = False,
) -> tuple[Any, ...]:
    """Do as :func:`vjp`; ``effects`` and ``nested`` as ``record`` takes them."""
    leaves, in_spec = flatten_tree(primals)
    function = FlatFunction(fn, in_spec, has_aux)
    value, aux, recording = function.recorded(leaves, effects, nested)
    return value, Pullback(recording, in_spec, function.out_spec), *aux


class FlatFunction:
    """A function of trees as one of leaves.

    Attributes:
        out_spec: the nesting of the last call's result.
    """

    def __init__(
        self, fn: Callable[..., Tree], in_spec: optree.PyTreeSpec, has_aux: bool
    ) -> None:
        self._fn, self._in_spec = checked_function("fn", fn), in_spec
        self._has_aux = checked_flag("has_aux", has_aux)
        self.out_spec = self._aux_spec = ONE_LEAF
        self._count = 0

    def __call__(self, leaves: list[Any]) -> list[Any]:
        """Call the function; return the leaves of the result, then those of aux."""
        output: Any = self._fn(*self._in_spec.unflatten(leaves))
        if self._has_aux:
            if not isinstance(output, (tuple, list)) or len(output) != 2:
                raise TypeError(
                    "with has_aux=True a function gives a pair, (output, aux), got "
                    f"{type(output).__name__}; return both, or leave out has_aux"
                )
            output, aux = output
        outputs, self.out_spec = flatten_tree(output)
        self._count = len(outputs)
        if not self._has_aux:
            return outputs
        aux_leaves, self._aux_spec = flatten_tree(aux)
        return [*outputs, *aux_leaves]

    def recorded(
        self, leaves: list[Any], effects: Effects | None, nested: bool
    ) -> tuple[Tree, list[Any], Recording]:
        """Record a call; return value, aux in a list or none, and the recording."""
        values, recording = record(self, leaves, effects, nested)
        recording.truncate(len(leaves), self._count)
        value, aux = self.nested(values)
        return value, aux, recording

    def nested(self, leaves: Sequence[Any]) -> tuple[Tree, list[Any]]:
        """Return the value of leaves of a call, and aux in a list or none."""
        value = self.out_spec.unflatten(leaves[: self._count])
        aux_leaves = leaves[self._count :]
        return value, [self._aux_spec.unflatten(aux_leaves)] if self._has_aux else []
