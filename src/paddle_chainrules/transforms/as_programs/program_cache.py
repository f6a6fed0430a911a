"""The programs of one function, by the kinds of its arguments."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import Tensor

from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.autograd.running import is_running
from ...paddle_side.devices import are_on_cpu
from ...paddle_side.dtypes import is_differentiable
from ...paddle_side.locks import new_lock
from ...paddle_side.traced_numbers import Formula
from ...programs.capture import OpenTrace, capture
from ...programs.capture_error import CaptureError
from ...programs.captured import PLACE, CapturedFunction
from ...programs.codegen.fusion import may_fuse_producer
from ...programs.compiling.common_subkernels import share_subkernels
from ...programs.compiling.rematerialize import recompute_cheap_residuals
from ...programs.compiling.residuals import pack_small_residuals
from ...programs.compiling.split import ForwardBackward, split
from ...programs.sizes.any_size import infer_samples
from ...programs.switch import loops_are_on
from ...programs.tracing.operations import Value
from ..tape.dispatch import record
from ..tape.effects import Effects, tensors_among
from .keys import key_of
from .program_recording import CompiledVJP, ProgramRecording, run
from .varying_sizes import Firsts, VaryingSizes, apart

BOUND = 64
"""The most programs of a function; the one not used for longest is dropped."""

MAX_COUNTED = 4096
"""The most kinds of calls that are counted before there is a program."""

TRIES = 8
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
    def most(self) -> int:
        """The most samples that it serves, if it serves any number."""
        samples = self.captured.program.samples
        return samples.most if samples is not None else 0

    def for_any_size(
        self, size: int, other: CompiledFunction, its_size: int, most: int
    ) -> CompiledFunction | None:
        """Do as :meth:`.CompiledVJP.for_any_size`; off the graph alone."""
        own, its = self.captured, other.captured
        most = own.max_samples_at_once(most, size)
        if True in own.requires or self.structure != other.structure:
            return None
        for one, another in (
            (own, its),
            (own.with_expanded_scalars(), its.with_expanded_scalars()),
        ):
            if one.differs_in_program_only(another):
                sizes = size, another.program, its_size, most
                samples = infer_samples(one.program, *sizes)
                if samples is not None:
                    program = replace(one.program, samples=samples)
                    return self._replace(captured=one._replace(program=program))
        return None


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
        note: is called with leaves of a new kind, for which fn is captured.
        once: whether fn is called once for each program, and not compared with it on
            other values.

    Attributes:
        divisions: quotients and powers of numbers among the leaves.
    """

    divisions: Sequence[Formula] = ()

    def __init__(
        self,
        fn: Flat,
        effects: Effects | None = None,
        fixed: int = 0,
        patience: int = 0,
        most: int = 0,
        tries: float = TRIES,
        empty: bool = False,
        note: Callable[[Sequence[Any]], None] | None = None,
        once: bool = False,
    ) -> None:
        self._note, self.once = note, once
        self._most, self._tries, self._empty = most, tries, empty
        self._sizes: dict[Any, tuple[Firsts, Any]] = {}
        self._of_any: dict[Any, tuple[VaryingSizes, Any]] = {}
        self._fn, self._fixed, self._patience = fn, fixed, patience
        self._calls: Counter[Any] = Counter()
        self._effects = effects
        self._made: OrderedDict[Any, Any] = OrderedDict()
        self._lock = new_lock()

    def record(
        self, leaves: Sequence[Any], key: Any = None
    ) -> tuple[Sequence[Any], Any, ProgramRecording]:
        """Record as :func:`.recording.record` does.

        Return the outputs, their structure, and the recording for the backward pass.

        Raises:
            CaptureError: there is no program.
        """
        way: CompiledVJP = self.found("vjp", leaves, self.way_of, key)
        tensors = tensors_among(leaves)
        made = run(way.forward_backward.forward, tensors, trusts=True)
        recording = self.recording(way, leaves, tensors, made)
        return recording.outputs, way.structure, recording

    def recording(
        self,
        way: CompiledVJP,
        leaves: Sequence[Any],
        tensors: Sequence[Tensor],
        made: list[Tensor],
    ) -> ProgramRecording:
        """Return the recording of a call whose program gave this."""
        count = way.forward_backward.count
        outputs, saved = way.captured.filled(made[:count]), made[count:]
        return ProgramRecording(self.plain, leaves, tensors, outputs, way, saved)

    def found(
        self,
        kind: str,
        leaves: Sequence[Any],
        make: Callable[[Sequence[Any]], Any],
        key: Any = None,
    ) -> Any:
        """Return what is made once for each kind of leaves.

        Raises:
            CaptureError: it could not be made.
        """
        try:
            varied = leaves[self._fixed :] if self._fixed else leaves
            key = (kind, key, key_of(varied))
            found = self._made.get(key)
        except TypeError as error:
            given = "a NumPy array" if _has_array(varied) else str(error)
            raise CaptureError(
                f"an argument can't be part of the cache key ({given}); give a tensor, "
                "paddle.to_tensor(x), or an object that is hashable"
            ) from None
        if found is None or found.is_stale():
            found = self._make(key, leaves, make)
        elif len(self._made) > BOUND // 2:
            with self._lock:
                if key in self._made:
                    self._made.move_to_end(key)
        if isinstance(found, CaptureRefusal):
            raise CaptureError(found.why)
        return found

    def _make(
        self, key: Any, leaves: Sequence[Any], make: Callable[[Sequence[Any]], Any]
    ) -> Any:
        made = self._made
        may_serve = self._most and key[0] != THESE_SIZES
        firsts, like = apart(leaves[self._fixed :]) if may_serve else ((), ())
        like = key[:2], like
        with self._lock:
            served = self._served(like, firsts)
            if served is not None:
                return self._keep(key, served)
            if self._patience and key not in made:
                self._calls[key] += 1
                if self._calls[key] <= self._patience:
                    if len(self._calls) > MAX_COUNTED:
                        self._calls.clear()
                    raise CaptureError(
                        "calls of this kind are too few yet to be worth a program; "
                        "jit=True makes one at the first"
                    )
            result = made.get(key)
            if result is None or result.is_stale():
                try:
                    result = self._keep(key, make(leaves))
                except CaptureError as error:
                    again = error.raised and self._tries > 0
                    self._tries -= error.raised
                    result = self._keep(key, CaptureRefusal(str(error), again))
                    if error.raised:
                        raise  # the first time with its cause, which is not kept
                if firsts and not isinstance(result, CaptureRefusal):
                    self._compare(like, firsts, result)
        return result

    def _keep(self, key: Any, result: Any) -> Any:
        self._made[key] = result
        while len(self._made) > BOUND:
            self._made.popitem(last=False)
        return result

    def _served(self, like: Any, firsts: Firsts) -> Any:
        """Return a program for any number of samples, if there is one."""
        varying, served = self._of_any.get(like, (None, None))
        if varying is None or served is None or served.is_stale():
            return None
        return served if 1 < varying.size(firsts) <= served.most else None

    def _compare(self, like: Any, firsts: Firsts, result: Any) -> None:
        """Note a program that serves any number of samples."""
        before, other = self._sizes.get(like, (firsts, None))
        varying = VaryingSizes.between(firsts, before)
        size, its_size = varying.size(firsts), varying.size(before)
        if min(size, its_size) > 1 and max(size, its_size) <= self._most:
            pairs = (result, size, other, its_size), (other, its_size, result, size)
            for one, own, another, its in pairs:
                served = one.for_any_size(own, another, its, self._most)
                if served is not None:
                    self._of_any[like] = varying, served
                    same = [key for key, made in self._made.items() if made is one]
                    self._made.update(dict.fromkeys(same, served))
                    break
        self._sizes[like] = firsts, result
        for kept in (self._sizes, self._of_any):
            while len(kept) > BOUND:
                kept.pop(next(iter(kept)))

    @property
    def made(self) -> list[Any]:
        """All that was made, refusals too."""
        return [*{id(result): result for result in self._made.values()}.values()]

    def plain(self, leaves: list[Any]) -> Sequence[Any]:
        """Run the function; return its results without their structure."""
        return self._fn(leaves)[0]

    def _captured(
        self, leaves: Sequence[Any], check: bool, begun: list[OpenTrace] | None = None
    ) -> tuple[CapturedFunction, Any]:
        """Capture the function; return that, and the structure of its results."""
        if not (self._empty or all(t.size for t in tensors_among(leaves))):
            raise CaptureError("a tensor has no elements; such calls make no program")
        structures: list[Any] = []

        def plain(leaves: list[Any]) -> Sequence[Any]:
            outputs, structure = self._fn(leaves)
            structures.append(structure)
            return outputs

        captured = capture(plain, leaves, check=check, begun=begun, once=self.once)
        return captured, structures[0]

    def value_of(
        self, leaves: Sequence[Any], begun: list[OpenTrace] | None = None
    ) -> CompiledFunction:
        """Return the program of the value.

        Args:
            begun: where to leave its record, if fn is not called once more.
        """
        begun = begun if self.once else None
        result, structure = self._captured(leaves, not is_running(), begun)
        self._noted(leaves)
        return CompiledFunction(result, structure)

    def seen_of(
        self, leaves: Sequence[Any], begun: list[OpenTrace] | None = None
    ) -> CompiledFunction:
        """Return the program of the value, not compared with the function.

        Args:
            begun: where to leave its record.
        """
        result, structure = self._captured(leaves, False, begun)
        self._noted(leaves)
        return CompiledFunction(result, structure)

    def _noted(self, leaves: Sequence[Any]) -> None:
        if self._note is not None:
            self._note(leaves)

    def way_of(self, leaves: Sequence[Any]) -> CompiledVJP:
        """Return the programs of the value and of its gradients."""
        with grad_mode(True):
            first, structure = self._captured([*map(_required, leaves)], check=False)
        made = [i for i, part in enumerate(first.outputs) if part is PLACE]
        pairs = [
            (place, value)
            for place, value, on in zip(
                made, first.program.outputs, first.requires, strict=True
            )
            if on
        ]
        cotangents = [seed_like(value) for _, value in pairs]
        seeds, count = [i for i, _ in pairs], len(leaves)

        def joint(every: list[Any]) -> list[Any]:
            values, recording = record(self.plain, every[:count], self._effects)
            given: list[Any] = [None] * len(values)
            for place, cotangent in zip(seeds, every[count:], strict=True):
                given[place] = cotangent
            grads = recording.gradients(given)
            return [*values, *(grads[i] for i in recording.differentiable)]

        with grad_mode(True):
            whole = capture(joint, [*leaves, *cotangents])
        places = [i for i, leaf in enumerate(leaves) if is_differentiable(leaf)]
        return CompiledVJP(
            *cut(whole, leaves, len(first.outputs)), structure, seeds, places
        )


