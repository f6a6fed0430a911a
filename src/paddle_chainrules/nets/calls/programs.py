"""A net's calls as programs, where the user wants them and they can be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ...errors import CaptureError
from ...paddle_side.arguments import checked_flag
from ...paddle_side.listener import is_plain
from ...paddle_side.process.random_state import drawing_from
from ...paddle_side.watch import watched
from ...settings import ANY, programs_are_on
from ...transforms.as_programs.guarded_calls import GuardedCalls
from ...transforms.as_programs.guards import GuardedCall, key_orders
from ...transforms.as_programs.outer_state import OuterState, holders_of_state
from ...transforms.as_programs.program_cache import (
    MAX_PROGRAMS_PER_FUNCTION,
    CaptureRefusal,
    CompiledFunction,
    ProgramCache,
)
from ...transforms.as_programs.program_nodes import (
    call,
    lookup_program,
)
from ...transforms.as_programs.program_recording import CompiledVJP, ProgramRecording
from ...transforms.containers.tree import ONE_LEAF, flatten_tree
from ...transforms.recordings.recording import records_graph
from .inputs import CallInputs
from .net_guards import NetVJP, add_vjp, write_pullback, write_value


class Structure(NamedTuple):
    """Nesting of the outputs, and of the buffers after them."""

    output: Any
    number: int
    buffers: Any

    @property
    def is_one_leaf(self) -> bool:
        """True if the output is one leaf, without buffers."""
        return self.buffers is None and self.output is ONE_LEAF

    def unflatten(self, outputs: Sequence[Any]) -> Any:
        """Return the output; with buffers, the pair of output and buffers."""
        value, buffers = self.split(outputs)
        return value if self.buffers is None else (value, buffers)

    def split(self, outputs: Sequence[Any]) -> tuple[Any, Any]:
        """Return the output, and buffers or None."""
        value = self.output.unflatten(outputs[: self.number])
        if self.buffers is None:
            return value, None
        return value, self.buffers.unflatten(outputs[self.number :])


CALLS_BEFORE_PROGRAM = 3
"""Calls of a kind that run natively before an automatic program."""


def programs_for_paddle_layers(net: Any) -> NetPrograms | None:
    """Return the programs of a net made of Paddle's code alone, if programs are on."""
    return NetPrograms(net, CALLS_BEFORE_PROGRAM, ANY) if programs_are_on() else None


def programs_for_jit_flag(
    net: Any, jit: bool | None, layer: paddle.nn.Layer | None
) -> NetPrograms | None:
    """Return the programs of a net that was made with ``jit``.

    By default there are some for a net made of Paddle's code alone.

    Args:
        layer: the net's layer if it has code of others, which may read other state.
    """
    if jit is None:
        return programs_for_paddle_layers(net) if layer is None else None
    if not (checked_flag("jit", jit) and programs_are_on()):
        return None
    if layer is None:
        return NetPrograms(net, 0, ANY)
    return NetPrograms(net, 0, 0, OuterState(net))


def programs_for_derivative(
    net: Any, net_programs: NetPrograms | None
) -> NetPrograms | None:
    """Return the programs of a derivative of a net with these programs."""
    return net_programs and NetPrograms(
        net, most=net_programs.most, state=net_programs.state
    )


