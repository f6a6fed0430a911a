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
from ...programs.capture import stand_in
from ...programs.tracing.eager import Eager
from ...programs.tracing.operations import Value
from ...programs.tracing.outside import from_outside, reached_from
from ...programs.tracing.reach import computed_of
from .effects import Effects, check_unchanged, check_unwritten, tensors_among
from .nodes import on_graph
from .outputs import detached
from .recording import Recording, both_reasons, recorded, records_graph

Flat = Callable[[list[Any]], Sequence[Any]]


def eagerly(fn: Flat, leaves: Sequence[Any]) -> list[Any]:
    """Run ``fn(leaves)``; derivatives within it are taken by rules.

    Results stay differentiable by whatever the caller differentiates by.

    Raises:
        NotImplementedError: there is no rule for one.
    """
    if listener() is not None:
        return [*fn([*leaves])]
    return Calls().call(fn, leaves)


def recorded_eagerly(
    fn: Flat, leaves: Sequence[Any], effects: Effects
) -> tuple[list[Any], Recording]:
    """Do as :func:`.recording.recorded`, on a record of its own.

    Raises:
        NotImplementedError: an operator is not in the table.
    """
    calls, made = Calls(), []

    def first(given: list[Any]) -> Sequence[Any]:
        outputs, recording = recorded(fn, given, effects)
        made.append(recording)
        return outputs

    outputs = calls.call(first, leaves)
    if paddle.is_grad_enabled() and not records_graph(leaves):
        effects.note_free(leaves_behind(calls.free))
    return outputs, EagerRecording(calls, made[0], leaves, outputs)


class Calls:
    """Functions called on one record, which go on from what others have computed.

    Attributes:
        free: what results depend on that requires gradients and came with no call.
    """

    def __init__(self) -> None:
        self._record = Eager([])
        self._outside: dict[Value, Tensor] = {}
        self._seen: list[tuple[Tensor, int]] = []
        self.free: list[Tensor] = []

    def call(self, fn: Flat, leaves: Sequence[Any]) -> list[Any]:
        """Run ``fn(leaves)``, on the caller's graph where it depends on that."""
        record, count = self._record, len(self._record.inputs)
        given = [*map(stand_in, leaves)]
        record.take(given)
        outside = zip(record.inputs[count:], tensors_among(leaves), strict=True)
        self._outside.update(outside)
        with record.listens():
            results = [*fn(given)]
        self._seen = record.versions()
        return self._on_graph(results, leaves)

    @property
    def operators(self) -> int:
        """The number of operators."""
        return len(self._record.ops)

    def computes_of(self, value: Value, ends: Sequence[Value]) -> bool:
        """Return whether any of the ends is computed of a value."""
        return value in computed_of(self._record.ops, ends)

    def hold(self, fn: Callable[[], Any]) -> None:
        """Call a function whose results are for later calls."""
        with self._record.listens():
            fn()
        self._seen = self._record.versions()

    def gradients(
        self, of: Flat, cotangents: Sequence[Any], connected: bool
    ) -> list[Any]:
        """Call ``of(cotangents)``, which takes gradients and does nothing else.

        Operators are noted, as by :meth:`go_on`, only if somebody may differentiate the
        gradients, or if a gradient needs a formula or a layer's own backward.
        """
        operators = self._record.taped_operators()
        by_rules = all(o.reverse and not o.opaque for o in operators)
        if not by_rules or records_graph(cotangents, connected):
            return self.go_on(of, cotangents, connected)
        self._check_unchanged()
        with grad_mode(False), Eager([], self._record).stands_by():
            return detached([*of([*cotangents])], cotangents)

    def go_on(self, fn: Flat, leaves: Sequence[Any], connected: bool) -> list[Any]:
        """Do as :meth:`call`; keep nothing of it if nobody differentiates it.

        Raises:
            RuntimeError: somebody has written into what the record holds.
        """
        self._check_unchanged()
        if records_graph(leaves, connected):
            return self.call(fn, leaves)
        with grad_mode(False), Eager([], self._record).listens():
            results = [*fn([*leaves])]
        return detached(results, leaves)

    def _check_unchanged(self) -> None:
        """Refuse to go on where operators' arguments or results were written into."""
        tensors = [tensor for tensor, _ in self._seen]
        before = sum(version for _, version in self._seen)
        check_unchanged(tensors, before, "a result, a parameter or the argument")

    def _on_graph(self, outcomes: list[Any], leaves: Sequence[Any]) -> list[Any]:
        """Put results on the caller's graph where they depend on it, others off it."""
        record = self._record
        traced = {
            id(x): x for x in outcomes if isinstance(x, Tensor) and not x.stop_gradient
        }
        if not (traced and paddle.is_grad_enabled()):
            return detached(outcomes, leaves)
        own = self._outside
        free = [v for v in from_outside(record) if not record.is_own(v)]
        starts = [*filter(record.required, own), *free]
        reached = reached_from(record, starts)
        ends = {key: record.value_of(x) for key, x in traced.items()}
        ends = {key: value for key, value in ends.items() if value in reached}
        if not ends:
            return detached(outcomes, leaves)
        inputs = [own[v] if v in own else record.constants[v] for v in starts]
        self.free = [record.constants[v] for v in free]
        results = [record.tensor(v) for v in ends.values()]
        values = [*ends.values()]
        work = _RecordedResults(
            self, values, results, [*map(record.tensor, starts)], inputs
        )
        graph = dict(zip(ends, on_graph(results, work), strict=True))
        rest = iter(detached([x for x in outcomes if id(x) not in graph], leaves))
        return [graph[id(x)] if id(x) in graph else next(rest) for x in outcomes]


