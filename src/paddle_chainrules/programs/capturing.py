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

from .. import settings
from ..errors import CaptureError
from ..paddle_side.autograd.grad_mode import grad_mode
from ..paddle_side.compared_results import RTOL, ComparedResult
from ..paddle_side.dtypes import casts_automatically
from ..paddle_side.flags import StopGradientFlags, flags_of, stand_in
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
from .captured import PLACE, CapturedFunction, signatures_of
from .comparison import ROUGH, ROUNDING_SAMPLES, other_inputs, perturb_by_rounding
from .compiling.collapsing import collapse_sums
from .compiling.passes import program_of, simplify
from .compiling.program import Program
from .tracing.operations import Value
from .tracing.outside import outside_dependencies
from .tracing.record import Tracer

_CONSTANT_TYPES = (
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
    """A function that was traced, and whose trace may be continued."""

    tracer: Tracer
    leaves: list[Any]
    outputs: list[Any]

    def tensors_from_outside(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the tensors that the function has not created.

        Leaves that it may have created are among them.
        """
        tracer = self.tracer
        return [t for t in tensors if not tracer.is_own(tracer.value_of(t))]


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
            call. This is not done where the function has created tensors that no
            operator shows, since the next call may create others.
        begun: a list that receives the open trace, or that holds the one to continue.
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
    outer_state = getattr(local, "plain", False), recordings()
    note_drawing()  # perhaps, and before it does
    state, draws = random_state(), False
    if once:
        _orphan_reference_count()  # before another trace begins
    try:
        set_recordings([])
        with collector_waits():
            captured, plan, stand_ins = _trace_program(
                fn, leaves, state, begun, further, once
            )
            draws, flags = plan.draws, plan.flags.before
            try:
                must_check = check or plan.must_check
                if must_check and once and not plan.has_orphans:
                    _compare_with_traced_call(captured.program, leaves, stand_ins)
                elif must_check:
                    # Two threads in paddle.grad crash.
                    with generator_lock() if plan.takes_gradients else nullcontext():
                        del stand_ins  # and the memory
                        _check_program(captured.program, fn, leaves, plan)
                flags = plan.flags.after
            finally:
                plan.flags.set(flags)
    finally:  # whatever an interrupt has left
        if draws:
            restore_random_state(state)
        local.plain = outer_state[0]
        set_recordings(outer_state[1])
    return captured


class CheckPlan(NamedTuple):
    """Settings for the comparison of a function with its program."""

    must_check: bool
    draws: bool
    takes_gradients: bool
    retrace: bool
    """Tells whether the function is traced once more."""
    hides_operators: bool
    """Tells whether Paddle's tape may not see all of the function.

    This holds for what runs for many samples, or is one operator that holds programs.
    """
    flags: StopGradientFlags
    """The flags of tensors where the function has set them. They are as before."""
    has_orphans: bool
    """Tells whether the function uses tensors that only this call knows."""
    spare_memory: Any
    """Memory above that of the trace. The system takes it back from the top."""


def _trace_program(
    fn: Callable[[list[Any]], Sequence[Any]],
    leaves: Sequence[Any],
    state: Any,
    begun: list[OpenTrace] | None,
    further: Further | None,
    once: bool,
) -> tuple[CapturedFunction, CheckPlan, list[Tensor]]:
    """Trace a function as a program; return it, how to check it, and the results.

    The tensors of its trace are freed afterwards, unless another capture continues it.
    The comparison reuses their memory, since to touch new memory takes longer than most
    operators.

    Args:
        state: of the generators, which are restored.
    """
    if begun and further is not None:
        tracer, earlier_stand_ins, earlier_outputs = begun.pop()
        new_stand_ins = [*map(stand_in, leaves[len(earlier_stand_ins) :])]
        tracer.add_inputs(new_stand_ins)
        stand_ins = [*earlier_stand_ins, *new_stand_ins]

        def run(stand_ins: list[Any]) -> Sequence[Any]:
            return further(stand_ins, earlier_outputs)
    else:
        stand_ins, tracer = _begin_trace(leaves)

        def run(stand_ins: list[Any]) -> Sequence[Any]:
            return fn(stand_ins)

    outer_listener = local.listener
    try:
        outputs = _run_traced(tracer, run, stand_ins)
        output_values = [
            tracer.value_of(out) for out in outputs if isinstance(out, Tensor)
        ]
        tracer.check_constants()
        has_orphans = (
            once and _min_reference_count(tracer, outputs) <= _orphan_reference_count()
        )
        tensors = [out for out in outputs if isinstance(out, Tensor)]
        outside_tensors = [t for t in stand_ins if isinstance(t, Tensor)]
        outside_tensors += tracer.constants.values()
        outside_tensors = [t for t in outside_tensors if has_buffer(t)]
        shared = []
        for tensor in tensors:
            has_memory = has_buffer(tensor)
            shared.append(
                has_memory and any(map(tensor._is_shared_buffer_with, outside_tensors))
            )
            outside_tensors += [tensor] * has_memory
        live_ins = tracer.inputs, tracer.constants
        program = simplify(
            program_of(tracer.ops, *live_ins, output_values, shared=shared)
        )
        if tracer.by_series:
            program = collapse_sums(program)
        captured = _captured_function(tracer, program, outputs, output_values)
        if further is None and begun is not None and (once or not tracer.draws):
            begun.append(OpenTrace(tracer, stand_ins, outputs))
    finally:  # whatever an interrupt has left
        stop_listening(tracer, outer_listener)
        flags = flags_of(tracer.flags)
        flags.set(flags.before)
        if tracer.draws:
            restore_random_state(state)
    computed = [v for op in tracer.ops for v in op.outputs]
    may_lose_writes = tracer.writes and tracer.differentiates  # by the tape, perhaps
    may_draw_twice = tracer.draws and tracer.differentiates  # a tape may draw so
    return (
        captured,
        CheckPlan(
            tracer.writes and not may_lose_writes,
            tracer.draws,
            tracer.takes_gradients,
            may_lose_writes or tracer.by_series or may_draw_twice,
            tracer.by_samples or any(op.operator.opaque for op in program.ops),
            flags,
            has_orphans,
            np.empty(max((v.bytes for v in computed), default=0), np.uint8),
        ),
        tensors,
    )


def _min_reference_count(tracer: Tracer, outputs: Sequence[Any]) -> float:
    """Return the least number of references to a constant, besides the outputs."""
    constants = tracer.constants.values()
    counts = [getrefcount(t) - sum(out is t for out in outputs) for t in constants]
    return min(counts, default=math.inf)


@cache
def _orphan_reference_count() -> float:
    """Count the references to a tensor that only the function that created it knew."""
    stand_ins, tracer = _begin_trace([paddle.ones([1])])
    outer_listener = local.listener
    try:
        outputs = _run_traced(
            tracer, lambda x: [x[0] * paddle.to_tensor([1.0])], stand_ins
        )
        tracer.check_constants()
        return _min_reference_count(tracer, outputs)
    finally:
        stop_listening(tracer, outer_listener)


def _captured_function(
    tracer: Tracer,
    program: Program,
    outputs: Sequence[Any],
    output_values: Sequence[Value],
) -> CapturedFunction:
    """Return the captured function of a trace and its program.

    Raises:
        CaptureError: programs can't return these outputs.
    """
    for out in outputs:
        if not isinstance(out, (Tensor, *_CONSTANT_TYPES)):
            raise CaptureError(
                f"it gives a {type(out).__name__}, which every call would have to make "
                "anew; give tensors and numbers alone"
            )
    dependent, free_variables = outside_dependencies(tracer)
    own_constants = frozenset(filter(tracer.is_own, program.constants))
    outside_constants = tuple(
        t for v, t in program.constants.items() if v not in own_constants
    )
    return CapturedFunction(
        program,
        [PLACE if isinstance(out, Tensor) else out for out in outputs],
        tuple(end in dependent for end in output_values),
        free_variables,
        outside_constants,
        signatures_of(outside_constants),
        own_constants,
        tracer.by_series,
    )


def _begin_trace(leaves: Sequence[Any]) -> tuple[list[Any], Tracer]:
    """Return stand-ins for leaves, and a tracer with the tensors among them."""
    stand_ins = [*map(stand_in, leaves)]
    return stand_ins, Tracer([leaf for leaf in stand_ins if isinstance(leaf, Tensor)])


def _run_traced(
    tracer: Tracer, fn: Callable[[list[Any]], Sequence[Any]], leaves: list[Any]
) -> list[Any]:
    """Run a function while the tracer listens, and return its outputs.

    Raises:
        CaptureError: it is not a straight line of operators, or raised an error.
    """
    try:
        with listening(tracer) as heard:
            tracer.flags = heard.flags
            outputs = [*fn([*leaves])]
    except Exception as error:
        if tracer.failure is not None:
            raise tracer.failure from None
        if isinstance(error, CaptureError):  # of a function within
            raise
        raise CaptureError(
            f"it raised {type(error).__name__} while it was captured: {error}. "
            "Call it without jit to see where",
            raised=True,
        ) from error
    if tracer.failure is not None:
        raise tracer.failure
    return outputs


def _check_program(
    program: Program,
    fn: Callable[[list[Any]], Sequence[Any]],
    leaves: Any,
    plan: CheckPlan,
) -> None:
    """Compare with the function at other values, traced again where necessary.

    Raises:
        CaptureError: they differ.
    """
    try:
        _compare_at_other_values(program, fn, leaves, plan.retrace)
    except CaptureError:
        if plan.retrace or not plan.hides_operators:
            raise
        _compare_at_other_values(program, fn, leaves, True)


def _compare_at_other_values(
    program: Program,
    fn: Callable[[list[Any]], Sequence[Any]],
    leaves: Sequence[Any],
    retrace: bool,
) -> None:
    """Compare with the function at other values.

    Args:
        retrace: whether it is traced once more. This also happens where it raises
            without a tracer: Paddle's own derivatives may be wrong, or missing, and
            Taylor series are taken on traces alone.

    Raises:
        CaptureError: they differ.
    """
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    other_tensors = other_inputs(program, tensors)
    remaining = iter(other_tensors)
    other_leaves = [
        next(remaining) if isinstance(leaf, Tensor) else leaf for leaf in leaves
    ]
    state = random_state() if program.draws else None
    # Several of Paddle's threads lose sums in index_put.
    is_racy = any(op.operator.name == "index_put" for op in program.ops)
    threading = one_thread() if is_racy else nullcontext()
    results = None
    if not retrace:
        try:
            with drawing_from(state), programs_disabled(), threading:
                results = [*fn([*map(stand_in, other_leaves)])]
        except Exception:  # in a derivative, perhaps, that Paddle has not
            results = None
    # Paddle gives zeros for some gradients that no rule gives.
    result_count = sum(isinstance(out, Tensor) for out in results or ())
    if results is None or result_count != len(program.outputs):
        stand_ins, tracer = _begin_trace(other_leaves)
        tracer.location = ""  # of which nobody asks
        with drawing_from(state):
            results = _run_traced(tracer, fn, stand_ins)
        del stand_ins, tracer  # and the memory
    native = [out for out in results if isinstance(out, Tensor)]
    _check_results(program, other_tensors, native, state, " on other numbers")


def _compare_with_traced_call(
    program: Program, leaves: Sequence[Any], native: list[Tensor]
) -> None:
    """Compare with the results of the traced call.

    Raises:
        CaptureError: they differ.
    """
    state = random_state() if program.draws else None
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
    _check_results(program, tensors, native, state)


def _check_results(
    program: Program,
    tensors: Sequence[Tensor],
    native: list[Tensor],
    state: Any,
    suffix: str = "",
) -> None:
    """Compare a program's results with the function's.

    Args:
        state: the random state at the start of the function.
        suffix: names the inputs in error messages.

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
            f"it gives {len(native)} tensors{suffix}, and not {len(results)}; "
            "use paddle.where for what depends on values"
        )
    expected = [*map(ComparedResult, native)]
    largest = max((result.largest for result in expected), default=0.0)
    rtol, terms = RTOL, 1
    if not settings.CALLS_BEFORE_CODE:
        # Machine code adds in another order, and rounds float32 otherwise, which a
        # result in float64 shows.
        computed = [v for op in program.ops for v in op.outputs]
        rtol = ROUGH if "float32" in {v.dtype for v in computed} else RTOL
        terms = max([1, *(math.prod(v.shape) for v in computed)])
    spread: list[Any] = []
    for i, (a, b) in enumerate(zip(results, native, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise CaptureError(
                f"output {i} has shape {list(b.shape)}{suffix}, and not "
                f"{list(a.shape)}; use paddle.where for what depends on values"
            )
        if ComparedResult(a).is_close(expected[i], largest, rtol, terms):
            continue
        spread = spread or _rounding_spread(program, tensors, results, state)
        if not ComparedResult(a).is_within(expected[i], spread[i]):
            raise CaptureError(
                f"output {i} of the program differs from the function's{suffix}: it "
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
    for k in range(ROUNDING_SAMPLES):
        with drawing_from(state), grad_mode(False):
            moved = program(*[perturb_by_rounding(x, k) for x in tensors])
        for i, (a, b) in enumerate(zip(results, moved, strict=True)):
            if a.shape == b.shape:
                largest[i] = np.fmax(
                    largest[i], ComparedResult(a).distance(ComparedResult(b))
                )
    return largest