class NetPrograms:
    """Programs of one net, for every way in which its arguments are nested.

    Args:
        patience: how many calls of a kind come before there is a program.
        most: up to how many samples its code decides nothing by their number.
        state: what its code reads besides arguments, if that is code of others.

    Attributes:
        draws: whether a call with its backward pass has drawn random numbers.
    """

    def __init__(
        self,
        net: Any,
        patience: int = 0,
        most: int = 0,
        state: OuterState | None = None,
    ) -> None:
        self._net, self._patience, self.most = net, patience, most
        self.state = state
        self._caches: dict[Any, ProgramCache] = {}
        self.values, self.pullbacks = GuardedCalls(), GuardedCalls()
        self.vjps = GuardedCalls()
        self.draws = False
        self.derivatives: dict[Any, Any] = {}
        self.guarded_derivatives: defaultdict[str, GuardedCalls] = defaultdict(
            GuardedCalls
        )

    def describe(self) -> str:
        """Say in a sentence what runs."""
        entries = [entry for cache in self._caches.values() for entry in cache.entries]
        refused = [entry.why for entry in entries if isinstance(entry, CaptureRefusal)]
        count = len(entries) - len(refused)
        if refused:
            kinds = f"{len(refused)} of {len(entries)} kinds of calls"
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

    def forward(self, inputs: CallInputs, constants: dict[str, Any]) -> tuple[Any, ...]:
        """Return the net's result, alone in a tuple; () if no program serves."""
        if not self._can_serve():
            return ()
        try:
            programs, leaves = self._cache_and_leaves(inputs, constants)
            with self._state_watched(programs), drawing_from(constants.get("_seed")):
                outputs, compiled = call(programs, leaves, None)
        except CaptureError:
            return ()
        if not constants and self._is_off_graph(inputs):
            self.values.note(
                compiled, lambda: write_value(inputs, compiled, self.state)
            )
        return (compiled.structure.unflatten(outputs),)

    def record(
        self, inputs: CallInputs, constants: dict[str, Any]
    ) -> tuple[Any, Any, Any, ProgramRecording] | None:
        """Return output, buffers, how the output is nested, and the recording."""
        if not self._can_serve() or not self._is_off_graph(inputs):
            return None
        try:
            programs, leaves = self._cache_and_leaves(inputs, constants)
            with self._state_watched(programs), drawing_from(constants.get("_seed")):
                outputs, structure, recording = programs.record(leaves)
        except CaptureError:
            return None
        recording.truncate(len(inputs.leaves), structure.number)
        if not constants:
            self._note_vjp(inputs, programs, recording)
        return (*structure.split(outputs), structure.output, recording)

    def _note_vjp(
        self, inputs: CallInputs, programs: ProgramCache, recording: ProgramRecording
    ) -> None:
        """Note a call with its backward pass, off the caller's graph."""
        vjps: list[NetVJP] = []

        def write() -> GuardedCall | None:
            vjps.append(NetVJP(inputs, recording))
            self.draws = self.draws or vjps[0].draws
            return write_pullback(inputs, programs, vjps[0], self.state)

        self.pullbacks.note(recording.compiled, write)
        if vjps:
            add_vjp(inputs, vjps[0], self.vjps, self.state)

    def _is_off_graph(self, inputs: CallInputs) -> bool:
        """Tell whether nobody differentiates a call's result by Paddle's tape."""
        return not (watched() or records_graph(inputs.leaves, self._reaches_graph()))

    def value(self, inputs: CallInputs) -> tuple[CompiledFunction, list[Any]]:
        """Return the program of calls like this one, and the leaves that it takes.

        Raises:
            CaptureError: there is none.
        """
        programs, leaves = self._self_contained(inputs)
        return lookup_program(programs, leaves)[0], leaves

    def compiled_vjp(self, inputs: CallInputs) -> tuple[CompiledVJP, list[Any]]:
        """Return the program with its backward pass, and the leaves that it takes.

        Raises:
            CaptureError: there is none.
        """
        programs, leaves = self._self_contained(inputs)
        return programs.get_or_compile("vjp", leaves, programs.compile_vjp), leaves

    @contextmanager
    def _state_watched(self, programs: ProgramCache) -> Iterator[None]:
        """Leave out, in the end, the state that the net's own code changes meanwhile.

        Programs stay what they are, whatever becomes of that state.
        """
        stored = programs.stored
        yield
        state = self.state
        if state is None or programs.stored == stored or state.is_unchanged():
            return  # its code has not run
        if not state.leave_out_changed():
            return
        number = state.number_again()
        for key, cache in [*self._caches.items()]:
            if cache is programs:
                new_key = number, *key[1:]
                self._caches[new_key] = cache

    def _self_contained(self, inputs: CallInputs) -> tuple[ProgramCache, list[Any]]:
        """Return cache and leaves of a call whose result depends on no other state."""
        if not self._can_serve():
            raise CaptureError(
                "the net runs as Paddle runs it; make it with jit=True, or see what it "
                "is shown to run as"
            )
        if self._net._effects.reaches:
            raise CaptureError(
                "the net uses parameters that are no arguments; make them its own"
            )
        return self._cache_and_leaves(inputs, {})

    def _can_serve(self) -> bool:
        """Tell whether programs can serve the net, by the effects seen so far."""
        effects = self._net._effects
        return (
            not is_plain()
            and effects.is_known
            and effects.writes is False
            and not effects.asks
        )

    def _reaches_graph(self) -> bool:
        return bool(self._net._effects.reaches) and paddle.is_grad_enabled()

    def _cache_and_leaves(
        self, inputs: CallInputs, constants: dict[str, Any]
    ) -> tuple[ProgramCache, list[Any]]:
        """Return the program cache for these nestings, and the leaves of the call."""
        names = _buffer_names(constants)
        state = 0
        if self.state is not None:
            state = self.state.number(holders_of_state(inputs.leaves))
        orders = key_orders(inputs.call_args[1:])
        specs = inputs.args_spec, inputs.kwargs_spec
        key = state, inputs.order is None, *specs, orders, names
        cache = self._caches.get(key)
        if cache is None:
            while len(self._caches) >= MAX_PROGRAMS_PER_FUNCTION:
                self._caches.pop(next(iter(self._caches)))
            flat = _FlatNet(self._net, inputs.without_leaves(), names)
            param_count = 1 if inputs.order is None else len(inputs.order)
            attrs = self._patience, self.most
            cache = ProgramCache(flat, self._net._effects, param_count, *attrs)
            self._caches[key] = cache
        return cache, _leaves(inputs, constants)


def _buffer_names(constants: dict[str, Any]) -> tuple[str, ...] | None:
    buffers: dict[str, Tensor] | None = constants.get("_buffers")
    return None if buffers is None else tuple(buffers)


def _leaves(inputs: CallInputs, constants: dict[str, Any]) -> list[Any]:
    """Return the inputs' leaves, and buffers if they are given."""
    buffers: dict[str, Tensor] | None = constants.get("_buffers")
    return inputs.leaves if not buffers else [*inputs.leaves, *buffers.values()]


class _FlatNet:
    """The net as a function of a list of leaves."""

    def __init__(
        self, net: Any, inputs: CallInputs, names: Sequence[str] | None
    ) -> None:
        self._net, self._inputs, self._names = net, inputs, names

    def __call__(self, leaves: list[Any]) -> tuple[list[Any], Structure]:
        names = self._names
        count = len(leaves) - len(names or ())
        values, args, kwargs = self._inputs.with_leaves(leaves[:count])
        if names is None:
            outputs, spec = flatten_tree(self._net._apply(values, *args, **kwargs))
            return outputs, Structure(spec, len(outputs), None)
        buffers = dict(zip(names, leaves[count:], strict=True))
        output, new_buffers = self._net._apply(
            values, *args, **kwargs, _buffers=buffers
        )
        outputs, spec = flatten_tree(output)
        buffer_leaves, aux_spec = flatten_tree(new_buffers)
        return [*outputs, *buffer_leaves], Structure(spec, len(outputs), aux_spec)