def cut(
    whole: CapturedFunction, leaves: Sequence[Any], outputs: int
) -> tuple[ForwardBackward, CapturedFunction]:
    """Cut a program of values and gradients in two; return it and the values' facts."""
    head, tail = whole.outputs[:outputs], whole.outputs[outputs:]
    number = sum(part is PLACE for part in head)
    ends = iter(whole.program.outputs[number:])
    grads = [next(ends) if part is PLACE else None for part in tail]
    tensors = tensors_among(leaves)
    inputs = len(tensors)
    program = replace(whole.program, ops=tuple(share_subkernels(whole.program.ops)))
    forward_backward = split(program, inputs, number, grads)
    if loops_are_on() and are_on_cpu(tensors):
        forward_backward = pack_small_residuals(
            recompute_cheap_residuals(forward_backward, may_fuse_producer)
        )
    return forward_backward, whole._replace(outputs=head)


def _has_array(leaves: Sequence[Any]) -> bool:
    return any(isinstance(leaf, np.ndarray) for leaf in leaves)


def _required(leaf: Any) -> Any:
    """Return a tensor on a leaf's memory that requires gradients if it can."""
    if not is_differentiable(leaf):
        return leaf
    result = leaf.detach()
    result.stop_gradient = False
    return result


def seed_like(value: Value) -> Tensor:
    """Return a cotangent of a value's shape and dtype, with distinct values."""
    with grad_mode(False):
        ramp = paddle.linspace(0.5, 1.5, math.prod(value.shape), "float32")
        return ramp.reshape(value.shape).astype(getattr(paddle, value.dtype))
