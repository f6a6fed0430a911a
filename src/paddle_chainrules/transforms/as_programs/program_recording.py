"""The backward pass of one call that ran as a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import paddle
from paddle import Tensor
from paddle.base import core as _core

from ...paddle_side.patching.write_counts import write_count
from ...paddle_side.process.random_state import note_drawing, running_seeds
from ...programs import CapturedFunction, ForwardBackward, Program
from ..recordings.cotangents import check_seed
from ..recordings.dispatch import record
from ..recordings.effects import (
    check_unchanged,
    check_unwritten,
    tensors_among,
    version_of,
)
from ..recordings.recording import Recording, records_graph

core: Any = _core


class CompiledVJP(NamedTuple):
    """The programs of a function's value and of the backward pass."""

    forward_backward: ForwardBackward
    captured: CapturedFunction
    structure: Any
    seeds: list[int]
    """Indices of the outputs that have cotangents."""
    grad_leaves: list[int]
    """Indices of the leaves that have gradients."""

    def is_stale(self) -> bool:
        """Tell whether it was captured with tensors that have been replaced since."""
        return self.captured.is_stale()

    @property
    def entered(self) -> Any:
        """The forward program's machine code, as :attr:`.Program.entered`."""
        return self.forward_backward.forward.entered

    @property
    def most(self) -> int:
        """The most samples that it serves, if it serves any number."""
        samples = self.forward_backward.forward.samples
        return samples.most if samples is not None else 0

    def for_any_size(
        self, size: int, other: CompiledVJP, other_size: int, max_samples: int
    ) -> CompiledVJP | None:
        """Return programs for any number of samples, if two calls agree on them.

        Args:
            size: the number of samples that this one was captured for.
            other: captured for another number, ``other_size``.
            max_samples: the largest number that it serves.
        """
        if (
            self.seeds != other.seeds
            or self.grad_leaves != other.grad_leaves
            or self.structure != other.structure
        ):
            return None
        both = self.captured.split_for_any_size(
            *(self.forward_backward, size, other.captured, other.forward_backward),
            *(other_size, max_samples),
        )
        return both and self._replace(forward_backward=both[0], captured=both[1])


