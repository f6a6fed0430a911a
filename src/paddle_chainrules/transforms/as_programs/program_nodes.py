"""Programs on a graph that Paddle records, to be differentiated from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple, Protocol, cast

import paddle
from paddle import Tensor

from ...errors import CaptureError
from ...paddle_side.autograd.engine import gradients
from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.autograd.running import is_running, requested_tensor_test
from ...paddle_side.listener import is_single_use, listener, single_use_captures
from ...paddle_side.patching.write_counts import writes_so_far
from ...paddle_side.watch import request_gradients
from ...programs import CapturedFunction, ForwardBackward, OpenTrace, capture
from ..recordings.eager import run_by_rules
from ..recordings.effects import (
    Effects,
    check_unchanged,
    check_unwritten,
    tensors_among,
    versions,
)
from ..recordings.nodes import attach_to_graph
from ..recordings.recording import recorded
from .program_cache import CompiledFunction, ProgramCache
from .program_recording import NO_MORE, run


class KnownGradients(Protocol):
    """Gives differentiable gradients of one call without capturing a program."""

    def gradients(
        self, cotangents: Mapping[int, Tensor], leaves: Sequence[int]
    ) -> list[Tensor] | None:
        """Return gradients of these leaves, on the graph; None if they are not known.

        Args:
            cotangents: cotangents by the index of the result.
        """


def call(
    programs: ProgramCache,
    leaves: Sequence[Any],
    key: Any = None,
    open_traces: list[OpenTrace] | None = None,
    known_gradients: KnownGradients | None = None,
) -> tuple[list[Any], CompiledFunction]:
    """Run ``fn(leaves)``; return results, on the graph where fn's are, and the program.

    Args:
        open_traces: the trace that :func:`lookup_unchecked_program` has just left.
        known_gradients: gives gradients on the graph without a program, if it can.

    Raises:
        CaptureError: there is no program.
    """
    open_traces = [] if open_traces is None else open_traces
    result, flags = lookup_unchecked_program(programs, leaves, key, open_traces)
    captured = result.captured
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    if flags is None or True not in captured.requires:
        open_traces.clear()
        results = run(captured.program, tensors, trusted=True)  # its key has all kinds
        return captured.filled(results), result
    node: DifferentiableProgram = programs.get_or_compile(
        "node",
        leaves,
        lambda leaves: compile_node(programs, leaves, captured, open_traces),
        (key, flags),
    )
    open_traces.clear()
    inputs = [leaves[i] for i in node.grad_leaves] + node.free_tensors
    if not inputs:  # what requires gradients was made within, and is gone
        results = run(captured.program, tensors, trusted=True)
        return captured.filled(results), result
    forward_backward = node.forward_backward
    results = run(forward_backward.forward, tensors)
    outputs: list[Any] = results[: forward_backward.count]
    program_call = _ProgramCall(
        node,
        leaves,
        inputs,
        results[forward_backward.count :],
        tensors,
        known_gradients,
    )
    graph_outputs = attach_to_graph(
        [outputs[i] for i in node.graph_outputs], program_call
    )
    for i, output in zip(node.graph_outputs, graph_outputs, strict=True):
        outputs[i] = output
    return captured.filled(outputs), result


def lookup_program(
    programs: ProgramCache, leaves: Sequence[Any]
) -> tuple[CompiledFunction, tuple[bool, ...] | None]:
    """Return the program of the value, and which leaves are off the caller's graph.

    Raises:
        CaptureError: there is no program.
    """
    flags = _stop_gradient_flags(leaves) if paddle.is_grad_enabled() else None
    return _lookup_checked_program(programs, leaves, None, flags), flags


def lookup_unchecked_program(
    programs: ProgramCache,
    leaves: Sequence[Any],
    key: Any,
    open_traces: list[OpenTrace] | None = None,
) -> tuple[CompiledFunction, tuple[bool, ...] | None]:
    """Return the program, not yet compared with fn if results are on the graph."""
    flags = _stop_gradient_flags(leaves) if paddle.is_grad_enabled() else None
    if flags is not None and False in flags:
        result: CompiledFunction = programs.get_or_compile(
            "seen",
            leaves,
            lambda leaves: programs.compile_unchecked(leaves, open_traces),
            (key, flags),
        )
        if True in result.captured.requires:
            return result, flags
    return _lookup_checked_program(programs, leaves, key, flags, open_traces), flags


def _lookup_checked_program(
    programs: ProgramCache,
    leaves: Sequence[Any],
    key: Any,
    flags: Any,
    open_traces: list[OpenTrace] | None = None,
) -> CompiledFunction:
    result: CompiledFunction = programs.get_or_compile(
        "value",
        leaves,
        lambda leaves: programs.compile_value(leaves, open_traces),
        (key, flags),
    )
    return result


def _stop_gradient_flags(leaves: Sequence[Any]) -> tuple[bool, ...]:
    return tuple(leaf.stop_gradient for leaf in leaves if isinstance(leaf, Tensor))


class DifferentiableProgram(NamedTuple):
    """All that is needed to differentiate a program from outside."""

    forward_backward: ForwardBackward
    graph_outputs: list[int]
    """Indices of the outputs that are on the graph."""
    grad_leaves: list[int]
    """Indices of the leaves that require gradients."""
    free_tensors: list[Tensor]
    """Tensors that require gradients and are no leaves."""
    captured: CapturedFunction
    gradient_cache: ProgramCache
    """Programs from leaves and cotangents to gradients."""
    once: bool
    """True if it serves one call alone."""
    sources: list[int | Tensor]
    """Of each tensor that may have gradients its position among inputs, or itself."""
    is_reverse: bool
    """True if it gives gradients itself."""

    def has_zeros(self, has_cotangent: tuple[bool, ...]) -> list[bool]:
        """Tell for which tensors Paddle gives zeros if there is no gradient.

        These are the tensors that a result with a cotangent is computed from. A program
        of gradients gives zeros for all.
        """
        if self.is_reverse:
            return [True] * len(self.sources)
        flags = dict(zip(self.graph_outputs, has_cotangent, strict=True))
        count = self.forward_backward.count
        return self.forward_backward.depends_on(
            self.sources, tuple(flags.get(i, False) for i in range(count))
        )

    def feeds_another(self, index: int) -> bool:
        """Return whether a result on the graph is computed of another one there."""
        is_other = [False] * self.forward_backward.count
        for position, output in enumerate(self.graph_outputs):
            is_other[output] = position != index
        value = self.forward_backward.forward.outputs[self.graph_outputs[index]]
        return value in self.forward_backward.ancestors(tuple(is_other))

    @property
    def draws(self) -> bool:
        return self.forward_backward.forward.draws

    def is_stale(self) -> bool:
        """Tell whether it was captured with tensors that have been replaced since."""
        return self.captured.is_stale()

    def for_any_size(
        self, size: int, other: DifferentiableProgram, other_size: int, max_samples: int
    ) -> None:
        """Return None, since cotangents are made of the sizes that were captured."""


class _GradientCache(ProgramCache):
    """Programs of gradients."""


def compile_node(
    programs: ProgramCache,
    leaves: Sequence[Any],
    captured: CapturedFunction,
    open_traces: list[OpenTrace] | None = None,
) -> DifferentiableProgram:
    """Capture a function with gradients by all tensors that require them.

    Args:
        open_traces: the trace of ``captured``, if it is still open.
    """
    graph_outputs = [i for i, flag in enumerate(captured.requires) if flag]
    grad_leaves = [
        i
        for i, leaf in enumerate(leaves)
        if isinstance(leaf, Tensor) and not leaf.stop_gradient
    ]
    free_tensors, count = captured.free, len(leaves)
    if open_traces:
        free_tensors = open_traces[0].tensors_from_outside(free_tensors)

    def call_with_requests(leaves: list[Any]) -> Sequence[Any]:
        request_gradients(free_tensors)
        return programs.call_fn(leaves)

    def values_and_gradients(
        all_inputs: list[Any], create_graph: bool
    ) -> tuple[list[Any], list[Any]]:
        leaves_and_cotangents = all_inputs[:count], all_inputs[count:]
        with grad_mode(True):
            if listener() is None:
                return _joint_on_tape(
                    call_with_requests,
                    *leaves_and_cotangents,
                    graph_outputs,
                    grad_leaves,
                    free_tensors,
                )
            values = [*programs.call_fn(leaves_and_cotangents[0])]
            return values, gradients_at(all_inputs, values, create_graph)

    def gradients_at(
        all_inputs: list[Any], values: list[Any], create_graph: bool
    ) -> list[Tensor | None]:
        tensors = [v for v in values if isinstance(v, Tensor)]
        outputs = [tensors[i] for i in graph_outputs]
        inputs = [all_inputs[i] for i in grad_leaves] + free_tensors
        return gradients(outputs, inputs, all_inputs[count:], create_graph)

    def joint_of_open_trace(all_inputs: list[Any], values: list[Any]) -> list[Any]:
        with grad_mode(True):
            return [*values, *gradients_at(all_inputs, values, False)]

    def joint(all_inputs: list[Any]) -> list[Any]:
        values, grads = values_and_gradients(all_inputs, False)
        return [*values, *grads]

    def gradients_by_rules(all_inputs: list[Any]) -> tuple[list[Any], Any]:
        return run_by_rules(
            lambda all_inputs: values_and_gradients(all_inputs, True)[1], all_inputs
        ), None

    cotangents = captured.example_cotangents()
    joint_capture = capture(
        joint,
        [*leaves, *cotangents],
        check=not is_running(),
        begun=open_traces,
        further=joint_of_open_trace,
        once=programs.once,
    )
    tensors = tensors_among(leaves)
    forward_backward, _ = joint_capture.split(len(captured.outputs), tensors)
    if any(forward_backward.gradient_exists):
        # What is not used is no input, so that it has no gradient.
        number = len(grad_leaves)
        grad_leaves = [*compress(grad_leaves, forward_backward.gradient_exists)]
        free_tensors = [
            *compress(free_tensors, forward_backward.gradient_exists[number:])
        ]
        forward_backward = forward_backward.with_existing_gradients()
    gradient_cache = _GradientCache(gradients_by_rules)
    positions = {id(tensor): i for i, tensor in enumerate(tensors)}
    with_gradients = [*(leaves[i] for i in grad_leaves), *free_tensors]
    sources = [positions.get(id(tensor), tensor) for tensor in with_gradients]
    is_reverse = isinstance(programs, _GradientCache)
    return DifferentiableProgram(
        *(
            forward_backward,
            graph_outputs,
            grad_leaves,
            free_tensors,
            joint_capture,
            gradient_cache,
            is_single_use(),
        ),
        sources,
        is_reverse,
    )


def _joint_on_tape(
    fn: Any,
    leaves: list[Any],
    cotangents: list[Tensor],
    graph_outputs: list[int],
    grad_leaves: list[int],
    free_tensors: list[Tensor],
) -> tuple[list[Any], list[Any]]:
    """Compute values and gradients by Paddle's tape, to compare the program with."""
    detached = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    values, recording = recorded(fn, detached, Effects(reaches=False))
    tensors = [i for i, value in enumerate(values) if isinstance(value, Tensor)]
    seeds: dict[int, Tensor] = {}
    distinct_ends = {}
    for i, cotangent in zip(graph_outputs, cotangents, strict=True):
        end = recording.outputs[tensors[i]]
        before = seeds.get(id(end))
        seeds[id(end)] = cotangent if before is None else before + cotangent
        distinct_ends[id(end)] = end
    ends, cotangents = [*distinct_ends.values()], [*seeds.values()]
    results = gradients(ends, recording.inputs, cotangents, False)
    by_leaf = dict(zip(recording.differentiable, results, strict=False))
    by_id = {id(t): g for t, g in zip(recording.inputs, results, strict=True)}
    grads = [by_leaf[i] for i in grad_leaves] + [by_id.get(id(t)) for t in free_tensors]
    return values, grads


