"""Programs on a graph that Paddle records, to be differentiated from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple, Protocol, cast

import paddle
from paddle import Tensor

from ...paddle_side.autograd.engine import gradients
from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.autograd.running import is_running, requested_tensor_test
from ...paddle_side.listener import listener
from ...paddle_side.patching.write_counts import writes_so_far
from ...paddle_side.watch import request_gradients
from ...programs.capture import OpenTrace, capture
from ...programs.capture_error import CaptureError
from ...programs.captured import CapturedFunction
from ...programs.compiling.program import Program
from ...programs.compiling.split import ForwardBackward
from ...programs.tracing.existing import is_single_use, single_use_captures
from ...programs.tracing.operations import Value
from ..tape.eager import eagerly
from ..tape.effects import Effects, check_unchanged, check_unwritten, versions
from ..tape.nodes import on_graph
from ..tape.recording import recorded
from .program_cache import CompiledFunction, ProgramCache, cut, seed_like
from .program_recording import NO_MORE, run


class KnownGradients(Protocol):
    """A way to gradients of one call that are to be differentiated once more."""

    def gradients(
        self, cotangents: Mapping[int, Tensor], leaves: Sequence[int]
    ) -> list[Tensor] | None:
        """Return gradients of these leaves, on the graph; None if they are not known.

        Args:
            cotangents: of results, by their places.
        """


def call(
    programs: ProgramCache,
    leaves: Sequence[Any],
    key: Any = None,
    begun: list[OpenTrace] | None = None,
    known: KnownGradients | None = None,
) -> tuple[list[Any], Any]:
    """Run ``fn(leaves)``; return results, on the graph where fn's are, and structure.

    Args:
        begun: what :func:`seen_value` has left just before.
        known: is asked for gradients with a graph, before a program is made of them.

    Raises:
        CaptureError: there is no program.
    """
    begun = [] if begun is None else begun
    result, flags = seen_value(programs, leaves, key, begun)
    captured = result.captured
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if flags is None or True not in captured.requires:
        begun.clear()
        made = run(captured.program, tensors, trusts=True)  # its key has all kinds
        return captured.filled(made), result.structure
    node: DifferentiableProgram = programs.found(
        "node",
        leaves,
        lambda leaves: node_of(programs, leaves, captured, begun),
        (key, flags),
    )
    begun.clear()
    inputs = [leaves[i] for i in node.wanted] + node.free
    if not inputs:  # what requires gradients was made within, and is gone
        made = run(captured.program, tensors, trusts=True)
        return captured.filled(made), result.structure
    forward_backward = node.forward_backward
    made = run(forward_backward.forward, tensors)
    outputs: list[Any] = made[: forward_backward.count]
    work = _ProgramCall(
        node, leaves, inputs, made[forward_backward.count :], tensors, known
    )
    graph = on_graph([outputs[i] for i in node.places], work)
    for i, output in zip(node.places, graph, strict=True):
        outputs[i] = output
    return captured.filled(outputs), result.structure


def found_value(
    programs: ProgramCache, leaves: Sequence[Any]
) -> tuple[CompiledFunction, tuple[bool, ...] | None]:
    """Return the program of the value, and which leaves are off the caller's graph.

    Raises:
        CaptureError: there is no program.
    """
    flags = _flags(leaves) if paddle.is_grad_enabled() else None
    return _value(programs, leaves, None, flags), flags


def seen_value(
    programs: ProgramCache,
    leaves: Sequence[Any],
    key: Any,
    begun: list[OpenTrace] | None = None,
) -> tuple[CompiledFunction, tuple[bool, ...] | None]:
    """Return the program; if results are on the graph, not yet compared with fn."""
    flags = _flags(leaves) if paddle.is_grad_enabled() else None
    if flags is not None and False in flags:
        result: CompiledFunction = programs.found(
            "seen", leaves, lambda leaves: programs.seen_of(leaves, begun), (key, flags)
        )
        if True in result.captured.requires:
            return result, flags
    return _value(programs, leaves, key, flags, begun), flags


def _value(
    programs: ProgramCache,
    leaves: Sequence[Any],
    key: Any,
    flags: Any,
    begun: list[OpenTrace] | None = None,
) -> CompiledFunction:
    result: CompiledFunction = programs.found(
        "value", leaves, lambda leaves: programs.value_of(leaves, begun), (key, flags)
    )
    return result


def _flags(leaves: Sequence[Any]) -> tuple[bool, ...]:
    return tuple(leaf.stop_gradient for leaf in leaves if isinstance(leaf, Tensor))


class DifferentiableProgram(NamedTuple):
    """All that is needed to differentiate a program from outside."""

    forward_backward: ForwardBackward
    places: list[int]
    """Places of the outputs that are on the graph."""
    wanted: list[int]
    """Places of the leaves that require gradients."""
    free: list[Tensor]
    """Tensors that require gradients and are no leaves."""
    captured: CapturedFunction
    reverse: ProgramCache
    """Programs from leaves and cotangents to gradients."""
    once: bool
    """True if it serves one call alone."""
    values: list[Value | None]
    """Values of the tensors that may have gradients."""
    is_reverse: bool
    """True if it gives gradients itself."""

    def has_zeros(self, given: tuple[bool, ...]) -> list[bool]:
        """Tell for which tensors Paddle gives zeros if there is no gradient.

        These are the tensors that a given result is computed from; operators' gradients
        give all that they may.
        """
        if self.is_reverse:
            return [True] * len(self.values)
        flags = dict(zip(self.places, given, strict=True))
        count = self.forward_backward.count
        behind = self.forward_backward.ancestors(
            tuple(flags.get(i, False) for i in range(count))
        )
        return [value in behind for value in self.values]

    def feeds_another(self, place: int) -> bool:
        """Return whether a result on the graph is computed of another one there."""
        given = [False] * self.forward_backward.count
        for i, output in enumerate(self.places):
            given[output] = i != place
        value = self.forward_backward.forward.outputs[self.places[place]]
        return value in self.forward_backward.ancestors(tuple(given))

    @property
    def draws(self) -> bool:
        return self.forward_backward.forward.draws

    def is_stale(self) -> bool:
        """Tell whether it was captured with tensors that have been replaced since."""
        return self.captured.is_stale()

    def for_any_size(
        self, size: int, other: DifferentiableProgram, its_size: int, most: int
    ) -> None:
        """Return None, since cotangents are made of the sizes that were captured."""


class _Reverse(ProgramCache):
    """Programs of gradients."""


def node_of(
    programs: ProgramCache,
    leaves: Sequence[Any],
    captured: CapturedFunction,
    begun: list[OpenTrace] | None = None,
) -> DifferentiableProgram:
    """Capture a function with gradients by all tensors that require them.

    Args:
        begun: the record of ``captured``, if it is there.
    """
    places = [i for i, flag in enumerate(captured.requires) if flag]
    wanted = [
        i
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, Tensor) and not leaf.stop_gradient
    ]
    free, count = captured.free, len(leaves)
    if begun:
        free = begun[0].tensors_from_outside(free)

    def asking(leaves: list[Any]) -> Sequence[Any]:
        request_gradients(free)
        return programs.plain(leaves)

    def both(every: list[Any], create_graph: bool) -> tuple[list[Any], list[Any]]:
        given = every[:count], every[count:]
        with grad_mode(True):
            if listener() is None:
                return _on_tape(asking, *given, places, wanted, free)
            values = [*programs.plain(given[0])]
            return values, of_values(every, values, create_graph)

    def of_values(
        every: list[Any], values: list[Any], create_graph: bool
    ) -> list[Tensor | None]:
        tensors = [v for v in values if isinstance(v, Tensor)]
        ends = [tensors[i] for i in places]
        starts = [every[i] for i in wanted] + free
        return gradients(ends, starts, every[count:], create_graph)

    def further(every: list[Any], values: list[Any]) -> list[Any]:
        with grad_mode(True):
            return [*values, *of_values(every, values, False)]

    def joint(every: list[Any]) -> list[Any]:
        values, grads = both(every, False)
        return [*values, *grads]

    def gradients_of(every: list[Any]) -> tuple[list[Any], Any]:
        return eagerly(lambda every: both(every, True)[1], every), None

    cotangents = [seed_like(captured.program.outputs[i]) for i in places]
    whole = capture(
        joint,
        [*leaves, *cotangents],
        check=not is_running(),
        begun=begun,
        further=further,
        once=programs.once,
    )
    forward_backward, _ = cut(whole, leaves, len(captured.outputs))
    if any(forward_backward.gradient_exists):
        # What is not used is no input, so that it has no gradient.
        number = len(wanted)
        wanted = [*compress(wanted, forward_backward.gradient_exists)]
        free = [*compress(free, forward_backward.gradient_exists[number:])]
        forward_backward = forward_backward.with_existing_gradients()
    reverse = _Reverse(gradients_of)
    values = _values(
        forward_backward.forward, leaves, [*(leaves[i] for i in wanted), *free]
    )
    is_reverse = isinstance(programs, _Reverse)
    return DifferentiableProgram(
        *(forward_backward, places, wanted, free, whole, reverse, is_single_use()),
        values,
        is_reverse,
    )


def _values(
    program: Program, leaves: Sequence[Any], tensors: Sequence[Tensor]
) -> list[Value | None]:
    """Return the values that represent tensors in a program."""
    given = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    results = {id(t): value for value, t in program.constants.items()}
    results |= {id(t): v for v, t in zip(program.inputs, given, strict=False)}
    return [results.get(id(t)) for t in tensors]


def _on_tape(
    fn: Any,
    leaves: list[Any],
    cotangents: list[Tensor],
    places: list[int],
    wanted: list[int],
    free: list[Tensor],
) -> tuple[list[Any], list[Any]]:
    """Return the same by the graph that Paddle records, to compare with."""
    off = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    values, recording = recorded(fn, off, Effects(reaches=False))
    tensors = [i for i, value in enumerate(values) if isinstance(value, Tensor)]
    seeds: dict[int, Tensor] = {}
    each = {}
    for i, cotangent in zip(places, cotangents, strict=True):
        end = recording.outputs[tensors[i]]
        before = seeds.get(id(end))
        seeds[id(end)] = cotangent if before is None else before + cotangent
        each[id(end)] = end
    ends, cotangents = [*each.values()], [*seeds.values()]
    results = gradients(ends, recording.inputs, cotangents, False)
    by_leaf = dict(zip(recording.differentiable, results, strict=False))
    by_id = {id(t): g for t, g in zip(recording.inputs, results, strict=True)}
    grads = [by_leaf[i] for i in wanted] + [by_id.get(id(t)) for t in free]
    return values, grads


class _ProgramCall:
    """A call of a program, as :class:`..tape.nodes.Differentiable`."""

    def __init__(
        self,
        node: DifferentiableProgram,
        leaves: Sequence[Any],
        inputs: list[Tensor],
        kept: Sequence[Tensor],
        tensors: Sequence[Tensor],
        known: KnownGradients | None,
    ) -> None:
        self.inputs: Sequence[Tensor] = inputs
        self._known = known
        self._node, self._leaves, self._kept = node, leaves, kept
        self._watched = [*kept, *tensors]
        self._versions = versions(self._watched)
        self._tensors, self._since = tensors, writes_so_far()

    def feeds_another(self, place: int) -> bool:
        return self._node.feeds_another(place)

    def back(
        self, given: Sequence[Tensor | None]
    ) -> tuple[list[Tensor | None], list[bool]]:
        """Return gradients, and where Paddle has zeros if there are none."""
        node = self._node
        check_unwritten(self._tensors, self._since)
        check_unchanged(
            self._watched, self._versions, "a result, a parameter or the argument"
        )
        if paddle.is_grad_enabled() and self._known is not None:
            result = self._of_known(self._known, given)
            if result is not None:
                return result
        ends = [node.captured.program.outputs[i] for i in node.places]
        cotangents = [
            paddle.zeros(end.shape, cast(Any, end.dtype)) if g is None else g
            for g, end in zip(given, ends, strict=True)
        ]
        grads: list[Tensor | None]
        if paddle.is_grad_enabled():
            grads = self._on_graph(cotangents)
        else:
            is_given = tuple(g is not None for g in given)
            back, has = node.forward_backward.backward_program(
                (True,) * len(self.inputs), is_given
            )
            each = iter(run(back, [*self._kept, *cotangents]))
            grads = [
                next(each) if forward_backward else None for forward_backward in has
            ]
        if None not in grads:
            return grads, [True] * len(grads)
        return grads, node.has_zeros(tuple(g is not None for g in given))

    def _of_known(
        self, known: KnownGradients, given: Sequence[Tensor | None]
    ) -> tuple[list[Tensor | None], list[bool]] | None:
        """Return known gradients of leaves, if none of other tensors are asked for."""
        node, is_asked = self._node, requested_tensor_test()
        requested = [is_asked(x) for x in self.inputs]
        if any(requested[len(node.wanted) :]):
            return None
        cotangents = {
            place: g
            for place, g in zip(node.places, given, strict=True)
            if g is not None
        }
        result = known.gradients(cotangents, [*compress(node.wanted, requested)])
        if result is None:
            return None
        each = iter(result)
        return [next(each) if flag else None for flag in requested], requested

    def _on_graph(self, cotangents: Sequence[Tensor]) -> list[Tensor | None]:
        node = self._node
        try:
            if any(x.stop_gradient for x in self.inputs):
                raise CaptureError(
                    "a tensor was frozen after the call; freeze it before"
                )
            if node.draws:
                raise CaptureError(f"{NO_MORE}; use the function without jit there")
            with single_use_captures(node.once):
                every = [*self._leaves, *cotangents]
                return call(node.reverse, every, None)[0]
        except CaptureError as error:
            raise NotImplementedError(
                f"the gradients of a program can't be differentiated once more "
                f"({error}); call the function without jit"
            ) from error
