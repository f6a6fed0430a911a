"""Capturing a function as a program, and checking that it may be trusted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from sys import getrefcount
from typing import Any, NamedTuple

import numpy as np
import paddle
from paddle import Tensor

from ..paddle_side.autograd.grad_mode import grad_mode
from ..paddle_side.dtypes import casts_automatically
from ..paddle_side.flags import StopGradientFlags, flags_of
from ..paddle_side.interception import listening, stop_listening
from ..paddle_side.listener import local, programs_disabled
from ..paddle_side.process.garbage import collector_waits
from ..paddle_side.process.openmp import one_thread
from ..paddle_side.process.random_state import (
    drawing_from,
    generator_lock,
    note_drawing,
    random_state,
    restore_random_state,
)
from ..paddle_side.shared_memory import has_buffer
from ..paddle_side.watch import recordings, set_recordings
from . import switch
from .capture_error import CaptureError
from .captured import PLACE, CapturedFunction, kinds_of
from .comparison import ROUGH, RTOL, TIMES, ComparedResult, other_inputs, shaken
from .compiling.collapsing import collapsed
from .compiling.passes import program_of, simplify
from .compiling.program import Program
from .tracing.operations import Value
from .tracing.outside import outside
from .tracing.record import Tracer

_CONSTANT = (
    int,
    float,
    complex,
    str,
    bytes,
    bool,
    type(None),
    paddle.dtype,
    np.generic,
)
"""The types, besides tensors, that a function may return, the same at every call."""


class OpenTrace(NamedTuple):
    """A function that was recorded, and whose record may go on."""

    record: Tracer
    leaves: list[Any]
    outputs: list[Any]

    def without_made(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return those of the tensors that the function has not made.

        Leaves that it may have made are kept.
        """
        record = self.record
        return [t for t in tensors if not record.is_own(record.value_of(t))]


Further = Callable[[list[Any], list[Any]], Sequence[Any]]
"""A function of all leaves and of the results of another function.

That other function took the first of the leaves. This one returns further results.
"""


def capture(
    fn: Callable[[list[Any]], Sequence[Any]],
    leaves: Sequence[Any],
    check: bool = True,
    begun: list[OpenTrace] | None = None,
    further: Further | None = None,
    once: bool = False,
) -> CapturedFunction:
    """Capture ``fn(leaves)`` as a program of the tensors among the leaves.

    Args:
        fn: function of a list of leaves that returns a list.
        leaves: tensors, and other values, which become part of the program.
        check: whether to compare with the function at other values.
        once: whether to compare with the results of the recorded call, without a second
            call. This is not done where the function has made tensors that no operator
            shows, since the next call may make others.
        begun: a list that receives the record, or that holds the one record to go on
            with.
        further: what fn does after another function of the first of the leaves. That
            function is the one of ``begun``, if there is one.

    The generators are left as if no random numbers had been drawn.

    Raises:
        CaptureError: it is not a straight line of operators in the table.
    """
    if casts_automatically():
        raise CaptureError(
            "automatic casting is on, and a program has its dtypes; use it without "
            "paddle.amp.auto_cast"
        )
    before = getattr(local, "plain", False), recordings()
    note_drawing()  # perhaps, and before it does
    state, draws = random_state(), False
    if once:
        _holders_of_an_orphan()  # before another record is begun
    try:
        set_recordings([])
        with collector_waits():
            captured, attrs, given = _first_program(
                fn, leaves, state, begun, further, once
            )
            draws, flags = attrs.draws, attrs.flags.before
            try:
                must_check = check or attrs.must_check
                if must_check and once and not attrs.has_orphans:
                    _replay(captured.program, leaves, given)
                elif must_check:
                    # Two threads in paddle.grad crash.
                    with generator_lock() if attrs.takes_gradients else nullcontext():
                        del given  # and the memory
                        _check_program(captured.program, fn, leaves, attrs)
                flags = attrs.flags.after
            finally:
                attrs.flags.set(flags)
    finally:  # whatever an interrupt has left
        if draws:
            restore_random_state(state)
        local.plain = before[0]
        set_recordings(before[1])
    return captured


class CheckPlan(NamedTuple):
    """Settings for the comparison of a function with its program."""

    must_check: bool
    draws: bool
    takes_gradients: bool
    again: bool
    """Tells whether the function is recorded once more."""
    hides: bool
    """Tells whether Paddle's tape may not see all of the function.

    This holds for what runs for many samples, or is one operator that holds programs.
    """
    flags: StopGradientFlags
    """The flags of tensors where the function has set them. They are as before."""
    has_orphans: bool
    """Tells whether the function uses tensors that only this call knows."""
    above: Any
    """Memory above that of the record. The system takes it back from the top."""


