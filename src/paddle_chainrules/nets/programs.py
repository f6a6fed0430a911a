"""A net's calls as programs, where it was asked for and they can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ..paddle_side.listener import is_plain
from ..paddle_side.random_state import drawing_from
from ..paddle_side.watch import watched
from ..programs.capture_error import CaptureError
from ..transforms.effects import flags
from ..transforms.program_cache import (
    BOUND,
    OfValue,
    ProgramCache,
    Refusal,
    key_of,
)
from ..transforms.program_nodes import call, found_value
from ..transforms.program_recording import ProgramRecording, run
from ..transforms.recording import records_graph
from ..transforms.tree import flatten_tree
from .inputs import Inputs
from .pullback import RecordedPullback


class Structure(NamedTuple):
    """How outputs are nested, and what comes after them."""

    output: Any
    number: int
    buffers: Any


class NetPrograms:
    """Programs of one net, for every way in which its arguments are nested.

    Args:
        patience: how many calls of a kind come before there is a program.
    """

    def __init__(self, net: Any, patience: int = 0) -> None:
        self._net, self._patience = net, patience
        self._made: dict[Any, ProgramCache] = {}
        self._again: dict[Any, Any] = {}

    def describe(self) -> str:
        """What runs, in a sentence."""
        made = [found for cache in self._made.values() for found in cache.made]
        refused = [found.why for found in made if isinstance(found, Refusal)]
        count = len(made) - len(refused)
        if refused:
            kinds = f"{len(refused)} of {len(made)} kinds of calls"
            return f"It runs as Paddle runs it in {kinds}: {refused[-1]}."
        if count:
            return f"It runs as a program, of which there are {count}."
        effects = self._net._effects
        if effects.is_known and effects.writes:
            return "It runs as Paddle runs it, since it writes into what it is given."
        if effects.is_known and effects.asks:
            return "It runs as Paddle runs it, since it changes stop_gradient."
        if self._patience:
            return f"It will run as a program after {self._patience} calls of a kind."
        return "It will run as a program."

    def forward_again(
        self, params: Any, args: tuple[Any, ...]
    ) -> tuple[Any, ...] | None:
        """As :meth:`forward`, for a call like an earlier one; None for others."""
        key, leaves = self._key_again("value", params, args)
        found: OfValue | None = self._again.get(key)
        if found is None or found.is_stale():
            return None
        try:
            outputs = found.captured.filled(run(found.captured.program, leaves))
        except CaptureError:  # a shape that depends on values
            return None
        return (self._nested(outputs, found.structure),)

    def pullback_again(
        self, params: Any, args: tuple[Any, ...]
    ) -> tuple[Any, RecordedPullback] | None:
        """Output and pullback of a call like an earlier one; None of others."""
        key, leaves = self._key_again("vjp", params, args)
        known = self._again.get(key)
        if known is None:
            return None
        specs: tuple[Any, Any, Any, Any]
        programs, way, specs = known
        if way.is_stale():
            return None
        try:
            outputs, structure, recording = programs.recorded_by(way, leaves, leaves)
        except CaptureError:
            return None
        pullback = RecordedPullback(recording, *specs, structure.output)
        return self._nested(outputs, structure), pullback

    def _key_again(
        self, kind: str, params: Any, args: tuple[Any, ...]
    ) -> tuple[Any, list[Tensor]]:
        """What two calls have in common, and the leaves.

        None but for parameters in a dict as the net has them, and arguments that are
        tensors, off the caller's graph; such calls are looked at closer.
        """
        spec = self._net.spec
        if not isinstance(params, dict) or is_plain() or watched():
            return None, []
        if tuple(params) != spec.names:
            return None, []
        leaves = [*spec.as_dict(params).values(), *args]
        if not all(isinstance(leaf, Tensor) for leaf in args):
            return None, []
        graph = paddle.is_grad_enabled()
        if graph and False in flags(leaves):
            return None, []
        return (kind, graph, *key_of(args)), leaves

    def _keep(self, kind: str, inputs: Inputs, find: Callable[[], Any]) -> None:
        """What was found, for calls like this one."""
        if inputs.order != self._net.spec.names:
            return
        params, args, kwargs = inputs.with_leaves(inputs.leaves)
        key = None if kwargs else self._key_again(kind, params, args)[0]
        if key is not None and not (key[1] and self._net._effects.reaches):
            if len(self._again) >= BOUND:
                self._again.clear()
            self._again[key] = find()

    def forward(self, inputs: Inputs, constants: dict[str, Any]) -> tuple[Any, ...]:
        """The net's result, alone in a tuple; an empty one where no program serves."""
        if not self._serves():
            return ()
        try:
            programs, leaves = self._of(inputs, constants)
            with drawing_from(constants.get("_seed")):
                outputs, structure = call(programs, leaves, None)
        except CaptureError:
            return ()
        if not constants:
            self._keep("value", inputs, lambda: found_value(programs, leaves, None)[0])
        return (self._nested(outputs, structure),)

    def record(
        self, inputs: Inputs, constants: dict[str, Any]
    ) -> tuple[Any, Any, Any, ProgramRecording] | None:
        """Output, buffers, how the output is nested, and the way back."""
        if (
            not self._serves()
            or watched()
            or records_graph(inputs.leaves, self._reach())
        ):
            return None
        try:
            programs, leaves = self._of(inputs, constants)
            with drawing_from(constants.get("_seed")):
                outputs, structure, recording = programs.record(leaves)
        except CaptureError:
            return None
        recording.keep(len(inputs.leaves), structure.number)
        if not constants:
            specs = self._net.spec, inputs.order, inputs.args_spec, inputs.kwargs_spec
            self._keep("vjp", inputs, lambda: (programs, recording.way, specs))
        value = structure.output.unflatten(outputs[: structure.number])
        buffers = None
        if structure.buffers is not None:
            buffers = structure.buffers.unflatten(outputs[structure.number :])
        return value, buffers, structure.output, recording

    def _serves(self) -> bool:
        """Whether the net is known to be as a program takes it."""
        effects = self._net._effects
        return (
            not is_plain()
            and effects.is_known
            and effects.writes is False
            and not effects.asks
        )

    def _reach(self) -> bool:
        return bool(self._net._effects.reaches) and paddle.is_grad_enabled()

    @staticmethod
    def _nested(outputs: list[Any], structure: Structure) -> Any:
        value = structure.output.unflatten(outputs[: structure.number])
        if structure.buffers is None:
            return value
        return value, structure.buffers.unflatten(outputs[structure.number :])

    def _of(
        self, inputs: Inputs, constants: dict[str, Any]
    ) -> tuple[ProgramCache, list[Any]]:
        """Programs, and the leaves that they take: the inputs', then buffers."""
        buffers: dict[str, Tensor] | None = constants.get("_buffers")
        names = None if buffers is None else tuple(buffers)
        key = (inputs.order is None, inputs.args_spec, inputs.kwargs_spec, names)
        programs = self._made.get(key)
        if programs is None:
            flat = _Flat(self._net, inputs.without_leaves(), names)
            fixed = 1 if inputs.order is None else len(inputs.order)
            programs = ProgramCache(flat, self._net._effects, fixed, self._patience)
            self._made[key] = programs
        leaves = inputs.leaves
        if buffers is not None:
            leaves = [*leaves, *buffers.values()]
        return programs, leaves


class _Flat:
    """The net as a function of a list of leaves."""

    def __init__(self, net: Any, inputs: Inputs, names: Sequence[str] | None) -> None:
        self._net, self._inputs, self._names = net, inputs, names

    def __call__(self, leaves: list[Any]) -> tuple[list[Any], Structure]:
        names = self._names
        count = len(leaves) - len(names or ())
        values, args, kwargs = self._inputs.with_leaves(leaves[:count])
        if names is None:
            outputs, spec = flatten_tree(self._net._apply(values, *args, **kwargs))
            return outputs, Structure(spec, len(outputs), None)
        buffers = dict(zip(names, leaves[count:], strict=True))
        output, new = self._net._apply(values, *args, **kwargs, _buffers=buffers)
        outputs, spec = flatten_tree(output)
        others, aux_spec = flatten_tree(new)
        return [*outputs, *others], Structure(spec, len(outputs), aux_spec)
