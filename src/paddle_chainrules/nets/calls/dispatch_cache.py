"""Calls of a net like earlier ones, which go straight to their programs.

A dispatch cache, keyed by the dtypes and shapes of parameters and arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ...paddle_side.listener import is_plain
from ...paddle_side.watch import watched
from ...programs import switch
from ...programs.capture_error import CaptureError
from ...programs.captured import PLACE
from ...programs.compiling.program import Program
from ...transforms.as_programs.keys import key_of, modes
from ...transforms.as_programs.last_call import are_off_the_graph
from ...transforms.as_programs.program_cache import (
    MAX_PROGRAMS_PER_FUNCTION,
    CompiledFunction,
    ProgramCache,
)
from ...transforms.as_programs.program_recording import ProgramRecording, run
from ...transforms.containers.tree import ONE_LEAF, Tree
from ...transforms.recordings.effects import flags
from ..parameters.param_trees import ParamTree
from .inputs import CallInputs
from .pullback import RecordedPullback


class Structure(NamedTuple):
    """Nesting of the outputs, and of the buffers after them."""

    output: Any
    number: int
    buffers: Any

    def nested(self, outputs: list[Any]) -> Any:
        """Return the output; with buffers, the pair of output and buffers."""
        if self.buffers is None and self.output is ONE_LEAF:
            return outputs[0]
        value, buffers = self.split(outputs)
        return value if self.buffers is None else (value, buffers)

    def split(self, outputs: Sequence[Any]) -> tuple[Any, Any]:
        """Return the output, and buffers or None."""
        value = self.output.unflatten(outputs[: self.number])
        if self.buffers is None:
            return value, None
        return value, self.buffers.unflatten(outputs[self.number :])


class DispatchCache:
    """Programs that serve calls, by the dtypes and shapes of parameters and arguments.

    It serves parameters in a dict in the net's order, or as theta, and arguments that
    are tensors. All of them must be off the caller's graph. Other calls take the slower
    path.
    """

    def __init__(self, net: Any) -> None:
        self._net = net
        self._values: dict[Any, CachedValue] = {}
        self._vjps: dict[Any, CachedVJP] = {}
        self._last_value: LastServed | None = None
        self._last_vjp: LastServed | None = None

    def store_value(self, inputs: CallInputs, result: CompiledFunction) -> None:
        """Cache the program of the value for calls like this one."""
        self._store(self._values, inputs, CachedValue(result))

    def store_vjp(
        self, inputs: CallInputs, programs: ProgramCache, recording: ProgramRecording
    ) -> None:
        """Cache the programs of value and gradients for calls like this one."""
        self._store(self._vjps, inputs, CachedVJP(inputs, programs, recording))

    def _store(self, entries: dict[Any, Any], inputs: CallInputs, entry: Any) -> None:
        params, args, kwargs = inputs.call_args
        order = inputs.order  # of a tree it equals the names, too
        if isinstance(order, ParamTree) or order not in (None, self._net.spec.names):
            return
        key = None if kwargs else self._key_and_leaves(params, args)[0]
        if key is not None and not (key[0] and self._net._effects.reaches):
            store_bounded(entries, key, entry)

    def forward(self, params: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the output, alone in a tuple; None for a call of a new kind."""
        key, leaves = self._key_and_leaves(params, args)
        cached = self._values.get(key)
        if cached is None or key is None:
            return None
        self._last_value = LastServed(cached, key[:MODE_COUNT], key[-1], len(leaves))
        return cached.value(leaves, True)

    def pullback(
        self, params: Any, args: tuple[Any, ...]
    ) -> tuple[Any, CachedPullback] | None:
        """Return output and pullback; None for a call of a new kind."""
        key, leaves = self._key_and_leaves(params, args)
        cached = self._vjps.get(key)
        if cached is None or key is None:
            return None
        self._last_vjp = LastServed(cached, key[:MODE_COUNT], key[-1], len(leaves))
        return cached.pullback(leaves)

    def last_forward(self, params: Any, args: tuple[Any, ...]) -> Sequence[Any] | None:
        """Return the output by the last call's program alone, in a sequence, or None.

        The arguments need no check, since the program looks at them.
        """
        last = self._last_value
        leaves = self._matching_leaves(last, params, args)
        return (
            None if last is None or not leaves else last.cached.run_if_unchanged(leaves)
        )

    def last_pullback(
        self, params: Any, args: tuple[Any, ...]
    ) -> tuple[Any, CachedPullback] | None:
        """Do as :meth:`pullback`, by the last call's program alone."""
        last = self._last_vjp
        leaves = self._matching_leaves(last, params, args)
        return (
            None if last is None or not leaves else last.cached.run_if_unchanged(leaves)
        )

    def last_vjp(
        self, params: Any, args: tuple[Any, ...], cotangent: Any
    ) -> tuple[Any, tuple[Tensor, ...]] | None:
        """Return gradients by the last call's programs; None if they do not serve."""
        last = self._last_vjp
        leaves = self._matching_leaves(last, params, (*args, cotangent), 1)
        return None if last is None or not leaves else last.cached.vjp(leaves)

    def _matching_leaves(
        self,
        last: LastServed | None,
        params: Any,
        args: tuple[Any, ...],
        extra: int = 0,
    ) -> list[Any]:
        """Return the leaves, if the call matches the last one but for its tensors.

        The program itself checks dtypes and shapes of these.

        Args:
            extra: how many of the arguments are no leaves of that call: cotangents.
        """
        if last is None or type(params) is not last.kind or is_plain() or watched():
            return []
        current_modes = modes()
        if current_modes != last.modes:
            return []
        if type(params) is dict:
            if tuple(params) != self._net.spec.names:
                return []
            leaves = [*params.values(), *args]
        else:
            leaves = [params, *args]
        if len(leaves) != last.tensors + extra:
            return []
        return leaves if are_off_the_graph(leaves, current_modes[0]) else []

    def value(
        self, params: Any, args: tuple[Any, ...]
    ) -> tuple[CachedValue | None, list[Tensor]]:
        """Return the cached program of the value, if any, and this call's leaves."""
        key, leaves = self._key_and_leaves(params, args)
        return self._values.get(key), leaves

    def vjp_entry(
        self, params: Any, args: tuple[Any, ...]
    ) -> tuple[CachedVJP | None, list[Tensor]]:
        """Return the cached programs with backward, if any, and this call's leaves."""
        key, leaves = self._key_and_leaves(params, args)
        return self._vjps.get(key), leaves

    def _key_and_leaves(
        self, params: Any, args: tuple[Any, ...]
    ) -> tuple[tuple[Any, ...] | None, list[Tensor]]:
        """Return the key that like calls share, and the leaves; None for others."""
        if type(params) is dict and tuple(params) == self._net.spec.names:
            leaves = [*params.values(), *args]
        elif isinstance(params, Tensor):
            leaves = [params, *args]
        else:
            return None, []
        key = cache_key(leaves)
        return None if key is None else (*key, type(params)), leaves