def _first_program(
    fn: Callable[[list[Any]], Sequence[Any]],
    leaves: Sequence[Any],
    state: Any,
    begun: list[OpenTrace] | None,
    further: Further | None,
    once: bool,
) -> tuple[CapturedFunction, CheckPlan, list[Tensor]]:
    """Return a function as a program, not yet compared, and its result tensors.

    The tensors of its record are gone afterwards, unless another capture goes on with
    it. The comparison reuses their memory, since to touch new memory takes longer than
    most operators.

    Args:
        state: of the generators, which are put back.
    """
    if begun and further is not None:
        record, before_these, values = begun.pop()
        more = [*map(stand_in, leaves[len(before_these) :])]
        record.take(more)
        given = [*before_these, *more]

        def run(given: list[Any]) -> Sequence[Any]:
            return further(given, values)
    else:
        given, record = _begun(leaves)

        def run(given: list[Any]) -> Sequence[Any]:
            return fn(given)

    before = local.listener
    try:
        outputs = _recorded(record, run, given)
        ends = [record.value_of(out) for out in outputs if isinstance(out, Tensor)]
        record.check_constants()
        orphans = once and _fewest_holders(record, outputs) <= _holders_of_an_orphan()
        tensors = [out for out in outputs if isinstance(out, Tensor)]
        held = [t for t in given if isinstance(t, Tensor)]
        held += record.constants.values()
        held = [t for t in held if has_buffer(t)]
        shared = []
        for tensor in tensors:
            is_held = has_buffer(tensor)
            shared.append(is_held and any(map(tensor._is_shared_buffer_with, held)))
            held += [tensor] * is_held
        known = record.inputs, record.constants
        program = simplify(program_of(record.ops, *known, ends, shared=shared))
        if record.by_series:
            program = collapsed(program)
        captured = _captured(record, program, outputs, ends)
        if further is None and begun is not None and (once or not record.draws):
            begun.append(OpenTrace(record, given, outputs))
    finally:  # whatever an interrupt has left
        stop_listening(record, before)
        flags = flags_of(record.flags)
        flags.set(flags.before)
        if record.draws:
            restore_random_state(state)
    made = [v for op in record.ops for v in op.outputs]
    lost = record.writes and record.differentiates  # by the tape, perhaps
    twice = record.draws and record.differentiates  # a tape may draw so
    return (
        captured,
        CheckPlan(
            record.writes and not lost,
            record.draws,
            record.takes_gradients,
            lost or record.by_series or twice,
            record.by_samples or any(op.operator.opaque for op in program.ops),
            flags,
            orphans,
            np.empty(max((v.bytes for v in made), default=0), np.uint8),
        ),
        tensors,
    )


def _fewest_holders(record: Tracer, outputs: Sequence[Any]) -> float:
    """Count the references to constants, without these outputs; return the least."""
    constants = record.constants.values()
    counts = [getrefcount(t) - sum(out is t for out in outputs) for t in constants]
    return min(counts, default=math.inf)


@cache
def _holders_of_an_orphan() -> float:
    """Count the references to a tensor that only the function that made it knew."""
    given, record = _begun([paddle.ones([1])])
    before = local.listener
    try:
        outputs = _recorded(record, lambda x: [x[0] * paddle.to_tensor([1.0])], given)
        record.check_constants()
        return _fewest_holders(record, outputs)
    finally:
        stop_listening(record, before)


def _captured(
    record: Tracer, program: Program, outputs: Sequence[Any], ends: Sequence[Value]
) -> CapturedFunction:
    """Return what was seen of a function that gives these outputs.

    Raises:
        CaptureError: programs can't give these outputs.
    """
    for out in outputs:
        if not isinstance(out, (Tensor, *_CONSTANT)):
            raise CaptureError(
                f"it gives a {type(out).__name__}, which every call would have to make "
                "anew; give tensors and numbers alone"
            )
    reached, free = outside(record)
    made = frozenset(filter(record.is_own, program.constants))
    kept = tuple(t for v, t in program.constants.items() if v not in made)
    return CapturedFunction(
        program,
        [PLACE if isinstance(out, Tensor) else out for out in outputs],
        tuple(end in reached for end in ends),
        free,
        kept,
        kinds_of(kept),
        made,
        record.by_series,
    )


def _begun(leaves: Sequence[Any]) -> tuple[list[Any], Tracer]:
    """Return stand-ins for leaves, and a record of what is done to the tensors."""
    given = [*map(stand_in, leaves)]
    return given, Tracer([leaf for leaf in given if isinstance(leaf, Tensor)])


def _recorded(
    record: Tracer, fn: Callable[[list[Any]], Sequence[Any]], leaves: list[Any]
) -> list[Any]:
    """Return what the function gives while it is recorded.

    Raises:
        CaptureError: it is not a straight line of operators, or raised an error.
    """
    try:
        with listening(record) as heard:
            record.flags = heard.flags
            outputs = [*fn([*leaves])]
    except Exception as error:
        if record.failure is not None:
            raise record.failure from None
        if isinstance(error, CaptureError):  # of a function within
            raise
        raise CaptureError(
            f"it raised {type(error).__name__} while it was captured: {error}. "
            "Call it without jit to see where",
            raised=True,
        ) from error
    if record.failure is not None:
        raise record.failure
    return outputs


