"""The backward pass of one call that ran as a program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import paddle
from paddle import Tensor
from paddle.base import core as _core

from ...paddle_side.patching.write_counts import writes_so_far
from ...paddle_side.process.random_state import note_drawing, running_seeds
from ...programs.captured import CapturedFunction
from ...programs.compiling.program import Program
from ...programs.compiling.residuals import pack_small_residuals
from ...programs.compiling.split import ForwardBackward
from ...programs.sizes.any_size import infer_samples
from ...programs.switch import loops_are_on
from ..tape.cotangents import check_seed
from ..tape.dispatch import record
from ..tape.effects import (
    check_unchanged,
    check_unwritten,
    tensors_among,
    versions,
)
from ..tape.recording import Recording, records_graph

core: Any = _core


class CompiledVJP(NamedTuple):
    """The programs of a function's value and of the backward pass."""

    forward_backward: ForwardBackward
    captured: CapturedFunction
    structure: Any
    seeds: list[int]
    """Places of the outputs that have cotangents."""
    places: list[int]
    """Places of the leaves that have gradients."""

    def is_stale(self) -> bool:
        """Tell whether it was captured with tensors that have been replaced since."""
        return self.captured.is_stale()

    @property
    def most(self) -> int:
        """The most samples that it serves, if it serves any number."""
        samples = self.forward_backward.forward.samples
        return samples.most if samples is not None else 0

    def for_any_size(
        self, size: int, other: CompiledVJP, its_size: int, most: int
    ) -> CompiledVJP | None:
        """Return programs for any number of samples, if two calls agree on them.

        Args:
            size: the number of samples that this one was captured for.
            other: captured for another number, ``its_size``.
            most: the largest number that it serves.
        """
        if (
            self.seeds != other.seeds
            or self.places != other.places
            or self.forward_backward.gradient_exists
            != other.forward_backward.gradient_exists
            or self.structure != other.structure
        ):
            return None
        most = self.captured.max_samples_at_once(most, size)
        one, another = self._apart(), other._apart()
        for own, its in ((one, another), (one._expanding(), another._expanding())):
            alike = own.captured.differs_in_program_only(its.captured)
            if (
                alike
                and own.forward_backward.reachable == its.forward_backward.reachable
            ):
                sizes = size, its.forward_backward.combined, its_size, most
                samples = infer_samples(own.forward_backward.combined, *sizes)
                if samples is not None:
                    forward_backward = own.forward_backward.for_samples(samples)
                    return own._replace(
                        forward_backward=pack_small_residuals(forward_backward)
                        if loops_are_on()
                        else forward_backward
                    )
        return None

    def _apart(self) -> CompiledVJP:
        return self._replace(forward_backward=self.forward_backward.unpacked)

    def _expanding(self) -> CompiledVJP:
        captured, forward_backward = self.captured, self.forward_backward
        return self._replace(
            captured=captured.with_expanded_scalars(),
            forward_backward=forward_backward.with_expanded_scalars(
                captured.own_constants
            ),
        )