class _ProgramCall:
    """A call of a program, as :class:`..recordings.nodes.Differentiable`."""

    def __init__(
        self,
        node: DifferentiableProgram,
        leaves: Sequence[Any],
        inputs: list[Tensor],
        residuals: Sequence[Tensor],
        tensors: Sequence[Tensor],
        known_gradients: KnownGradients | None,
    ) -> None:
        self.inputs: Sequence[Tensor] = inputs
        self._known_gradients = known_gradients
        self._node, self._leaves, self._residuals = node, leaves, residuals
        self._watched = [*residuals, *tensors]
        self._versions = versions(self._watched)
        self._tensors, self._writes_before = tensors, writes_so_far()

    def feeds_another(self, index: int) -> bool:
        return self._node.feeds_another(index)

    def backward(
        self, cotangents_or_none: Sequence[Tensor | None]
    ) -> tuple[list[Tensor | None], list[bool]]:
        """Return gradients, and for which missing ones Paddle has zeros."""
        node = self._node
        check_unwritten(self._tensors, self._writes_before)
        check_unchanged(
            self._watched, self._versions, "a result, a parameter or the argument"
        )
        if paddle.is_grad_enabled() and self._known_gradients is not None:
            result = self._from_known_gradients(
                self._known_gradients, cotangents_or_none
            )
            if result is not None:
                return result
        ends = [node.captured.program.outputs[i] for i in node.graph_outputs]
        cotangents = [
            paddle.zeros(end.shape, cast(Any, end.dtype)) if g is None else g
            for g, end in zip(cotangents_or_none, ends, strict=True)
        ]
        grads: list[Tensor | None]
        if paddle.is_grad_enabled():
            grads = self._gradients_on_graph(cotangents)
        else:
            has_cotangent = tuple(g is not None for g in cotangents_or_none)
            backward, has_grad = node.forward_backward.backward_program(
                (True,) * len(self.inputs), has_cotangent
            )
            results = iter(run(backward, [*self._residuals, *cotangents]))
            grads = [next(results) if exists else None for exists in has_grad]
        if None not in grads:
            return grads, [True] * len(grads)
        return grads, node.has_zeros(tuple(g is not None for g in cotangents_or_none))

    def _from_known_gradients(
        self,
        known_gradients: KnownGradients,
        cotangents_or_none: Sequence[Tensor | None],
    ) -> tuple[list[Tensor | None], list[bool]] | None:
        """Return known gradients of leaves; None if others are requested, too."""
        node, is_asked = self._node, requested_tensor_test()
        requested = [is_asked(x) for x in self.inputs]
        if any(requested[len(node.grad_leaves) :]):
            return None
        cotangents = {
            output_index: g
            for output_index, g in zip(
                node.graph_outputs, cotangents_or_none, strict=True
            )
            if g is not None
        }
        result = known_gradients.gradients(
            cotangents, [*compress(node.grad_leaves, requested)]
        )
        if result is None:
            return None
        grads = iter(result)
        return [next(grads) if flag else None for flag in requested], requested

    def _gradients_on_graph(self, cotangents: Sequence[Tensor]) -> list[Tensor | None]:
        node = self._node
        try:
            if any(x.stop_gradient for x in self.inputs):
                raise CaptureError(
                    "a tensor was frozen after the call; freeze it before"
                )
            if node.draws:
                raise CaptureError(f"{NO_MORE}; use the function without jit there")
            with single_use_captures(node.once):
                all_inputs = [*self._leaves, *cotangents]
                return call(node.gradient_cache, all_inputs, None)[0]
        except CaptureError as error:
            raise NotImplementedError(
                f"the gradients of a program can't be differentiated once more "
                f"({error}); call the function without jit"
            ) from error
