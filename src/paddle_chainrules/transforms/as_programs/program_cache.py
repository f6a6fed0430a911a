"""The programs of one function, by the kinds of its arguments."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from paddle import Tensor

from ...errors import CaptureError
from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.autograd.running import is_running
from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.locks import new_lock
from ...programs import CapturedFunction, OpenTrace, capture
from ..recordings.dispatch import record
from ..recordings.effects import Effects, tensors_among
from .keys import key_of
from .program_recording import CompiledVJP, ProgramRecording, run
from .varying_sizes import FirstSizes, VaryingSizes, split_first_sizes

MAX_PROGRAMS_PER_FUNCTION = 64
"""The most programs of a function; the one not used for longest is dropped."""

MAX_COUNTED = 4096
"""The most kinds of calls that are counted before there is a program."""

MAX_PASSING_ERRORS = 8
"""Errors of a function, which may pass, before it is left to itself."""

THESE_SIZES = "value of these sizes"
"""A kind of program that serves no other number of samples."""

Flat = Callable[[list[Any]], tuple[Sequence[Any], Any]]
"""Function from leaves to leaves, and to the nesting of these."""


class CaptureRefusal(NamedTuple):
    """The reason why there is no program."""

    why: str
    passes: bool = False
    """True if the next call of the kind tries again."""

    def is_stale(self) -> bool:
        return self.passes


class CompiledFunction(NamedTuple):
    """The program of a function's value."""

    captured: CapturedFunction
    structure: Any

    def is_stale(self) -> bool:
        """Tell whether it was captured with tensors that have been replaced since."""
        return self.captured.is_stale()

    @property
    def entered(self) -> Any:
        """Its machine code, as :attr:`.Program.entered`."""
        return self.captured.program.entered

    @property
    def most(self) -> int:
        """The most samples that it serves, if it serves any number."""
        samples = self.captured.program.samples
        return samples.most if samples is not None else 0

    def for_any_size(
        self, size: int, other: CompiledFunction, other_size: int, max_samples: int
    ) -> CompiledFunction | None:
        """Do as :meth:`.CompiledVJP.for_any_size`; off the graph alone."""
        if self.structure != other.structure:
            return None
        counts = other_size, max_samples
        captured = self.captured.for_any_size(size, other.captured, *counts)
        return captured and self._replace(captured=captured)


class _FlatOutputs:
    """A function without the structure of its results, which is that of the first call.

    Args:
        fn: the function.
    """

    structure: Any = None

    def __init__(self, fn: Flat) -> None:
        self._fn, self._is_changing = fn, False
        self._constants: dict[int, str] | None = None

    def __call__(self, leaves: list[Any]) -> Sequence[Any]:
        outputs, structure = self._fn(leaves)
        constants = {
            i: repr(x) for i, x in enumerate(outputs) if type(x) in _COMPARABLE
        }
        if self._constants is None:
            self.structure, self._constants = structure, constants
        self._is_changing |= not self._constants.items() <= constants.items()
        return outputs

    def check_constants(self) -> None:
        """Check that results that are no tensors were the same at each call.

        Raises:
            CaptureError: they were not.
        """
        if self._is_changing:
            raise CaptureError(
                "a result that is no tensor differs between two calls: it depends on "
                "something that no operator shows, such as the type of a number that "
                "changes from call to call; give that as a static argument"
            )


_COMPARABLE = frozenset({bool, int, float, complex, str, bytes})
"""Types of results that are compared, where they are no tensors."""