class _RecordedResults:
    """Results of a record on a graph, as :class:`.nodes.Differentiable`."""

    def __init__(
        self,
        calls: Calls,
        values: Sequence[Value],
        ends: Sequence[Tensor],
        starts: Sequence[Tensor],
        inputs: Sequence[Tensor],
    ) -> None:
        self.inputs = inputs
        self._calls, self._values = calls, values
        self._ends, self._starts = ends, starts

    def feeds_another(self, place: int) -> bool:
        value, others = self._values[place], [*self._values]
        del others[place]
        return self._calls.computes_of(value, others)

    def backward(
        self, cotangents: Sequence[Tensor | None]
    ) -> tuple[list[Tensor | None], list[bool]]:
        """Return gradients, and that Paddle added no zeros."""
        pairs = zip(self._ends, cotangents, strict=True)
        known = [(end, c) for end, c in pairs if c is not None]

        def of(given: list[Any]) -> Sequence[Any]:
            ends = [end for end, _ in known]
            return gradients(ends, self._starts, given, paddle.is_grad_enabled())

        grads = self._calls.gradients(of, [c for _, c in known], True)
        return grads, [False] * len(grads)


class EagerRecording(Recording):
    """A recording on a record of its own."""

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

    def keep(self, leaves: int, outputs: int) -> None:
        super().keep(leaves, outputs)
        self._recording.keep(leaves, outputs)

    def hold(self, fn: Callable[[Recording], Any]) -> None:
        self._calls.hold(lambda: fn(self._recording))

    def through(self, fn: Flat, tensors: Sequence[Any]) -> list[Any]:
        check_unwritten(tensors_among(self.leaves), self._writes_before)
        return self._calls.gradients(fn, tensors, self.connected)

    def _gradients(
        self, cotangents: Sequence[Tensor | None], asked: Collection[int] | None
    ) -> list[Any]:
        def of(given: list[Any]) -> list[Any]:
            return self._recording.gradients(given, asked)

        try:
            return self._calls.gradients(of, cotangents, self.connected)
        except NotImplementedError as error:
            raise both_reasons(self.refusal, error) from error
