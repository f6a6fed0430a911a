"""Derivatives of derivatives, and others that Paddle's tape does not have.

The tape has plain first derivatives. Everything else is taken by the rules of the
table, on a record of the call (:mod:`...programs.tracing.eager`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.autograd.engine import gradients
from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.autograd.partial_gradients import leaves_behind
from ...paddle_side.listener import listener
from ...paddle_side.patching.write_counts import writes_so_far
from ...programs import EagerTracer
from .effects import Effects, check_unchanged, check_unwritten, tensors_among
from .nodes import attach_to_graph
from .outputs import detached
from .recording import Recording, both_reasons, recorded, records_graph

Flat = Callable[[list[Any]], Sequence[Any]]


def run_by_rules(fn: Flat, leaves: Sequence[Any]) -> list[Any]:
    """Run ``fn(leaves)``; take derivatives within it by rules, not by the tape.

    Results stay differentiable by whatever the caller differentiates by.

    Raises:
        NotImplementedError: there is no rule for one.
    """
    if listener() is not None:
        return [*fn([*leaves])]
    return Calls().call(fn, leaves)


def record_by_rules(
    fn: Flat, leaves: Sequence[Any], effects: Effects
) -> tuple[list[Any], Recording]:
    """Do as :func:`.recording.recorded`, on a trace of its own.

    Raises:
        NotImplementedError: an operator is not in the table.
    """
    calls, recordings = Calls(), []

    def record_first(stand_ins: list[Any]) -> Sequence[Any]:
        outputs, recording = recorded(fn, stand_ins, effects)
        recordings.append(recording)
        return outputs

    outputs = calls.call(record_first, leaves)
    if paddle.is_grad_enabled() and not records_graph(leaves):
        effects.note_free(leaves_behind(calls.free))
    return outputs, EagerRecording(calls, recordings[0], leaves, outputs)


class Calls:
    """Function calls on one trace, which may use results of earlier calls.

    Attributes:
        free: tensors with gradients that results depend on and no call was given.
    """

    def __init__(self) -> None:
        self._tracer = EagerTracer([])
        self._seen_versions: list[tuple[Tensor, int]] = []
        self.free: list[Tensor] = []

    def call(self, fn: Flat, leaves: Sequence[Any]) -> list[Any]:
        """Run ``fn(leaves)``, on the caller's graph where it depends on that."""
        tracer = self._tracer
        stand_ins = tracer.stand_ins_for(leaves)
        with tracer.listens():
            results = [*fn(stand_ins)]
        self._seen_versions = tracer.versions()
        return self._attach_to_graph(results, leaves)

    @property
    def operators(self) -> int:
        """The number of operators."""
        return len(self._tracer.ops)

    def precompute(self, fn: Callable[[], Any]) -> None:
        """Call a function on the trace, whose results are for later calls."""
        with self._tracer.listens():
            fn()
        self._seen_versions = self._tracer.versions()

    def gradients(
        self, take_gradients: Flat, cotangents: Sequence[Any], connected: bool
    ) -> list[Any]:
        """Call ``of(cotangents)``, which takes gradients and does nothing else.

        Operators are traced, as by :meth:`call_further`, only if the gradients may be
        differentiated, or if a gradient needs a formula or a layer's own backward.
        """
        operators = self._tracer.taped_operators()
        by_rules = all(o.reverse and not o.opaque for o in operators)
        if not by_rules or records_graph(cotangents, connected):
            return self.call_further(take_gradients, cotangents, connected)
        self._check_unchanged()
        with grad_mode(False), EagerTracer([], self._tracer).stands_by():
            return detached([*take_gradients([*cotangents])], cotangents)

    def call_further(
        self, fn: Flat, leaves: Sequence[Any], connected: bool
    ) -> list[Any]:
        """Do as :meth:`call`; trace nothing of it if nobody differentiates it.

        Raises:
            RuntimeError: somebody has written into what the record holds.
        """
        self._check_unchanged()
        if records_graph(leaves, connected):
            return self.call(fn, leaves)
        with grad_mode(False), EagerTracer([], self._tracer).listens():
            results = [*fn([*leaves])]
        return detached(results, leaves)

    def _check_unchanged(self) -> None:
        """Refuse to go on where operators' arguments or results were written into."""
        tensors = [tensor for tensor, _ in self._seen_versions]
        before = sum(version for _, version in self._seen_versions)
        check_unchanged(tensors, before, "a result, a parameter or the argument")

    def _attach_to_graph(
        self, all_results: list[Any], leaves: Sequence[Any]
    ) -> list[Any]:
        """Return results, on the caller's graph where they depend on it."""
        traced = {
            id(x): x
            for x in all_results
            if isinstance(x, Tensor) and not x.stop_gradient
        }
        if not (traced and paddle.is_grad_enabled()):
            return detached(all_results, leaves)
        graph = self._tracer.graph_of(traced)
        if graph is None:
            return detached(all_results, leaves)
        self.free = graph.free
        differentiable = _RecordedResults(
            self, graph.ends, graph.starts, graph.inputs, graph.feeds_another
        )
        graph_results = dict(
            zip(graph.keys, attach_to_graph(graph.ends, differentiable), strict=True)
        )
        other_results = iter(
            detached([x for x in all_results if id(x) not in graph_results], leaves)
        )
        return [
            graph_results[id(x)] if id(x) in graph_results else next(other_results)
            for x in all_results
        ]