class ProgramRecording(Recording):
    """The backward pass of one call, by a program.

    Attributes:
        way: the programs.
    """

    def __init__(
        self,
        fn: Callable[[list[Any]], Sequence[Any]],
        leaves: Sequence[Any],
        tensors: Sequence[Tensor],
        outputs: Sequence[Any],
        way: CompiledVJP,
        saved: Sequence[Tensor],
    ) -> None:
        self.leaves, self.differentiable = leaves, way.places
        self.way, self._saved = way, saved
        self._call, self._tensors = (fn, leaves), tensors
        self._outputs = self._results = outputs
        self._versions = versions(
            map(saved.__getitem__, way.forward_backward.reachable)
        )
        self._before = versions(self._read())
        self._since = writes_so_far()

    connected = _sparse = False
    _tape: Recording | None = None

    @property
    def nodes(self) -> int:
        return len(self.way.forward_backward.forward.ops)

    def keep(self, leaves: int, outputs: int) -> None:
        """Keep only this number of leaves and outputs, the first ones."""
        self.leaves, self._outputs = self.leaves[:leaves], self._outputs[:outputs]
        self.differentiable = [i for i in self.way.places if i < leaves]

    def _seeds(
        self, cotangents: Sequence[Tensor | None]
    ) -> tuple[list[Tensor], list[Any]]:
        """Return a cotangent or None for each seed; nothing if all are None."""
        outputs = self._outputs
        for i, (output, leaf) in enumerate(zip(outputs, cotangents, strict=True)):
            if leaf is not None:
                check_seed(i, leaf, output)
        count = len(outputs)
        given = [cotangents[i] if i < count else None for i in self.way.seeds]
        return [], given if any(leaf is not None for leaf in given) else []

    def _apart(self, result: Sequence[Any], seeds: Sequence[Any]) -> Sequence[Any]:
        return result  # as programs give it

    def _divided(
        self, outputs: list[Tensor], seeds: list[Any], wanted: Sequence[int]
    ) -> Sequence[Any]:
        way, saved = self.way, self.saved()
        if records_graph(seeds):
            return self._on_tape(seeds, wanted)
        requested = (True,) * len(wanted)
        if len(wanted) < len(way.places):
            flags = {*wanted}
            requested = tuple(i in flags for i in way.places)
        program, has = way.forward_backward.backward_program(
            requested, tuple(g is not None for g in seeds)
        )
        for i, (place, seed) in enumerate(zip(way.seeds, seeds, strict=True)):
            if seed is None:
                seeds[i] = paddle.zeros_like(self._results[place])
        results = run(program, [*saved, *seeds])
        if len(results) == len(has):
            return results
        each = iter(results)
        return [next(each) if flag else None for flag in has]

    def saved(self) -> Sequence[Tensor]:
        """Return what the backward pass needs, after a check that it is unchanged.

        Raises:
            RuntimeError: an operation in place has changed it.
        """
        saved = self._saved
        if self._since != writes_so_far():
            check_unwritten(self._tensors, self._since)
        check_unchanged(
            map(saved.__getitem__, self.way.forward_backward.reachable),
            self._versions,
            "a result, a parameter or the argument",
        )
        return saved

    def retained_bytes(self) -> int:
        """Return how many bytes of its results the call keeps."""
        given = {*map(id, self._read())}
        each = {id(t): t for t in (*self._saved, *tensors_among(self._results))}
        made = [t for i, t in each.items() if i not in given and t._is_initialized()]
        elements = sum(int(t.size) * t.element_size() for t in made)
        return CALL_BYTES + TENSOR_BYTES * len(made) + elements

    def _read(self) -> list[Tensor]:
        """Return all that the function reads."""
        constants = self.way.forward_backward.forward.constants.values()
        return [*self._tensors, *constants]

    def _on_tape(self, seeds: list[Any], wanted: Sequence[int]) -> Sequence[Any]:
        """Call the function once more, for gradients that are differentiated again.

        Raises:
            NotImplementedError: the function draws random numbers.
            RuntimeError: an operation in place has changed what it reads.
        """
        if self._tape is None:
            if self.way.forward_backward.forward.draws:
                raise NotImplementedError(f"{NO_MORE}; use the net without jit there")
            check_unchanged(self._read(), self._before, "a parameter or an argument")
            _, self._tape = record(*self._call, nested=True)
        cotangents: list[Any] = [None] * len(self.way.captured.outputs)
        for place, cotangent in zip(self.way.seeds, seeds, strict=True):
            cotangents[place] = cotangent
        grads = self._tape.gradients(cotangents, {*wanted})
        return [grads[i] for i in wanted]


CALL_BYTES = TENSOR_BYTES = 4_200
"""Bytes of a call that is kept, and of each tensor, without its elements."""

NO_MORE = "it draws random numbers, which a second derivative would draw anew"


def run(
    program: Program, tensors: Sequence[Tensor], trusts: bool = False
) -> list[Tensor]:
    """Run a program without a graph.

    Args:
        trusts: whether the tensors have the program's shapes and dtypes for sure.
    """
    function = program.function
    if trusts:
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