class ProgramRecording(Recording):
    """The backward pass of one call, by a program.

    Attributes:
        compiled: the forward and backward programs.
    """

    def __init__(
        self,
        fn: Callable[[list[Any]], Sequence[Any]],
        leaves: Sequence[Any],
        tensors: Sequence[Tensor],
        outputs: Sequence[Any],
        compiled: CompiledVJP,
        saved: Sequence[Tensor],
    ) -> None:
        self.leaves, self.differentiable = leaves, compiled.grad_leaves
        self.compiled, self._saved = compiled, saved
        self._call, self._tensors = (fn, leaves), tensors
        self._outputs = self._results = outputs
        # In line, without versions(), since each call of a net comes here.
        self._reachable = [saved[i] for i in compiled.forward_backward.reachable]
        self._versions = sum(map(version_of, self._reachable))
        constants = compiled.forward_backward.forward.constants.values()
        self._versions_before = sum(map(version_of, (*tensors, *constants)))
        self._writes_before = write_count[0]

    connected = _sparse = False
    _tape: Recording | None = None

    @property
    def nodes(self) -> int:
        return len(self.compiled.forward_backward.forward.ops)

    def truncate(self, leaves: int, outputs: int) -> None:
        """Keep only this number of leaves and outputs, the first ones."""
        self.leaves, self._outputs = self.leaves[:leaves], self._outputs[:outputs]
        self.differentiable = [i for i in self.compiled.grad_leaves if i < leaves]

    def _seeds(
        self, cotangents: Sequence[Tensor | None]
    ) -> tuple[list[Tensor], list[Any]]:
        """Return the cotangent or None of each seed output; [] if all are None."""
        outputs = self._outputs
        for i, (output, cotangent) in enumerate(zip(outputs, cotangents, strict=True)):
            if cotangent is not None:
                check_seed(i, cotangent, output)
        count = len(outputs)
        seeds = [cotangents[i] if i < count else None for i in self.compiled.seeds]
        return [], seeds if any(cotangent is not None for cotangent in seeds) else []

    def _unalias(self, result: Sequence[Any], seeds: Sequence[Any]) -> Sequence[Any]:
        return result  # as programs give it

    def _differentiate(
        self, outputs: list[Tensor], seeds: list[Any], wanted: Sequence[int]
    ) -> Sequence[Any]:
        compiled, saved = self.compiled, self.saved()
        if records_graph(seeds):
            return self._on_tape(seeds, wanted)
        requested = (True,) * len(wanted)
        if len(wanted) < len(compiled.grad_leaves):
            flags = {*wanted}
            requested = tuple(i in flags for i in compiled.grad_leaves)
        program, has_grad = compiled.forward_backward.backward_program(
            requested, tuple(g is not None for g in seeds)
        )
        for i, (output_index, seed) in enumerate(
            zip(compiled.seeds, seeds, strict=True)
        ):
            if seed is None:
                seeds[i] = paddle.zeros_like(self._results[output_index])
        results = run(program, [*saved, *seeds])
        if len(results) == len(has_grad):
            return results
        grads = iter(results)
        return [next(grads) if flag else None for flag in has_grad]

    def saved(self) -> Sequence[Tensor]:
        """Return the residuals, after a check that they are unchanged.

        Raises:
            RuntimeError: an operation in place has changed it.
        """
        if self._writes_before != write_count[0]:
            check_unwritten(self._tensors, self._writes_before)
        if self._versions != sum(map(version_of, self._reachable)):
            check_unchanged(
                self._reachable, self._versions, "a result, a parameter or the argument"
            )
        return self._saved

    def retained_bytes(self) -> int:
        """Return the bytes of residuals and results that the call keeps alive."""
        read_ids = {*map(id, self._read_tensors())}
        by_id = {id(t): t for t in (*self._saved, *tensors_among(self._results))}
        owned = [
            t for i, t in by_id.items() if i not in read_ids and t._is_initialized()
        ]
        elements = sum(int(t.size) * t.element_size() for t in owned)
        return CALL_BYTES + TENSOR_BYTES * len(owned) + elements

    def _read_tensors(self) -> list[Tensor]:
        """Return all tensors that the function reads: arguments and constants."""
        constants = self.compiled.forward_backward.forward.constants.values()
        return [*self._tensors, *constants]

    def _on_tape(self, seeds: list[Any], wanted: Sequence[int]) -> Sequence[Any]:
        """Record the function again on the tape, for differentiable gradients.

        Raises:
            NotImplementedError: the function draws random numbers.
            RuntimeError: an operation in place has changed what it reads.
        """
        if self._tape is None:
            if self.compiled.forward_backward.forward.draws:
                raise NotImplementedError(f"{NO_MORE}; use the net without jit there")
            check_unchanged(
                self._read_tensors(),
                self._versions_before,
                "a parameter or an argument",
            )
            _, self._tape = record(*self._call, nested=True)
        cotangents: list[Any] = [None] * len(self.compiled.captured.outputs)
        for output_index, cotangent in zip(self.compiled.seeds, seeds, strict=True):
            cotangents[output_index] = cotangent
        grads = self._tape.gradients(cotangents, {*wanted})
        return [grads[i] for i in wanted]


CALL_BYTES = TENSOR_BYTES = 4_200
"""Bytes of a call that is kept, and of each tensor, without its elements."""

NO_MORE = "it draws random numbers, which a second derivative would draw anew"


def run(
    program: Program, tensors: Sequence[Tensor], trusted: bool = False
) -> list[Tensor]:
    """Run a program without a graph.

    Args:
        trusted: whether the tensors have the program's shapes and dtypes for sure.
    """
    function = program.function
    if trusted:
        function = function.trusting  # type: ignore[attr-defined]
    if program.draws:
        note_drawing()
        with running_seeds():
            result = _run_program(function, tensors)
        return result
    return _run_program(function, tensors)


def _run_program(
    function: Callable[..., Any], tensors: Sequence[Tensor]
) -> list[Tensor]:
    if not core._has_grad():
        return function(*tensors)
    try:
        core._set_has_grad(False)
        result = function(*tensors)
    finally:
        core._set_has_grad(True)
    return result
