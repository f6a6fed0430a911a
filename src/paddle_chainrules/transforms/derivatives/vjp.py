"""Reverse-mode derivatives of plain functions of tensors and trees of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

import optree
import paddle
from paddle import Tensor

from ...paddle_side.arguments import checked_flag, checked_function
from ...paddle_side.listener import listener, not_listening
from ...programs.capture_error import CaptureError
from ...programs.static_graphs import need_tensors, sot
from ..as_programs.fallback import check_same, recorded_by_program
from ..as_programs.program_recording import ProgramRecording
from ..containers.tree import ONE_LEAF, Tree, cotangent_leaves, flatten_tree
from ..tape.effects import Effects, check_unchanged, tensors_among, versions
from ..tape.kept_graph import KeptGraph
from ..tape.outputs import detached
from ..tape.recording import Recording, record
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
        function: FlatFunction,
    ) -> None:
        self._recording = recording
        self._function = function
        self._in_spec = in_spec
        self._out_spec = out_spec
        self._is_outside = listener() is None

    def __call__(self, cotangent: Tree, *, wrt: Sequence[int] | None = None) -> Y_co:
        """Gradients, one per primal and nested as it is.

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
        need_tensors(sot.fallback(True))
        if self._is_outside and listener() is not None:
            recording = self._function.once_more(self._recording)
            inside = Pullback[Y_co](
                recording, self._in_spec, self._out_spec, self._function
            )
            return inside(cotangent, wrt=wrt)
        leaves = cotangent_leaves(cotangent, self._out_spec)
        asked = None if wrt is None else self._leaves_of(wrt)
        try:
            grads = self._recording.gradients(leaves, asked)
        except NotImplementedError as refusal:
            self._recording = self._by_program(refusal)
            grads = self._recording.gradients(leaves, asked)
        found: Any = self._in_spec.unflatten(grads)
        if wrt is not None:
            found = tuple(part if i in wrt else None for i, part in enumerate(found))
        return found

    def _by_program(self, refusal: NotImplementedError) -> Recording:
        before = self._recording
        if (
            before.connected
            or isinstance(before, ProgramRecording)
            or not before.explains(refusal)
        ):
            raise refusal
        function = self._function
        function.check_unchanged()
        _, _, made = recorded_by_program(function, before.leaves, refusal, before)
        return function.without_aux(made)

    def _leaves_of(self, wrt: Sequence[int]) -> set[int]:
        """Positions of the leaves of some primals."""
        stops = [*accumulate(child.num_leaves for child in self._in_spec.children())]
        asked: set[int] = set()
        if not isinstance(wrt, Sequence) or not {*wrt} <= {*range(len(stops))}:
            raise ValueError(
                "wrt must be a list of positions of the primals, of which there are "
                f"{len(stops)}, the first being 0; got {wrt!r}"
            )
        for primal in wrt:
            asked.update(range(stops[primal - 1] if primal else 0, stops[primal]))
        return asked


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

    It may stand inside any other transform: results and gradients stay differentiable
    by whatever an enclosing one differentiates by, passed or closed over, and by
    tensors of the caller's that require gradients (``stop_gradient=False``), as far as
    Paddle's kernels go; beyond, it is differentiating once more that raises. From
    anything else they are cut off.

    Args:
        fn: function of tensors; it may return a tensor or a tree of them.
        *primals: tensors or trees of tensors. Integer and Boolean tensors and leaves
            that are no tensors are passed on and get the gradient None.
        has_aux: fn returns ``(output, aux)``; aux is passed on, not differentiated.

    Returns:
        ``(output, pullback)``, with aux as a third where asked. ``pullback(cotangent)``
        gives a tuple, one entry per primal, nested as the primal; None stands where
        nothing is differentiable or the primal is not used.

    Examples:
        >>> import paddle
        >>> from paddle_chainrules import vjp
        >>> x = paddle.to_tensor([1.0, 2.0])
        >>> y, pullback = vjp(lambda x: x * x, x)
        >>> pullback(paddle.to_tensor([1.0, 10.0]))[0].tolist()
        [2.0, 40.0]
    """
    need_tensors(sot.fallback(True))
    create_graph = paddle.is_grad_enabled() and may_reach(fn)
    return recorded_vjp(fn, primals, has_aux, create_graph=create_graph)


def recorded_vjp(
    fn: Callable[..., Tree],
    primals: tuple[Tree, ...],
    has_aux: bool = False,
    effects: Effects | None = None,
    create_graph: bool = False,
) -> tuple[Any, ...]:
    """As :func:`vjp`; ``effects`` and ``create_graph`` as for :func:`record`."""
    leaves, in_spec = flatten_tree(primals)
    function = FlatFunction(fn, in_spec, has_aux)
    try:
        value, aux, recording = function.recorded(leaves, effects, create_graph)
    except NotImplementedError as refusal:
        outputs, specs, way = recorded_by_program(function, leaves, refusal)
        recording = function.without_aux(way)
        value, aux = function.nested(outputs, specs)
    spec = function.out_spec
    return value, Pullback(recording, in_spec, spec, function), *aux


class FlatFunction:
    """A function of trees as one of leaves.

    Attributes:
        out_spec: how the result of the last call was nested.
    """

    def __init__(
        self, fn: Callable[..., Tree], in_spec: optree.PyTreeSpec, has_aux: bool
    ) -> None:
        self._fn, self._in_spec = checked_function("fn", fn), in_spec
        self._has_aux = checked_flag("has_aux", has_aux)
        self.out_spec, self._aux = ONE_LEAF, None
        self._leaves: list[Tensor] | None = None

    def outputs(self, leaves: list[Any]) -> list[Any]:
        """Leaves of the result alone."""
        output: Any = self._fn(*self._in_spec.unflatten(leaves))
        if self._has_aux:
            if not isinstance(output, (tuple, list)) or len(output) != 2:
                raise TypeError(
                    "with has_aux=True a function gives a pair, (output, aux), got "
                    f"{type(output).__name__}; return both, or leave out has_aux"
                )
            output, self._aux = output
        outputs, self.out_spec = flatten_tree(output)
        return outputs

    def recorded(
        self, leaves: list[Any], effects: Effects | None, create_graph: bool
    ) -> tuple[Tree, list[Any], Recording]:
        """Value, aux in a list or none, and the recording."""
        if self._leaves is None:  # and no capture
            self._leaves = tensors_among(leaves)
            self._versions = versions(self._leaves)
        values, recording = record(self.outputs, leaves, effects, create_graph)
        value = self.out_spec.unflatten(values)
        if not self._has_aux:
            return value, [], recording
        aux, spec = flatten_tree(self._aux)
        if not recording.connected:
            aux = detached(aux, leaves)
        return value, [spec.unflatten(aux)], recording

    def once_more(self, before: Recording) -> Recording:
        """The same recording for who listens now, and did not before.

        Raises:
            CaptureError: the function gives something else than before.
        """
        self.check_unchanged()
        _, _, recording = self.recorded([*before.leaves], None, create_graph=True)
        with not_listening():
            check_same(
                before.outputs,
                recording.outputs,
                CaptureError(
                    "a derivative that was begun outside of vmap or jit is of a "
                    "function that gives something else by now, such as random "
                    "numbers; begin it inside"
                ),
            )
        return recording

    def __call__(self, leaves: list[Any]) -> tuple[list[Any], Any]:
        """Leaves of the result and of aux, and how these are nested."""
        outputs = self.outputs(leaves)
        self._count = len(outputs)
        if not self._has_aux:
            return outputs, (self.out_spec,)
        aux, spec = flatten_tree(self._aux)
        return [*outputs, *aux], (self.out_spec, spec)

    def nested(self, outputs: Sequence[Any], specs: Any) -> tuple[Tree, list[Any]]:
        """The value, and aux in a list or none, of such leaves."""
        value = specs[0].unflatten(outputs[: self._count])
        aux = [spec.unflatten(outputs[self._count :]) for spec in specs[1:]]
        return value, aux

    def check_unchanged(self) -> None:
        """Refuse leaves that were written into since.

        Raises:
            RuntimeError: one was.
        """
        check_unchanged(self._leaves or [], self._versions, "a primal")

    def alone(self, outputs: Sequence[Any]) -> Sequence[Any]:
        """Leaves of the result without those of aux."""
        return outputs[: self._count]

    def without_aux(self, recording: ProgramRecording) -> ProgramRecording:
        """A recording of results alone."""
        recording.keep(len(recording.leaves), self._count)
        return recording