def cache_key(leaves: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return whether gradients are on, with the dtypes and shapes of a call's leaves.

    None if a leaf is no tensor or on the caller's graph, or if functions run in place
    of their programs.
    """
    if is_plain() or watched():
        return None
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            return None
    grad_enabled = paddle.is_grad_enabled()
    if grad_enabled and False in flags(leaves):
        return None
    return (grad_enabled, *key_of(leaves))


def store_bounded(entries: dict[Any, Any], key: Any, entry: Any) -> None:
    """Store an entry; clear all first where there are too many."""
    if len(entries) >= MAX_PROGRAMS_PER_FUNCTION:
        entries.clear()
    entries[key] = entry


MODE_COUNT = 4
"""Entries at the start of a key that are modes, not facts of tensors."""


class LastServed(NamedTuple):
    """The program that served the last call, and the state that it serves in.

    Attributes:
        cached: the program.
        modes: if gradients are on, and the creation modes.
        kind: the type of the parameters.
        tensors: their number.
    """

    cached: Any
    modes: tuple[Any, ...]
    kind: type
    tensors: int


class CachedValue:
    """The program of the value of a kind of calls."""

    def __init__(self, compiled: CompiledFunction) -> None:
        self._compiled, self._structure = compiled, compiled.structure
        is_single = (
            compiled.structure.buffers is None and compiled.structure.output is ONE_LEAF
        )
        self._gives_list = is_single and compiled.captured.outputs == [PLACE]

    def value(
        self, leaves: list[Tensor], trusted: bool = False
    ) -> tuple[Any, ...] | None:
        """Return the output, alone in a tuple; None if the program no longer serves.

        Args:
            trusted: whether the leaves' shapes and dtypes were looked at.
        """
        compiled = self._compiled
        if compiled.is_stale():
            return None
        try:
            outputs = run(compiled.captured.program, leaves, trusted)
        except CaptureError:  # a shape that depends on values
            return None
        return (self._structure.nested(compiled.captured.filled(outputs)),)

    def run_if_unchanged(self, leaves: list[Any]) -> Sequence[Any] | None:
        """Return the output in a sequence; None if dtypes or shapes differ."""
        captured = self._compiled.captured
        enter = captured.program.entered
        if enter is None or self._compiled.is_stale():
            return None
        outputs = enter(*leaves)
        if outputs is None or self._gives_list:
            return outputs  # a list of the one output
        return (self._structure.nested(captured.filled(outputs)),)


class CachedVJP:
    """The programs of a kind of calls.

    Attributes:
        draws: whether a call draws random numbers.
        count: the number of outputs.
        retained_bytes: the bytes that a call keeps for the backward pass.
        backward: the program of the gradients of all parameters and arguments, if the
            output is one tensor, of this ``shape`` and ``dtype``; otherwise None.
    """

    backward: Program | None = None
    _joint: Callable[..., Sequence[Tensor] | None] | None = None

    def __init__(
        self, inputs: CallInputs, programs: ProgramCache, recording: ProgramRecording
    ) -> None:
        compiled, output = recording.compiled, recording.outputs[0]
        self._programs, self.compiled = programs, compiled
        self.form = inputs.form(compiled.structure.output)
        self.count = compiled.forward_backward.count
        self.draws = compiled.forward_backward.forward.draws
        self.retained_bytes = recording.retained_bytes()
        self._calls = 0
        structure, leaf_count = compiled.structure, len(inputs.leaves)
        is_single = structure.output is ONE_LEAF and structure.buffers is None
        if (
            is_single
            and compiled.seeds == [0]
            and compiled.grad_leaves == [*range(leaf_count)]
        ):
            self.shape, self.dtype = output.shape, output.dtype
            program, has_grad = compiled.forward_backward.backward_program(
                (True,) * leaf_count, (True,)
            )
            self.backward = program if all(has_grad) else None

    def backward_for(self, requested: tuple[bool, ...]) -> Program:
        """Return the backward program of the requested gradients alone."""
        return self.compiled.forward_backward.backward_program(requested, (True,))[0]

    def run_forward(
        self, leaves: list[Tensor], trusted: bool = False
    ) -> list[Tensor] | None:
        """Return outputs and residuals; None if the programs no longer serve."""
        if self.compiled.is_stale():
            return None
        try:
            return run(self.compiled.forward_backward.forward, leaves, trusted)
        except CaptureError:
            return None

    def make_pullback(
        self, leaves: list[Tensor], results: list[Tensor]
    ) -> CachedPullback:
        """Return the pullback of a call whose forward program gave ``results``."""
        recording = self._programs.recording(self.compiled, leaves, leaves, results)
        return CachedPullback(self, recording)

    def pullback(self, leaves: list[Tensor]) -> tuple[Any, CachedPullback] | None:
        """Return output and pullback; None if the programs no longer serve.

        The leaves' shapes and dtypes were looked at.
        """
        results = self.run_forward(leaves, True)
        return None if results is None else self._with_pullback(leaves, results)

    def run_if_unchanged(self, leaves: list[Any]) -> tuple[Any, CachedPullback] | None:
        """Return output and pullback; None if dtypes or shapes differ."""
        enter = self.compiled.forward_backward.forward.entered
        if enter is None or self.compiled.is_stale():
            return None
        results = enter(*leaves)
        return None if results is None else self._with_pullback(leaves, results)

    def vjp(
        self, leaves_and_cotangent: list[Any]
    ) -> tuple[Any, tuple[Tensor, ...]] | None:
        """Return all gradients; None if a dtype or shape differs.

        Args:
            leaves_and_cotangent: the leaves and the cotangent.
        """
        backward = self.backward
        if backward is None or (
            self.draws and not self.accepts_cotangent(leaves_and_cotangent[-1])
        ):
            return None  # before it draws
        enter_forward, enter_backward = (
            self.compiled.forward_backward.forward.entered,
            backward.entered,
        )
        if enter_forward is None or enter_backward is None or self.compiled.is_stale():
            return None
        if self._joint is not None:
            result = self._joint(*leaves_and_cotangent)
            return None if result is None else self.nested(result[self.count :])
        forward_results = enter_forward(*leaves_and_cotangent[:-1])
        result = (
            None
            if forward_results is None
            else enter_backward(
                *forward_results[self.count :], leaves_and_cotangent[-1]
            )
        )
        if result is None:
            return None
        self._prepare_joint()
        return self.nested(result)

    def _prepare_joint(self) -> None:
        """Compile value and gradients to one program, after some calls."""
        with suppress(Exception):  # of LLVM: two programs serve as well
            if self._calls == switch.CALLS_BEFORE_CODE // 2:
                self.compiled.forward_backward.joint.begin_code()
            if self._calls == switch.CALLS_BEFORE_CODE:
                self._joint = self.compiled.forward_backward.joint.entry
        self._calls += 1

    def accepts_cotangent(self, cotangent: Any) -> bool:
        """Tell whether :attr:`backward` takes it, and it is off the caller's graph."""
        return (
            isinstance(cotangent, Tensor)
            and cotangent.shape == self.shape
            and cotangent.dtype is self.dtype
            and (cotangent.stop_gradient or not paddle.is_grad_enabled())
        )

    def nested(self, results: Sequence[Tensor]) -> tuple[Any, tuple[Tensor, ...]]:
        """Return gradients of parameters, nested as these, and of the arguments."""
        form = self.form
        if form.order is None:
            return results[0], (*results[1:],)
        names = form.spec.names
        return dict(zip(names, results, strict=False)), (*results[len(names) :],)

    def _with_pullback(
        self, leaves: list[Any], results: list[Tensor]
    ) -> tuple[Any, CachedPullback]:
        outputs = self.compiled.captured.filled(results[: self.count])
        return self.compiled.structure.nested(outputs), self.make_pullback(
            leaves, results
        )


class CachedPullback(RecordedPullback):
    """The pullback of a cached call, fast where all gradients are requested."""

    _recording: ProgramRecording

    def __init__(self, cached: CachedVJP, recording: ProgramRecording) -> None:
        self._form, self._cached, self._recording = cached.form, cached, recording

    def _fast_gradients(self, cotangent: Tree) -> list[Tensor] | None:
        """Return all gradients; None if the cotangent needs the general path."""
        cached, backward = self._cached, self._cached.backward
        if backward is None:
            return None
        grad_enabled, enter = paddle.is_grad_enabled(), backward.entered
        if enter is not None and are_off_the_graph((cotangent,), grad_enabled):
            result = enter(*self._recording.saved(), cotangent)
            if result is not None:
                return result
        if not cached.accepts_cotangent(cotangent):
            return None
        return run(backward, [*self._recording.saved(), cotangent])

    def __call__(self, cotangent: Tree, **options: Any) -> Any:
        result = None if options else self._fast_gradients(cotangent)
        if result is None:
            return super().__call__(cotangent, **options)
        return self._cached.nested(result)
