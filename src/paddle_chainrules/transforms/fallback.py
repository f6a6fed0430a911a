"""Programs where Paddle's tape ends: their rules go further than its kernels.

A derivative that the tape refuses is taken by capturing the function, if it can be. It
is called twice more for that; who needs it often had better use :func:`.jit.jit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from paddle import Tensor

from ..paddle_side.listener import is_plain
from ..paddle_side.watch import watched
from ..programs.capture_error import CaptureError
from ..programs.switch import programs_are_on
from .program_cache import Flat, ProgramCache
from .program_nodes import call
from .program_recording import ProgramRecording
from .recording import records_graph


def recorded_by_program(
    fn: Flat,
    leaves: Sequence[Any],
    refusal: NotImplementedError,
    seen: Sequence[Any] | None = None,
) -> tuple[Sequence[Any], Any, ProgramRecording]:
    """As :meth:`.ProgramCache.record`, for what the tape has refused.

    Args:
        seen: what the function has given before, which it must give again.

    Raises:
        NotImplementedError: the refusal, where there is no program either.
    """
    if _is_off() or records_graph(leaves):
        raise refusal
    try:
        made = ProgramCache(fn).record(leaves)
    except CaptureError as error:
        raise _with(refusal, error) from error
    if made[2].way.there.forward.draws:
        raise refusal
    if seen is not None:
        check_same(seen, made[0], refusal)
    return made


def called_by_program(
    fn: Flat, leaves: Sequence[Any], refusal: NotImplementedError
) -> tuple[list[Any], Any]:
    """What a function gives whose derivatives inside the tape has refused.

    Beside it how that is nested.

    Raises:
        NotImplementedError: the refusal, where there is no program either.
    """
    if _is_off():
        raise refusal
    try:
        return call(ProgramCache(fn), leaves, None)
    except CaptureError as error:
        raise _with(refusal, error) from error


def _is_off() -> bool:
    return not programs_are_on() or is_plain() or watched()


def _with(refusal: NotImplementedError, error: CaptureError) -> NotImplementedError:
    return NotImplementedError(f"{refusal}. Nor is there a program: {error}")


def check_same(seen: Sequence[Any], found: Sequence[Any], refusal: Exception) -> None:
    """Refuse what has changed since, or draws other numbers at every call.

    Raises:
        Exception: the refusal.
    """
    for a, b in zip(seen, found, strict=False):
        if isinstance(a, Tensor):
            x, y = a.numpy(), b.numpy()
            if not np.allclose(x, y, rtol=1e-5, atol=1e-8, equal_nan=True):
                raise refusal
