"""A function's outputs and its derivative, by the tape or by rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import CaptureError
from ...paddle_side.listener import listener, not_listening
from ...paddle_side.process.random_state import (
    drawing_from,
    random_state_restored_on_error,
    restore_random_state,
)
from ...paddle_side.watch import watched
from .eager import Flat, record_by_rules
from .effects import Effects, check_unchanged, tensors_among, versions
from .recording import Recording, both_reasons, recorded, records_graph
from .same import check_same


def record(
    fn: Flat,
    leaves: Sequence[Any],
    effects: Effects | None = None,
    nested: bool = False,
) -> tuple[list[Any], Recording]:
    """Run ``fn(leaves)``; return a list of outputs, and a recording to differentiate.

    Plain first derivatives are those of Paddle's tape. Rules take the derivatives that
    the tape refuses, and those that may be differentiated once more.

    The outputs are cut off from the caller's graph unless gradients are on and they
    depend on a tensor that requires them, a leaf or one that fn closes over; then
    outputs and gradients stay differentiable by it.

    Where fn has to be called twice, it draws the same random numbers; if it fails,
    none.

    Args:
        fn: function of a list of leaves.
        leaves: tensors, and anything else, which is passed on.
        effects: what is known of fn, and where to note what this call shows; None for
            a function that is called but once.
        nested: whether derivatives of the derivative are likely to come.

    Raises:
        NotImplementedError: there is no rule either for what the tape refuses.
    """
    effects = effects or Effects(reaches=True)
    if listener() is not None:
        return recorded(fn, leaves, effects)
    with random_state_restored_on_error() as drawing:
        result, refusal = _first_call(fn, leaves, effects, nested, drawing)
    recording = result[1]
    recording.refusal = refusal
    recording.rerecord = _SecondCall(fn, leaves, effects, recording, drawing.state)
    return result


RecordedCall = tuple[list[Any], Recording]


def _first_call(
    fn: Flat,
    leaves: Sequence[Any],
    effects: Effects,
    nested: bool,
    drawing: random_state_restored_on_error,
) -> tuple[RecordedCall, NotImplementedError | None]:
    """Record fn by the tape or by rules; return also why the tape refused, if so."""
    if effects.refused or watched() or records_graph(leaves):
        return record_by_rules(fn, leaves, effects), None
    first, second = recorded, record_by_rules
    if nested:  # only perhaps, so that the tape will do where the rules end
        first, second = second, first
    try:
        result = first(fn, leaves, effects)
    except NotImplementedError as error:
        refusal = error
    else:
        if not result[1].reaches:
            return result, None
        with drawing_from(drawing.state):
            return record_by_rules(fn, leaves, effects), None
    if drawing.state is not None:
        restore_random_state(drawing.state)
    effects.refused = not nested
    try:
        result = second(fn, leaves, effects)
    except NotImplementedError as error:
        raise (refusal if nested else both_reasons(refusal, error)) from error
    if result[1].reaches:
        raise refusal
    return result, None if nested else refusal


class _SecondCall:
    """Records a function's call once more, by rules, after one on the tape."""

    def __init__(
        self,
        fn: Flat,
        leaves: Sequence[Any],
        effects: Effects,
        first_recording: Recording,
        random_state: Any,
    ) -> None:
        self._call, self._effects = (fn, leaves), effects
        self._random_state, self._first_outputs = random_state, first_recording.outputs
        self._tensors = tensors_among(leaves)
        self._versions = versions(self._tensors)
        self._recording: Recording | None = None

    def __call__(self, refusal: Exception | None) -> Recording:
        """Return a recording by rules.

        Raises:
            CaptureError: the function gives something else than before.
            NotImplementedError: the same, if it was the tape that refused.
        """
        is_traced = listener() is not None
        if self._recording is not None and not is_traced:
            return self._recording
        check_unchanged(self._tensors, self._versions, "a primal")
        try:
            with drawing_from(None if is_traced else self._random_state):
                _, result = record(*self._call, self._effects, nested=True)
        except NotImplementedError as error:
            raise both_reasons(refusal, error) from error
        with not_listening():
            check_same(self._first_outputs, result.outputs, refusal or _CHANGED_ERROR)
        if refusal is not None:
            self._effects.refused = True
        if not is_traced:
            self._recording = result
        return result


_CHANGED_ERROR = CaptureError(
    "a derivative that was begun outside of vmap, jit or another derivative is of a "
    "function that gives something else by now, such as random numbers; begin it inside"
)
