"""Programs where Paddle's tape ends: their rules go further than its kernels.

A derivative that the tape refuses is taken by capturing the function, if it can be. It
is called twice more for that; who needs it often had better use :func:`.jit.jit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle import Tensor

from ...paddle_side.autograd.kernel_errors import Overwritten
from ...paddle_side.listener import is_plain
from ...paddle_side.process.random_state import drawing_from
from ...paddle_side.watch import watched
from ...programs.capture_error import CaptureError
from ...programs.comparison import Numbers
from ...programs.derivatives.partials import or_zeros
from ...programs.switch import programs_are_on
from ..tape.effects import copied
from ..tape.recording import Recording, records_graph
from .program_cache import Flat, ProgramCache
from .program_nodes import call
from .program_recording import ProgramRecording

SAME = {"float64": 1e-9, "complex128": 1e-9, "float32": 5e-5, "complex64": 5e-5}
"""How far two ways to compute a result may be apart, relative to its largest entry."""


def recorded_by_program(
    fn: Flat,
    leaves: Sequence[Any],
    refusal: NotImplementedError,
    before: Recording | None = None,
) -> tuple[Sequence[Any], Any, ProgramRecording]:
    """As :meth:`.ProgramCache.record`, for what the tape has refused.

    Args:
        before: an earlier call, whose random numbers are drawn once more, and whose
            results it must give again.

    Raises:
        NotImplementedError: the refusal, where there is no program either.
    """
    if _is_off() or records_graph(leaves):
        raise refusal
    try:
        with drawing_from(before and before.drawn_from):
            made = ProgramCache(_given(fn, refusal), empty=True).record(leaves)
    except CaptureError as error:
        raise _with(refusal, error) from error
    if before is not None:
        check_same(before.outputs, made[0], refusal)
    return made


def called_by_program(
    fn: Flat,
    leaves: Sequence[Any],
    refusal: NotImplementedError,
    drawn_from: Any = None,
) -> tuple[list[Any], Any]:
    """What a function gives whose derivatives inside the tape has refused.

    Beside it how that is nested. Its random numbers are drawn from a state, if one is
    given.

    Raises:
        NotImplementedError: the refusal, where there is no program either.
    """
    if _is_off():
        raise refusal
    try:
        with drawing_from(drawn_from):
            found = call(ProgramCache(_given(fn, refusal), empty=True), leaves, None)
        return found
    except CaptureError as error:
        raise _with(refusal, error) from error


def _given(fn: Flat, refusal: NotImplementedError) -> Flat:
    """The function on copies, where it may write into what it is given."""
    if not isinstance(refusal, Overwritten):
        return fn
    return lambda leaves: fn([*map(copied, leaves)])


def _is_off() -> bool:
    return not programs_are_on() or is_plain() or watched()


def _with(refusal: NotImplementedError, error: CaptureError) -> NotImplementedError:
    return NotImplementedError(f"{refusal}. Nor is there a program: {error}")


def check_same(seen: Sequence[Any], found: Sequence[Any], refusal: Exception) -> None:
    """Refuse what has changed since, or draws other numbers at every call.

    Raises:
        Exception: the refusal.
    """
    pairs = [
        (Numbers(a), Numbers(or_zeros(b, a)))
        for a, b in zip(seen, found, strict=False)
        if isinstance(a, Tensor)
    ]
    largest = max((a.largest for a, _ in pairs), default=0.0)
    if not all(b.is_close(a, largest, SAME) for a, b in pairs):
        raise refusal