def stand_in(leaf: Any) -> Any:
    """Return a tensor like this one, whose flags the function may change."""
    if not isinstance(leaf, Tensor):
        return leaf
    result = leaf.detach()
    result.stop_gradient = leaf.stop_gradient
    return result


def _check_program(
    program: Program,
    fn: Callable[[list[Any]], Sequence[Any]],
    leaves: Any,
    how: CheckPlan,
) -> None:
    """Compare with the function at other values, and on a record where necessary.

    Raises:
        CaptureError: they differ.
    """
    try:
        _compare(program, fn, leaves, how.again)
    except CaptureError:
        if how.again or not how.hides:
            raise
        _compare(program, fn, leaves, True)


def _compare(
    program: Program,
    fn: Callable[[list[Any]], Sequence[Any]],
    leaves: Sequence[Any],
    again: bool,
) -> None:
    """Compare with the function at other values.

    Args:
        again: whether it is recorded once more. This also happens where it raises
            without a record: Paddle's own derivatives may be wrong, or missing, and
            Taylor series are taken on records alone.

    Raises:
        CaptureError: they differ.
    """
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    moved = other_inputs(program, tensors)
    others = iter(moved)
    other = [next(others) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    state = random_state() if program.draws else None
    # Several of Paddle's threads lose sums there.
    is_racy = any(op.operator.name == "index_put" for op in program.ops)
    alone = one_thread() if is_racy else nullcontext()
    results = None
    if not again:
        try:
            with drawing_from(state), programs_disabled(), alone:
                results = [*fn([*map(stand_in, other)])]
        except Exception:  # in a derivative, perhaps, that Paddle has not
            results = None
    # Paddle gives zeros for some gradients that no rule gives.
    count = sum(isinstance(out, Tensor) for out in results or ())
    if results is None or count != len(program.outputs):
        given, record = _begun(other)
        record.place = ""  # of which nobody asks
        with drawing_from(state):
            results = _recorded(record, fn, given)
        del given, record  # and the memory
    native = [out for out in results if isinstance(out, Tensor)]
    _equal(program, moved, native, state, " on other numbers")


def _replay(program: Program, leaves: Sequence[Any], native: list[Tensor]) -> None:
    """Compare with the results of the recorded call.

    Raises:
        CaptureError: they differ.
    """
    state = random_state() if program.draws else None
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    _equal(program, tensors, native, state)


def _equal(
    program: Program,
    tensors: Sequence[Tensor],
    native: list[Tensor],
    state: Any,
    where: str = "",
) -> None:
    """Compare a program's results with the function's.

    Args:
        state: the random state at the start of the function.
        where: names the inputs, for error messages.

    Raises:
        CaptureError: they differ.
    """
    try:
        with drawing_from(state), grad_mode(False):
            results = program(*tensors)
    except Exception as error:  # no kernel for the dtype, perhaps
        raise CaptureError(
            f"its program raised {type(error).__name__}, and the function did not: "
            f"{error}. Call it without jit"
        ) from error
    if len(results) != len(native):
        raise CaptureError(
            f"it gives {len(native)} tensors{where}, and not {len(results)}; "
            "use paddle.where for what depends on values"
        )
    expected = [*map(ComparedResult, native)]
    largest = max((numbers.largest for numbers in expected), default=0.0)
    rtol, terms = RTOL, 1
    if not switch.CALLS_BEFORE_CODE:
        # Machine code adds in another order, and rounds float32 otherwise, which a
        # result in float64 shows.
        made = [v for op in program.ops for v in op.outputs]
        rtol = ROUGH if "float32" in {v.dtype for v in made} else RTOL
        terms = max([1, *(math.prod(v.shape) for v in made)])
    spread: list[Any] = []
    for i, (a, b) in enumerate(zip(results, native, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise CaptureError(
                f"output {i} has shape {list(b.shape)}{where}, and not "
                f"{list(a.shape)}; use paddle.where for what depends on values"
            )
        if ComparedResult(a).is_close(expected[i], largest, rtol, terms):
            continue
        spread = spread or _rounding_spread(program, tensors, results, state)
        if not ComparedResult(a).is_within(expected[i], spread[i]):
            raise CaptureError(
                f"output {i} of the program differs from the function's{where}: it "
                "depends on something that no operator shows, such as a value "
                "computed outside of Paddle; give that as an argument"
            )


def _rounding_spread(
    program: Program, tensors: Sequence[Tensor], results: Sequence[Tensor], state: Any
) -> list[Any]:
    """Return how far rounding of the inputs moves each entry of a program's results.

    An optimizer's step of the bias before a normalization has no digits of its own: its
    gradient is zero but for rounding, and Adam divides it by its own size.
    """
    largest = [np.zeros(a.shape) for a in results]
    for k in range(TIMES):
        with drawing_from(state), grad_mode(False):
            moved = program(*[shaken(x, k) for x in tensors])
        for i, (a, b) in enumerate(zip(results, moved, strict=True)):
            if a.shape == b.shape:
                largest[i] = np.fmax(
                    largest[i], ComparedResult(a).distance(ComparedResult(b))
                )
    return largest
