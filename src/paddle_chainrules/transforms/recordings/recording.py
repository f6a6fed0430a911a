"""A graph that Paddle records, from stand-ins of some leaves to a function's outputs.

On plain lists: what is nested is taken apart above, in :mod:`..derivatives.vjp` and
:mod:`...nets.net`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import paddle
from paddle import Tensor

from ...paddle_side.autograd.engine import gradients
from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.autograd.kernel_errors import Overwritten
from ...paddle_side.autograd.partial_gradients import (
    Graph,
    leaves_behind,
    survey,
)
from ...paddle_side.autograd.row_sparse import RowSparse, dense
from ...paddle_side.dtypes import is_differentiable, is_integral
from ...paddle_side.listener import listener
from ...paddle_side.patching.write_counts import writes_counted, writes_so_far
from ...paddle_side.process.random_state import (
    random_state_restored_on_error,
    restore_random_state,
)
from ...paddle_side.rules.in_place import refuse_other_uses
from ...paddle_side.rules.operators import TapeContext
from ...paddle_side.watch import written_outside
from ...programs import EagerTracer
from .cotangents import check_seed
from .effects import (
    Effects,
    check_unwritten,
    copied,
    flags,
    is_refused_write,
    tensors_among,
    versions,
)
from .kept_graph import KeptGraph
from .outputs import detached, distinct_outputs, unaliased
from .reached import program_gradients_noted, without_zeros


def records_graph(leaves: Iterable[Any], reaches: bool = False) -> bool:
    """Tell by Paddle's rule: gradients are on and some tensor requires them."""
    return paddle.is_grad_enabled() and (
        reaches or False in flags(tensors_among(leaves))
    )


def recorded(
    fn: Callable[[list[Any]], Sequence[Any]], leaves: Sequence[Any], effects: Effects
) -> tuple[list[Any], Recording]:
    """Return ``fn(leaves)`` and its graph, on Paddle's tape or the listening record.

    A function that turns out to write into what it is given is called once more, on
    copies, and draws the same random numbers.
    """
    with random_state_restored_on_error() as drawing:
        result = _record_once(fn, leaves, effects)
        if result is None:
            if drawing.state is not None:
                restore_random_state(drawing.state)
            result = _record_once(fn, leaves, effects)
    assert result is not None  # copies may be written into
    return result


def _record_once(
    fn: Callable[[list[Any]], Sequence[Any]], leaves: Sequence[Any], effects: Effects
) -> tuple[list[Any], Recording] | None:
    """Record one call for :func:`recorded`; None if it writes into its arguments."""
    enabled, tracer = paddle.is_grad_enabled(), listener()
    if connected := records_graph(leaves):
        leaves = [leaf.detach() if is_integral(leaf) else leaf for leaf in leaves]
        connected = records_graph(leaves)
    copies, write_guard = effects.copies, None
    if effects.writes is None and isinstance(tracer, EagerTracer):
        copies, write_guard = False, tracer
    with nullcontext() if enabled else grad_mode(True), writes_counted():
        targets = [
            _target(leaf, connected) if is_differentiable(leaf) else leaf
            for leaf in leaves
        ]
        fn_inputs = [*map(copied, targets)] if copies else targets
        tensors = tensors_among(fn_inputs)
        versions_before = 0 if copies else versions(tensors)
        context = TapeContext(() if copies else targets)
        try:
            with (
                nullcontext()
                if write_guard is None
                else write_guard.refusing_writes(tensors)
            ):
                outputs = context.call(fn, [*fn_inputs])
            if context.writes:
                refuse_other_uses(outputs, context.writes)
            outputs = distinct_outputs(outputs, fn_inputs)
        except ValueError as error:
            if copies or not is_refused_write(error):
                raise
            effects.writes = True
    if effects.writes and not copies:
        return None
    if copies:
        effects.note_writes(fn_inputs, leaves)
    else:
        effects.check(tensors, versions_before)
    differentiable = [
        i
        for i, (leaf, target) in enumerate(zip(leaves, targets, strict=True))
        if leaf is not target
    ]
    recording = Recording(leaves, targets, differentiable, outputs, context, connected)
    recording.fn_inputs = fn_inputs
    if tracer is not None:
        tracer.stands_in([*recording.inputs, *tensors], recording)
        recording.connected = connected or (
            enabled and tracer.reaches_free(outputs, targets)
        )
    elif enabled and effects.reaches is not False:
        free = recording.free_variables()
        effects.note_free(free)
        recording.reaches = bool(free)
    recording.drop_capture_info()
    return outputs if recording.connected else detached(outputs, leaves), recording