class ProgramCache:
    """Programs of a function of a list of leaves, made at the first call of a kind.

    Args:
        fn: the function.
        effects: what is known of it.
        fixed: how many of the leaves, the first ones, are always of one kind.
        patience: how many calls of a kind come before there is a program.
        most: up to how many samples a program may serve calls with more or fewer than
            those it was captured for, since fn does the same for all of these.
        tries: how many errors of fn itself do not count, since they may pass.
        empty: whether it makes programs for tensors without elements, too, which gain
            nothing by one but derivatives.
        note: is called with this cache, fn, and leaves for which fn was captured.
        once: whether fn is called once for each program, and not compared with it on
            other values.

    Attributes:
        stored: how many programs and refusals were made.
    """

    def __init__(
        self,
        fn: Flat,
        effects: Effects | None = None,
        fixed: int = 0,
        patience: int = 0,
        most: int = 0,
        tries: float = MAX_PASSING_ERRORS,
        empty: bool = False,
        note: Callable[[ProgramCache, Flat, Sequence[Any]], None] | None = None,
        once: bool = False,
    ) -> None:
        self._note, self.once = note, once
        self._most, self._tries, self._empty = most, tries, empty
        self._last_sizes: dict[Any, tuple[FirstSizes, Any]] = {}
        self._any_size_programs: dict[Any, tuple[VaryingSizes, Any]] = {}
        self._fn, self._fixed, self._patience = fn, fixed, patience
        self._calls: Counter[Any] = Counter()
        self._effects = effects
        self._entries: OrderedDict[Any, Any] = OrderedDict()
        self.stored = 0
        self._lock = new_lock()

    def record(
        self, leaves: Sequence[Any], key: Any = None
    ) -> tuple[Sequence[Any], Any, ProgramRecording]:
        """Run the forward program; return outputs, structure and recording.

        The recording runs the backward pass; see :func:`..recordings.dispatch.record`.

        Raises:
            CaptureError: there is no program.
        """
        compiled: CompiledVJP = self.get_or_compile(
            "vjp", leaves, self.compile_vjp, key
        )
        tensors = tensors_among(leaves)
        results = run(compiled.forward_backward.forward, tensors, trusted=True)
        recording = self.recording(compiled, leaves, tensors, results)
        return recording.outputs, compiled.structure, recording

    def recording(
        self,
        compiled: CompiledVJP,
        leaves: Sequence[Any],
        tensors: Sequence[Tensor],
        results: list[Tensor],
    ) -> ProgramRecording:
        """Return the recording of a call from its forward program's results."""
        count = compiled.forward_backward.count
        outputs, residuals = compiled.captured.filled(results[:count]), results[count:]
        return ProgramRecording(
            self.call_fn, leaves, tensors, outputs, compiled, residuals
        )

    def get_or_compile(
        self,
        kind: str,
        leaves: Sequence[Any],
        compile_leaves: Callable[[Sequence[Any]], Any],
        key: Any = None,
    ) -> Any:
        """Return the entry for leaves of this kind; compile it at the first call.

        Raises:
            CaptureError: it could not be compiled.
        """
        try:
            key_leaves = leaves[self._fixed :] if self._fixed else leaves
            key = (kind, key, key_of(key_leaves))
            entry = self._entries.get(key)
        except TypeError as error:
            unhashable = "a NumPy array" if _has_array(key_leaves) else str(error)
            raise CaptureError(
                f"an argument can't be part of the cache key ({unhashable}); give a "
                "tensor, paddle.to_tensor(x), or an object that is hashable"
            ) from None
        if entry is None or entry.is_stale():
            entry = self._compile(key, leaves, compile_leaves)
        elif len(self._entries) > MAX_PROGRAMS_PER_FUNCTION // 2:
            with self._lock:
                if key in self._entries:
                    self._entries.move_to_end(key)
        if isinstance(entry, CaptureRefusal):
            raise CaptureError(entry.why)
        return entry

    def _compile(
        self,
        key: Any,
        leaves: Sequence[Any],
        compile_leaves: Callable[[Sequence[Any]], Any],
    ) -> Any:
        entries = self._entries
        may_serve = self._most and key[0] != THESE_SIZES
        first_sizes, size_free_key = (
            split_first_sizes(leaves[self._fixed :]) if may_serve else ((), ())
        )
        size_free_key = key[:2], size_free_key
        with self._lock:
            any_size = self._any_size_program(size_free_key, first_sizes)
            if any_size is not None:
                return self._store(key, any_size)
            if self._patience and key not in entries:
                self._calls[key] += 1
                if self._calls[key] <= self._patience:
                    if len(self._calls) > MAX_COUNTED:
                        self._calls.clear()
                    raise CaptureError(
                        "calls of this kind are too few yet to be worth a program; "
                        "jit=True makes one at the first"
                    )
            result = entries.get(key)
            if result is None or result.is_stale():
                try:
                    result = self._store(key, compile_leaves(leaves))
                except CaptureError as error:
                    retry = error.raised and self._tries > 0
                    self._tries -= error.raised
                    result = self._store(key, CaptureRefusal(str(error), retry))
                    if error.raised:
                        raise  # the first time with its cause, which is not kept
                if first_sizes and not isinstance(result, CaptureRefusal):
                    self._note_any_size(size_free_key, first_sizes, result)
        return result

    def _store(self, key: Any, result: Any) -> Any:
        self._entries[key] = result
        self.stored += 1
        while len(self._entries) > MAX_PROGRAMS_PER_FUNCTION:
            self._entries.popitem(last=False)
        return result

    def _any_size_program(self, size_free_key: Any, first_sizes: FirstSizes) -> Any:
        """Return a program for any number of samples, if there is one."""
        varying, program = self._any_size_programs.get(size_free_key, (None, None))
        if varying is None or program is None or program.is_stale():
            return None
        return program if 1 < varying.size(first_sizes) <= program.most else None

    def _note_any_size(
        self, size_free_key: Any, first_sizes: FirstSizes, result: Any
    ) -> None:
        """Store a program for any number of samples, if two sizes agree on one."""
        other_first_sizes, other = self._last_sizes.get(
            size_free_key, (first_sizes, None)
        )
        varying = VaryingSizes.between(first_sizes, other_first_sizes)
        size, other_size = varying.size(first_sizes), varying.size(other_first_sizes)
        if min(size, other_size) > 1 and max(size, other_size) <= self._most:
            pairs = (result, size, other, other_size), (other, other_size, result, size)
            for program, program_size, reference, reference_size in pairs:
                any_size = program.for_any_size(
                    program_size, reference, reference_size, self._most
                )
                if any_size is not None:
                    self._any_size_programs[size_free_key] = varying, any_size
                    replaced_keys = [
                        key for key, entry in self._entries.items() if entry is program
                    ]
                    self._entries.update(dict.fromkeys(replaced_keys, any_size))
                    break
        self._last_sizes[size_free_key] = first_sizes, result
        for cache in (self._last_sizes, self._any_size_programs):
            while len(cache) > MAX_PROGRAMS_PER_FUNCTION:
                cache.pop(next(iter(cache)))

    @property
    def entries(self) -> list[Any]:
        """The distinct cached entries, refusals included."""
        return [*{id(result): result for result in self._entries.values()}.values()]

    def call_fn(self, leaves: list[Any]) -> Sequence[Any]:
        """Run the function; return its results without their structure."""
        return self._fn(leaves)[0]

    def _capture(
        self,
        leaves: Sequence[Any],
        check: bool,
        open_traces: list[OpenTrace] | None = None,
    ) -> tuple[CapturedFunction, Any]:
        """Capture the function; return that, and the structure of its results."""
        if not (self._empty or all(t.size for t in tensors_among(leaves))):
            raise CaptureError("a tensor has no elements; such calls make no program")
        flat_outputs = _FlatOutputs(self._fn)
        captured = capture(
            flat_outputs, leaves, check=check, begun=open_traces, once=self.once
        )
        flat_outputs.check_constants()
        return captured, flat_outputs.structure

    def compile_value(
        self, leaves: Sequence[Any], open_traces: list[OpenTrace] | None = None
    ) -> CompiledFunction:
        """Return the program of the value.

        Args:
            open_traces: where to leave its trace, if fn is not called once more.
        """
        open_traces = open_traces if self.once else None
        result, structure = self._capture(leaves, not is_running(), open_traces)
        self._call_note(leaves)
        return CompiledFunction(result, structure)

    def compile_unchecked(
        self, leaves: Sequence[Any], open_traces: list[OpenTrace] | None = None
    ) -> CompiledFunction:
        """Return the program of the value, not compared with the function.

        Args:
            open_traces: where to leave its trace.
        """
        result, structure = self._capture(leaves, False, open_traces)
        self._call_note(leaves)
        return CompiledFunction(result, structure)

    def _call_note(self, leaves: Sequence[Any]) -> None:
        if self._note is not None:
            self._note(self, self._fn, leaves)

    def compile_vjp(self, leaves: Sequence[Any]) -> CompiledVJP:
        """Return the programs of the value and of its gradients."""
        with grad_mode(True):
            forward, structure = self._capture(
                [*map(_with_gradient_on, leaves)], check=False
            )
        cotangents = forward.example_cotangents()
        seeds = [*compress(forward.tensor_outputs, forward.requires)]
        count = len(leaves)

        def joint(all_inputs: list[Any]) -> list[Any]:
            values, recording = record(self.call_fn, all_inputs[:count], self._effects)
            output_cotangents: list[Any] = [None] * len(values)
            for index, cotangent in zip(seeds, all_inputs[count:], strict=True):
                output_cotangents[index] = cotangent
            grads = recording.gradients(output_cotangents)
            return [*values, *(grads[i] for i in recording.differentiable)]

        with grad_mode(True):
            joint_capture = capture(joint, [*leaves, *cotangents])
        grad_leaves = [i for i, leaf in enumerate(leaves) if is_differentiable(leaf)]
        return CompiledVJP(
            *joint_capture.split(len(forward.outputs), tensors_among(leaves)),
            structure,
            seeds,
            grad_leaves,
        )


def _has_array(leaves: Sequence[Any]) -> bool:
    return any(isinstance(leaf, np.ndarray) for leaf in leaves)


def _with_gradient_on(leaf: Any) -> Any:
    """Return a tensor on a leaf's memory that requires gradients if it can."""
    if not is_differentiable(leaf):
        return leaf
    result = leaf.detach()
    result.stop_gradient = False
    return result
