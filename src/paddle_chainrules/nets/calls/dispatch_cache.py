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
from ...transforms.as_programs.keys import key_of
from ...transforms.as_programs.last_call import are_off_the_graph, modes
from ...transforms.as_programs.program_cache import (
    MAX_PROGRAMS_PER_FUNCTION,
    CompiledFunction,
    ProgramCache,
)
from ...transforms.as_programs.program_recording import ProgramRecording, run
from ...transforms.containers.tree import ONE_LEAF, Tree
from ...transforms.tape.effects import flags
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
        value, buffers = self.parts(outputs)
        return value if self.buffers is None else (value, buffers)

    def parts(self, outputs: Sequence[Any]) -> tuple[Any, Any]:
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
        self._ways: dict[Any, CachedVJP] = {}
        self._last_value: LastServed | None = None
        self._last_way: LastServed | None = None

    def keep_value(self, inputs: CallInputs, result: CompiledFunction) -> None:
        """Have this program serve calls like this one."""
        self._keep(self._values, inputs, CachedValue(result))

    def keep_way(
        self, inputs: CallInputs, programs: ProgramCache, recording: ProgramRecording
    ) -> None:
        """Have this program serve calls like this one, with a backward pass."""
        self._keep(self._ways, inputs, CachedVJP(inputs, programs, recording))

    def _keep(self, known: dict[Any, Any], inputs: CallInputs, result: Any) -> None:
        params, args, kwargs = inputs.given
        order = inputs.order  # of a tree it equals the names, too
        if isinstance(order, ParamTree) or order not in (None, self._net.spec.names):
            return
        key = None if kwargs else self._key_and_leaves(params, args)[0]
        if key is not None and not (key[0] and self._net._effects.reaches):
            keep(known, key, result)

    def forward(self, params: Any, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return the output, alone in a tuple; None for a call of a new kind."""
        key, leaves = self._key_and_leaves(params, args)
        known = self._values.get(key)
        if known is None or key is None:
            return None
        self._last_value = LastServed(known, key[:STATES], key[-1], len(leaves))
        return known.value(leaves, True)

    def pullback(
        self, params: Any, args: tuple[Any, ...]
    ) -> tuple[Any, CachedPullback] | None:
        """Return output and pullback; None for a call of a new kind."""
        key, leaves = self._key_and_leaves(params, args)
        known = self._ways.get(key)
        if known is None or key is None:
            return None
        self._last_way = LastServed(known, key[:STATES], key[-1], len(leaves))
        return known.pullback(leaves)

    def last_forward(self, params: Any, args: tuple[Any, ...]) -> Sequence[Any] | None:
        """Return the output by the last call's program alone, in a sequence, or None.

        The arguments need no check, since the program looks at them.
        """
        last = self._last_value
        leaves = self._like(last, params, args)
        return None if last is None or not leaves else last.known.entered(leaves)

    def last_pullback(
        self, params: Any, args: tuple[Any, ...]
    ) -> tuple[Any, CachedPullback] | None:
        """Do as :meth:`pullback`, by the last call's program alone."""
        last = self._last_way
        leaves = self._like(last, params, args)
        return None if last is None or not leaves else last.known.entered(leaves)

    def last_vjp(
        self, params: Any, args: tuple[Any, ...], cotangent: Any
    ) -> tuple[Any, tuple[Tensor, ...]] | None:
        """Return gradients by the last call's programs; None if they do not serve."""
        last = self._last_way
        leaves = self._like(last, params, (*args, cotangent), 1)
        return None if last is None or not leaves else last.known.vjp(leaves)

    def _like(
        self, last: LastServed | None, params: Any, args: tuple[Any, ...], more: int = 0
    ) -> list[Any]:
        """Return the leaves, if the call may be like the last one but for its tensors.

        The program itself compares these.

        Args:
            more: how many of the arguments are no leaves of that call: cotangents.
        """
        if last is None or type(params) is not last.kind or is_plain() or watched():
            return []
        now = modes()
        if now != last.state:
            return []
        if type(params) is dict:
            if tuple(params) != self._net.spec.names:
                return []
            leaves = [*params.values(), *args]
        else:
            leaves = [params, *args]
        if len(leaves) != last.tensors + more:
            return []
        return leaves if are_off_the_graph(leaves, now[0]) else []

    def value(
        self, params: Any, args: tuple[Any, ...]
    ) -> tuple[CachedValue | None, list[Tensor]]:
        """Return the program kept for calls like this one, and this call's leaves."""
        key, leaves = self._key_and_leaves(params, args)
        return self._values.get(key), leaves

    def way(
        self, params: Any, args: tuple[Any, ...]
    ) -> tuple[CachedVJP | None, list[Tensor]]:
        """Return the program kept for calls like this one, with the backward pass."""
        key, leaves = self._key_and_leaves(params, args)
        return self._ways.get(key), leaves

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
    graph = paddle.is_grad_enabled()
    if graph and False in flags(leaves):
        return None
    return (graph, *key_of(leaves))


def keep(known: dict[Any, Any], key: Any, result: Any) -> None:
    """Note the programs that serve a kind of calls, up to a bound."""
    if len(known) >= MAX_PROGRAMS_PER_FUNCTION:
        known.clear()
    known[key] = result


STATES = 3
"""The first parts of a key, which tell nothing of tensors: see :meth:`_like`."""


class LastServed(NamedTuple):
    """The program that served the last call, and the state that it serves in.

    Attributes:
        known: the program.
        state: if gradients are on, if dtypes are cast, and the default dtype.
        kind: the type of the parameters.
        tensors: their number.
    """

    known: Any
    state: tuple[Any, ...]
    kind: type
    tensors: int


class CachedValue:
    """The program of the value of a kind of calls."""

    def __init__(self, result: CompiledFunction) -> None:
        self._found, self._structure = result, result.structure
        one = result.structure.buffers is None and result.structure.output is ONE_LEAF
        self._gives_one = one and result.captured.outputs == [PLACE]

    def value(
        self, leaves: list[Tensor], trusts: bool = False
    ) -> tuple[Any, ...] | None:
        """Return the output, alone in a tuple; None if the program no longer serves.

        Args:
            trusts: whether the leaves' shapes and dtypes were looked at.
        """
        result = self._found
        if result.is_stale():
            return None
        try:
            made = run(result.captured.program, leaves, trusts)
        except CaptureError:  # a shape that depends on values
            return None
        return (self._structure.nested(result.captured.filled(made)),)

    def entered(self, leaves: list[Any]) -> Sequence[Any] | None:
        """Return the output in a sequence; None if leaves are not as they were."""
        captured = self._found.captured
        enter = captured.program.entered
        if enter is None or self._found.is_stale():
            return None
        made = enter(*leaves)
        if made is None or self._gives_one:
            return made  # a list of the one output
        return (self._structure.nested(captured.filled(made)),)


class CachedVJP:
    """The programs of a kind of calls.

    Attributes:
        draws: whether a call draws random numbers.
        count: the number of outputs.
        retained_bytes: the bytes that a call keeps for the backward pass.
        back: the program of the gradients of all parameters and arguments, if the
            output is one tensor, of this ``shape`` and ``dtype``; otherwise None.
    """

    back: Program | None = None
    _joint: Callable[..., Sequence[Tensor] | None] | None = None

    def __init__(
        self, inputs: CallInputs, programs: ProgramCache, recording: ProgramRecording
    ) -> None:
        way, output = recording.compiled, recording.outputs[0]
        self._programs, self.compiled = programs, way
        self.form = inputs.form(way.structure.output)
        self.count = way.forward_backward.count
        self.draws = way.forward_backward.forward.draws
        self.retained_bytes = recording.retained_bytes()
        self._calls = 0
        structure, number = way.structure, len(inputs.leaves)
        alone = structure.output is ONE_LEAF and structure.buffers is None
        if alone and way.seeds == [0] and way.grad_leaves == [*range(number)]:
            self.shape, self.dtype = output.shape, output.dtype
            program, has = way.forward_backward.backward_program(
                (True,) * number, (True,)
            )
            self.back = program if all(has) else None

    def part(self, asked: tuple[bool, ...]) -> Program:
        """Return the program for those gradients alone that are asked for."""
        return self.compiled.forward_backward.backward_program(asked, (True,))[0]

    def made(self, leaves: list[Tensor], trusts: bool = False) -> list[Tensor] | None:
        """Return outputs and saved tensors; None if programs no longer serve."""
        if self.compiled.is_stale():
            return None
        try:
            return run(self.compiled.forward_backward.forward, leaves, trusts)
        except CaptureError:
            return None

    def recorded(self, leaves: list[Tensor], made: list[Tensor]) -> CachedPullback:
        """Return the pullback of a call that has made this."""
        recording = self._programs.recording(self.compiled, leaves, leaves, made)
        return CachedPullback(self, recording)

    def pullback(self, leaves: list[Tensor]) -> tuple[Any, CachedPullback] | None:
        """Return output and pullback; None if the programs no longer serve.

        The leaves' shapes and dtypes were looked at.
        """
        made = self.made(leaves, True)
        return None if made is None else self._with_pullback(leaves, made)

    def entered(self, leaves: list[Any]) -> tuple[Any, CachedPullback] | None:
        """Return output and pullback; None if leaves are not as they were."""
        enter = self.compiled.forward_backward.forward.entered
        if enter is None or self.compiled.is_stale():
            return None
        made = enter(*leaves)
        return None if made is None else self._with_pullback(leaves, made)

    def vjp(self, given: list[Any]) -> tuple[Any, tuple[Tensor, ...]] | None:
        """Return all gradients; None if something given is not as it was.

        Args:
            given: the leaves and the cotangent.
        """
        back = self.back
        if back is None or (self.draws and not self.fits(given[-1])):
            return None  # before it draws
        forward_backward, enter = (
            self.compiled.forward_backward.forward.entered,
            back.entered,
        )
        if forward_backward is None or enter is None or self.compiled.is_stale():
            return None
        if self._joint is not None:
            result = self._joint(*given)
            return None if result is None else self.nested(result[self.count :])
        made = forward_backward(*given[:-1])
        result = None if made is None else enter(*made[self.count :], given[-1])
        if result is None:
            return None
        self._look_for_joint()
        return self.nested(result)

    def _look_for_joint(self) -> None:
        """Have one program give value and gradients at once, after some calls."""
        with suppress(Exception):  # of LLVM: two programs serve as well
            if self._calls == switch.CALLS_BEFORE_CODE // 2:
                self.compiled.forward_backward.joint.begin_code()
            if self._calls == switch.CALLS_BEFORE_CODE:
                self._joint = self.compiled.forward_backward.joint.entry
        self._calls += 1

    def fits(self, cotangent: Any) -> bool:
        """Tell whether it is a cotangent for :attr:`back`, off the caller's graph."""
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
        self, leaves: list[Any], made: list[Tensor]
    ) -> tuple[Any, CachedPullback]:
        outputs = self.compiled.captured.filled(made[: self.count])
        return self.compiled.structure.nested(outputs), self.recorded(leaves, made)


class CachedPullback(RecordedPullback):
    """The pullback of a known call, straight where all gradients are asked for."""

    _recording: ProgramRecording

    def __init__(self, known: CachedVJP, recording: ProgramRecording) -> None:
        self._form, self._known, self._recording = known.form, known, recording

    def _straight(self, cotangent: Tree) -> list[Tensor] | None:
        """Return all gradients; None if the cotangent needs a closer look."""
        known, back = self._known, self._known.back
        if back is None:
            return None
        graph, enter = paddle.is_grad_enabled(), back.entered
        if enter is not None and are_off_the_graph((cotangent,), graph):
            result = enter(*self._recording.saved(), cotangent)
            if result is not None:
                return result
        if not known.fits(cotangent):
            return None
        return run(back, [*self._recording.saved(), cotangent])

    def __call__(self, cotangent: Tree, **how: Any) -> Any:
        result = None if how else self._straight(cotangent)
        if result is None:
            return super().__call__(cotangent, **how)
        return self._known.nested(result)
