"""A function's outputs and its derivative, by the tape or by rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...paddle_side.listener import listener, not_listening
from ...paddle_side.process.random_state import (
    drawing_from,
    random_state_restored_on_error,
    restore_random_state,
)
from ...paddle_side.watch import watched
from ...programs.capture_error import CaptureError
from .eager import Flat, recorded_eagerly
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
    recording.again = _SecondCall(fn, leaves, effects, recording, drawing.state)
    return result


Found = tuple[list[Any], Recording]


def _first_call(
    fn: Flat,
    leaves: Sequence[Any],
    effects: Effects,
    nested: bool,
    drawing: random_state_restored_on_error,
) -> tuple[Found, NotImplementedError | None]:
    """Call fn by the tape or by rules; tell why the tape refuses, if it does."""
    if effects.refused or watched() or records_graph(leaves):
        return recorded_eagerly(fn, leaves, effects), None
    first, second = recorded, recorded_eagerly
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
            return recorded_eagerly(fn, leaves, effects), None
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
    """Calls a function once more, whose first call the tape has recorded."""

    def __init__(
        self,
        fn: Flat,
        leaves: Sequence[Any],
        effects: Effects,
        before: Recording,
        drawn_from: Any,
    ) -> None:
        self._call, self._effects = (fn, leaves), effects
        self._drawn_from, self._seen = drawn_from, before.outputs
        self._tensors = tensors_among(leaves)
        self._versions = versions(self._tensors)
        self._made: Recording | None = None

    def __call__(self, refusal: Exception | None) -> Recording:
        """Return a recording by rules.

        Raises:
            CaptureError: the function gives something else than before.
            NotImplementedError: the same, if it was the tape that refused.
        """
        inside = listener() is not None
        if self._made is not None and not inside:
            return self._made
        check_unchanged(self._tensors, self._versions, "a primal")
        try:
            with drawing_from(None if inside else self._drawn_from):
                _, result = record(*self._call, self._effects, nested=True)
        except NotImplementedError as error:
            raise both_reasons(refusal, error) from error
        with not_listening():
            check_same(self._seen, result.outputs, refusal or _CHANGED)
        if refusal is not None:
            self._effects.refused = True
        if not inside:
            self._made = result
        return result


_CHANGED = CaptureError(
    "a derivative that was begun outside of vmap, jit or another derivative is of a "
    "function that gives something else by now, such as random numbers; begin it inside"
)
