"""Calls of a net like earlier ones, which go straight to their programs."""

from __future__ import annotations

from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ..paddle_side.listener import is_plain
from ..paddle_side.watch import watched
from ..programs.capture_error import CaptureError
from ..programs.program import Program
from ..transforms.effects import flags
from ..transforms.program_cache import BOUND, OfValue, ProgramCache, key_of
from ..transforms.program_recording import ProgramRecording, run
from ..transforms.tree import ONE_LEAF, Tree
from .inputs import Inputs
from .pullback import RecordedPullback


class Structure(NamedTuple):
    """How outputs are nested, and what comes after them."""

    output: Any
    number: int
    buffers: Any

    def nested(self, outputs: list[Any]) -> Any:
        """The output, and with buffers the pair of it and of these."""
        if self.output is ONE_LEAF and self.number == len(outputs):
            return outputs[0]
        value = self.output.unflatten(outputs[: self.number])
        if self.buffers is None:
            return value
        return value, self.buffers.unflatten(outputs[self.number :])


class KnownCalls:
    """What is called for parameters and arguments of each dtypes and shapes.

    That is for parameters in a dict as the net has them, arguments that are tensors,
    and all of them off the caller's graph; other calls are looked at closer.
    """

    def __init__(self, net: Any) -> None:
        self._net = net
        self._values: dict[Any, OfValue] = {}
        self._ways: dict[Any, KnownWay] = {}

    def keep_value(self, inputs: Inputs, found: OfValue) -> None:
        """Have this program serve calls like this one."""
        self._keep(self._values, inputs, found)

    def keep_way(
        self, inputs: Inputs, programs: ProgramCache, recording: ProgramRecording
    ) -> None:
        """The same with the way back."""
        self._keep(self._ways, inputs, KnownWay(inputs, programs, recording))

    def _keep(self, known: dict[Any, Any], inputs: Inputs, found: Any) -> None:
        if inputs.order != self._net.spec.names:
            return
        params, args, kwargs = inputs.with_leaves(inputs.leaves)
        key = None if kwargs else self._like(params, args)[0]
        if key is not None and not (key[0] and self._net._effects.reaches):
            if len(known) >= BOUND:
                known.clear()
            known[key] = found

    def forward(self, params: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The output, alone in a tuple; None for a call like none before."""
        key, leaves = self._like(params, args)
        known = self._values.get(key)
        if known is None or known.is_stale():
            return None
        try:
            made = run(known.captured.program, leaves)
        except CaptureError:  # a shape that depends on values
            return None
        return (known.structure.nested(known.captured.filled(made)),)

    def pullback(
        self, params: Any, args: tuple[Any, ...]
    ) -> tuple[Any, RecordedPullback] | None:
        """Output and pullback; None for a call like none before."""
        key, leaves = self._like(params, args)
        known = self._ways.get(key)
        if known is None or known.way.is_stale():
            return None
        try:
            made = run(known.way.there.forward, leaves)
        except CaptureError:
            return None
        pullback = KnownPullback(known, leaves, made)
        return known.structure.nested(pullback.outputs), pullback

    def _like(
        self, params: Any, args: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...] | None, list[Tensor]]:
        """What two calls have in common, and the leaves; None for other calls."""
        if type(params) is not dict or tuple(params) != self._net.spec.names:
            return None, []
        if is_plain() or watched():
            return None, []
        leaves = [*params.values(), *args]
        for leaf in leaves:
            if not isinstance(leaf, Tensor):
                return None, []
        graph = paddle.is_grad_enabled()
        if graph and False in flags(leaves):
            return None, []
        return (graph, *key_of(leaves)), leaves


class KnownWay:
    """The programs of a kind of calls.

    Attributes:
        back: to the gradients of all parameters and arguments, where there is one
            output, a tensor, of this ``shape`` and ``dtype``; None elsewhere.
    """

    back: Program | None = None

    def __init__(
        self, inputs: Inputs, programs: ProgramCache, recording: ProgramRecording
    ) -> None:
        way, output = recording.way, recording.outputs[0]
        self.programs, self.way, self.structure = programs, way, way.structure
        self.form = inputs.form(way.structure.output)
        structure, number = way.structure, len(inputs.leaves)
        alone = structure.output is ONE_LEAF and structure.buffers is None
        if alone and way.seeds == [0] and way.places == [*range(number)]:
            self.shape, self.dtype = output.shape, output.dtype
            program, has = way.there.back((True,) * number, (True,))
            self.back = program if all(has) else None


class KnownPullback(RecordedPullback):
    """The pullback of a known call, straight where all gradients are asked for."""

    _recording: ProgramRecording

    def __init__(
        self, known: KnownWay, leaves: list[Tensor], made: list[Tensor]
    ) -> None:
        self._form, self._known = known.form, known
        self._recording = recording = known.programs.recording(
            known.way, leaves, leaves, made
        )
        self.outputs = recording.outputs

    def __call__(self, cotangent: Tree, **how: Any) -> Any:
        known = self._known
        if (
            not how
            and known.back is not None
            and isinstance(cotangent, Tensor)
            and cotangent.shape == known.shape
            and cotangent.dtype is known.dtype
            and (cotangent.stop_gradient or not paddle.is_grad_enabled())
        ):
            found = run(known.back, [*self._recording.saved(), cotangent])
            names = known.form.spec.names
            return dict(zip(names, found, strict=False)), (*found[len(names) :],)
        return super().__call__(cotangent, **how)