class _RecordedResults:
    """Results of a trace on a graph, as :class:`.nodes.Differentiable`."""

    def __init__(
        self,
        calls: Calls,
        ends: Sequence[Tensor],
        starts: Sequence[Tensor],
        inputs: Sequence[Tensor],
        feeds_another: Callable[[int], bool],
    ) -> None:
        self.inputs, self.feeds_another = inputs, feeds_another
        self._calls, self._ends, self._starts = calls, ends, starts

    def backward(
        self, cotangents: Sequence[Tensor | None]
    ) -> tuple[list[Tensor | None], list[bool]]:
        """Return gradients of the inputs, and flags that none are Paddle's zeros."""
        pairs = zip(self._ends, cotangents, strict=True)
        ends_and_cotangents = [(end, c) for end, c in pairs if c is not None]

        def take_gradients(known_cotangents: list[Any]) -> Sequence[Any]:
            ends = [end for end, _ in ends_and_cotangents]
            return gradients(
                ends, self._starts, known_cotangents, paddle.is_grad_enabled()
            )

        grads = self._calls.gradients(
            take_gradients, [c for _, c in ends_and_cotangents], True
        )
        return grads, [False] * len(grads)


class EagerRecording(Recording):
    """A recording on a trace of its own, differentiated by rules."""

    _sparse = False

    def __init__(
        self,
        calls: Calls,
        recording: Recording,
        leaves: Sequence[Any],
        outputs: Sequence[Any],
    ) -> None:
        self.leaves, self.differentiable = leaves, recording.differentiable
        self.connected, self._writes_before = recording.connected, writes_so_far()
        self._calls, self._recording, self._outputs = calls, recording, outputs

    @property
    def nodes(self) -> int:
        return self._calls.operators

    def truncate(self, leaves: int, outputs: int) -> None:
        super().truncate(leaves, outputs)
        self._recording.truncate(leaves, outputs)

    def precompute(self, fn: Callable[[Recording], Any]) -> None:
        self._calls.precompute(lambda: fn(self._recording))

    def run_on_record(self, fn: Flat, tensors: Sequence[Any]) -> list[Any]:
        check_unwritten(tensors_among(self.leaves), self._writes_before)
        return self._calls.gradients(fn, tensors, self.connected)

    def _gradients(
        self, cotangents: Sequence[Tensor | None], requested: Collection[int] | None
    ) -> list[Any]:
        def take_gradients(tensors: list[Any]) -> list[Any]:
            return self._recording.gradients(tensors, requested)

        try:
            return self._calls.gradients(take_gradients, cotangents, self.connected)
        except NotImplementedError as error:
            raise both_reasons(self.refusal, error) from error