def _target(leaf: Tensor, connected: bool) -> Tensor:
    """Return the tensor that is differentiated with respect to in place of a leaf."""
    if connected and not leaf.stop_gradient:
        return paddle.assign(leaf)
    detached = leaf.detach()
    detached.stop_gradient = False
    return detached


def both_reasons(
    first: Exception | None, second: NotImplementedError
) -> NotImplementedError:
    """Return one error for what the tape has refused, and the record too."""
    if first is None or str(first) == str(second):  # the function's own, perhaps
        return second
    return NotImplementedError(f"{first}. Nor is there a rule for it: {second}")


class Recording(KeptGraph):
    """The graph of :func:`recorded`, kept alive for any number of pullbacks.

    Attributes:
        leaves: the primals.
        differentiable: positions of those that have a gradient.
        connected: whether gradients are to stay differentiable.
        reaches: whether outputs on the tape depend on what requires gradients and is no
            leaf.
        overwrites: whether the function writes into what depends on the leaves.
        fn_inputs: what the function got for the leaves.
        rerecord: calls the function once more, for a recording on the tracer that
            listens, or on one of its own, where the tape has refused.
        refusal: why the tape has refused, if it was asked before.
    """

    overwrites = reaches = False
    fn_inputs: Sequence[Any]
    rerecord: Callable[[Exception | None], Recording] | None = None
    refusal: NotImplementedError | None = None
    _truncated_to: tuple[int, int] | None = None
    _replacement: Recording | None = None

    def __init__(
        self,
        leaves: Sequence[Any],
        targets: Sequence[Any],
        differentiable: Sequence[int],
        outputs: Sequence[Any],
        context: TapeContext,
        connected: bool,
    ) -> None:
        self.leaves = leaves
        self.differentiable = differentiable
        self.connected = connected
        self._targets = targets
        self._outputs = outputs
        self._requested_inputs = [*context.requested_tensors.values()]
        self._created = context.created_leaves
        self._constants = context.constants
        self._sparse = context.sparse
        self.overwrites = context.overwrites
        self._written, self._writes_before = written_outside[0], writes_so_far()
        self._graph: Graph | None = None

    @property
    def nodes(self) -> int:
        """Operators on the graph."""
        return self._survey().nodes

    @property
    def outputs(self) -> Sequence[Any]:
        """The outputs on the graph."""
        return self._outputs

    @property
    def inputs(self) -> list[Tensor]:
        """All that is differentiated by, the differentiable leaves first."""
        return [self._targets[i] for i in self.differentiable] + self._requested_inputs

    def free_variables(self) -> set[int]:
        """Return addresses of tensors with gradients that outputs use, but leaves."""
        known = [*(self._targets[i] for i in self.differentiable), *self._created]
        free = leaves_behind(self._graph_outputs(), known)
        return free - self._constants.keys()

    def _is_cause(self, refusal: Exception) -> bool:
        """Tell whether the function itself causes a refusal, and no later write."""
        is_own_write = self.overwrites and self._written == written_outside[0]
        return is_own_write or not isinstance(refusal, Overwritten)

    def truncate(self, leaves: int, outputs: int) -> None:
        """Keep only this number of leaves and outputs, the first ones."""
        self._truncated_to = leaves, outputs
        self.leaves, self._outputs = self.leaves[:leaves], self._outputs[:outputs]
        self.differentiable = [i for i in self.differentiable if i < leaves]

    def _record_again(self, refusal: Exception | None) -> Recording:
        assert self.rerecord is not None
        result = self.rerecord(refusal)
        if self._truncated_to is not None:
            result.truncate(*self._truncated_to)
        return result

    def drop_capture_info(self) -> None:
        """Release what only :meth:`free_variables` needs."""
        self._created, self._constants = [], {}

    def gradients(
        self,
        cotangents: Sequence[Tensor | None],
        requested: Collection[int] | None = None,
        sparse: Collection[int] = (),
    ) -> list[Any]:
        """Return gradients, one per leaf, None where nothing is differentiable.

        Args:
            cotangents: one per output, of its shape and dtype, or None for zero.
            requested: positions of the leaves to differentiate; all when None. The
                others cost nothing and come back as None.
            sparse: positions of those whose gradients are wanted as RowSparse.

        Raises:
            ValueError: a cotangent of another shape.
            TypeError: one that is no tensor, or of another dtype, or for an output
                that has no derivative.
            RuntimeError: somebody has written into what is needed.
        """
        if (replacement := self.replacement()) is not None:
            return replacement.gradients(cotangents, requested, sparse)
        if self._writes_before != writes_so_far():
            check_unwritten(tensors_among(self.leaves), self._writes_before)
        grads = self._gradients(cotangents, requested)
        if not (self._sparse or sparse):
            return grads
        return [
            RowSparse.of(grad) if i in sparse and grad is not None else dense(grad)
            for i, grad in enumerate(grads)
        ]

    def _gradients(
        self, cotangents: Sequence[Tensor | None], requested: Collection[int] | None
    ) -> list[Any]:
        """Return gradients per leaf as the tape gives them, row-sparse or dense."""
        outputs, seeds = self._seeds(cotangents)
        wanted = self.differentiable
        if requested is not None:
            wanted = [i for i in wanted if i in requested]
        grads: list[Any] = [None] * len(self.leaves)
        if not (seeds and wanted):
            return grads
        if self.rerecord is not None and records_graph(seeds):
            return self._record_again(None).gradients(cotangents, requested)
        results: Sequence[Any]
        try:
            results = self._differentiate(outputs, seeds, wanted)
        except NotImplementedError as refusal:
            if self.rerecord is None or not self._is_cause(refusal):
                raise
            self._replacement = self._record_again(refusal)
            return self._replacement.gradients(cotangents, requested)
        for i, grad in zip(wanted, self._unalias(results, seeds), strict=True):
            grads[i] = grad
        return grads

    def _unalias(self, result: Sequence[Any], seeds: Sequence[Tensor]) -> Sequence[Any]:
        """Return gradients, cloned where they share memory with a cotangent."""
        return unaliased(result, seeds)

    def _differentiate(
        self, outputs: list[Tensor], seeds: list[Tensor], wanted: Sequence[int]
    ) -> Sequence[Tensor | None]:
        if (tracer := listener()) is not None:
            inputs = [self._targets[i] for i in wanted]
            keeps_graph = not isinstance(tracer, EagerTracer) or records_graph(
                seeds, self.connected
            )
            create_graph = keeps_graph and paddle.is_grad_enabled()
            return gradients(outputs, inputs, seeds, create_graph)
        with program_gradients_noted() as noted:
            result = self._tape_gradients(outputs, seeds, wanted)
        return without_zeros(result, [self.fn_inputs[i] for i in wanted], noted)

    def _tape_gradients(
        self, outputs: list[Tensor], seeds: list[Tensor], wanted: Sequence[int]
    ) -> Sequence[Tensor | None]:
        """Return the wanted gradients by Paddle's tape, alone or picked from all."""
        differentiable = self.differentiable
        if len(wanted) < len(differentiable) and self._survey().divisible:
            try:
                inputs = [self._targets[i] for i in wanted]
                return gradients(outputs, inputs, seeds, False)
            except NotImplementedError as error:  # a product of an empty batch
                if not isinstance(error.__cause__, ValueError):
                    raise
        results = gradients(outputs, self.inputs, seeds, False)
        if len(wanted) == len(differentiable):
            return results[: len(differentiable)]
        return [
            grad
            for i, grad in zip(differentiable, results, strict=False)
            if i in wanted
        ]

    def replacement(self) -> Recording | None:
        """Return the recording that replaces this one, if there is one.

        That is one on the tracer that listens now, and did not before; or one by rules,
        since the tape has refused.
        """
        if listener() is None:
            return self._replacement
        return self._record_again(None) if self.rerecord is not None else None

    def precompute(self, fn: Callable[[Recording], Any]) -> None:
        """Call ``fn(self)``, whose results :meth:`run_on_record` needs later."""
        fn(self)

    def run_on_record(
        self, fn: Callable[[list[Any]], Sequence[Any]], tensors: Sequence[Any]
    ) -> list[Any]:
        """Run ``fn(tensors)``, which differentiates what was recorded."""
        return [*fn([*tensors])]

    def _survey(self) -> Graph:
        if self._graph is None:
            self._graph = survey(self._graph_outputs(), self.inputs)
        return self._graph

    def _graph_outputs(self) -> list[Tensor]:
        return [
            output
            for output in self._outputs
            if isinstance(output, Tensor) and not output.stop_gradient
        ]

    def _seeds(
        self, cotangents: Sequence[Tensor | None]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return the distinct outputs on the graph, and the cotangent of each."""
        seeds: dict[int, Tensor] = {}
        outputs: list[Tensor] = []
        for i, (output, cotangent) in enumerate(
            zip(self._outputs, cotangents, strict=True)
        ):
            if cotangent is None:
                continue
            check_seed(i, cotangent, output)
            if output.stop_gradient:  # there is no way back from it
                continue
            if 0 in output.shape:  # paddle.grad refuses one without memory
                cotangent = paddle.zeros_like(output)
            if id(output) in seeds:
                seeds[id(output)] = seeds[id(output)] + cotangent
            else:
                seeds[id(output)] = cotangent
                outputs.append(output)
        return outputs, list(seeds.values())
