"""Calls of one net: the first of each kind run natively, later ones by programs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from enum import Enum
from operator import attrgetter
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ..nets.derivatives.derivatives import derivatives
from ..paddle_side.dtypes import dtype_name
from ..programs.capture import OpenTrace, capture
from ..programs.capture_error import CaptureError
from ..transforms.as_programs.program_cache import ProgramCache
from ..transforms.as_programs.program_nodes import call, lookup_unchecked_program
from ..transforms.containers.tree import flatten_tree
from .chain_rule import ChainRule
from .graphs import depend
from .hook_outputs import HookOutputs
from .origins import DerivativeRequests, Entry, NetCall
from .output import call_watched
from .state import ObjectState

Native = Callable[..., Any]
Asked = frozenset[Entry]

RTOL = {"float64": 1e-6, "float32": 1e-2}
"""Largest allowed difference of a series from gradients, relative to the largest
entry."""

SMALLEST = 1e-3
"""Derivatives smaller than this part of the largest derivative count as noise."""

MAX_PROGRAMS_A_KIND = 8
"""Most programs that one kind of calls may have."""

MAX_KINDS_OF_CALLS = 64
"""Most kinds of calls that a net may have; beyond that the first kind is dropped."""

CHANGES = 3
"""Most changes of a net's attributes before its calls run natively."""


COMPUTED = "an argument is computed of another"

FAULTS = RuntimeError, SystemError
"""Errors that Paddle raises for a gradient that it does not have."""


def _add_shapes(results: list[Any], args: Iterable[Any]) -> None:
    """Add shapes of tensors and where gradients are asked for, and types of all."""
    for x in args:
        if isinstance(x, Tensor):
            results.extend(x.shape)  # += would make another list
            results.append(x.stop_gradient)
        elif isinstance(x, dict):
            results.append(len(x))
            _add_shapes(results, x.values())
        else:
            results.append(type(x))


class NoProgram(Exception):
    """The reason why calls run natively."""


class NativeReason(Enum):
    """Why calls of some shapes have run natively."""

    ALONE = "nobody asks for their derivatives"
    SETTLED = "gradients are as fast as series"
    REFUSED = "there is no program"


class CallResult(NamedTuple):
    """The result of a call, and how the call ran.

    Attributes:
        call: the call that may be differentiated, if there is one.
        why: the reason why this call and those after it run natively.
        is_alone: whether it ran natively because a program would gain nothing.
        usual: the reason for this, if it holds for all calls like it.
    """

    output: Any
    call: NetCall | None
    by_program: bool
    why: str
    is_alone: bool = False
    usual: NativeReason | None = None


class NetCalls:
    """A net, and its kinds of calls: by mode, shapes, and what requires gradients.

    Args:
        apart: names of attributes that the net's value does not depend on.
    """

    def __init__(self, layer: Any, native: Native, apart: frozenset[str]) -> None:
        self._layer, self._native = layer, native
        self._apart = {(id(vars(layer)), name) for name in apart}
        self._written = HookOutputs()
        self._kinds: dict[Any, _CallSignature] = {}
        self._state: ObjectState | None = None
        self._usual: dict[
            Any, NativeReason
        ] = {}  # of calls that run natively, by shapes
        self._changes = 0
        self._why = ""  # why no call is served
        self._look()

    def _look(self) -> None:
        """See the parts of the net, whose modes and parameters tell calls apart."""
        self._written.look()
        self._parts = self._layer.sublayers(include_self=True)
        self.params: list[Tensor] = self._layer.parameters()

    def usual(self, args: tuple[Any, ...]) -> NativeReason | None:
        """Return how earlier calls like this ran natively, None if they did not.

        It asks little, since such calls are to cost no more than they do natively.
        """
        return self._usual.get(self._shapes(args)) if self._usual else None

    def _shapes(self, args: tuple[Any, ...]) -> Any:
        results = [self._layer.training]
        _add_shapes(results, args)
        return tuple(results)

    def called(self, args: tuple[Any, ...]) -> CallResult:
        """Return the output of the call, which a program computes if there is one."""
        ran = self._called(args)
        if ran.why:
            self._usual[self._shapes(args)] = NativeReason.REFUSED
        elif ran.usual is not None:
            self._usual[self._shapes(args)] = ran.usual
        return ran

    def noted(self, args: tuple[Any, ...], output: Any) -> NetCall | None:
        """Return a call that ran as usual, and have the next one like it run anew."""
        self._usual.pop(self._shapes(args), None)
        leaves, spec = flatten_tree(args)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        return self._kind(leaves, spec).ran(output, tensors).call

    def _called(self, args: tuple[Any, ...]) -> CallResult:
        if self._why:
            return self._as_ever(args, self._why)
        leaves, spec = flatten_tree(args)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if len({id(t) for t in tensors}) != len(tensors) or not tensors:
            return self._as_ever(args, "no tensor, or one given twice")
        try:
            kind = self._kind(leaves, spec)
            alone = kind.is_left_alone()
            if not (alone or kind.why or self._is_same()):
                kind = self._kind(leaves, spec)
        except TypeError as error:
            return self._as_ever(args, f"an argument has no hash ({error})")
        if alone:
            output = self._native(self._layer, *args)
            ran = kind.ran(output, tensors)
            return ran._replace(is_alone=True, usual=kind.usual())
        if self._why:
            return self._as_ever(args, self._why)
        if not kind.why and any(not t.is_leaf for t in tensors) and depend(tensors):
            kind.why = COMPUTED
        if kind.why == COMPUTED:
            return self._as_ever(args, COMPUTED)
        if kind.why:
            return self._as_ever(args, kind.why)
        try:
            if self._state is None or not kind.has_learnt():
                output = self._watched(args)
                kind.learn(output, tensors)
                return kind.ran(output, tensors)
            return kind.by_program(tensors)
        except NoProgram as error:
            kind.why = str(error)
        return kind.ran(self._native(self._layer, *args), tensors)

    def traced(self, args: tuple[Any, ...]) -> tuple[Any, NetCall] | None:
        """Return the output and the call, operator by operator for a trace.

        None if calls like this run natively.
        """
        leaves, spec = flatten_tree(args)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        return self._kind(leaves, spec).traced(tensors)

    def _is_same(self) -> bool:
        """Tell whether the net is unchanged; if not, forget its programs."""
        if self._state is None or self._state.is_same():
            return True
        self._note_change(self._state)
        self._state = None
        self._kinds.clear()
        self._usual.clear()
        self._look()
        return False

    def _note_change(self, before: ObjectState) -> None:
        self._changes += 1
        if self._changes > CHANGES:
            self._why = (
                f"its attributes change from call to call, such as {before.changed()}; "
                "count and collect outside of the net and its transforms"
            )

    def _as_ever(self, args: tuple[Any, ...], why: str) -> CallResult:
        return CallResult(self._native(self._layer, *args), None, False, why)

    def _kind(self, leaves: list[Any], spec: Any) -> _CallSignature:
        layer = self._layer
        given = tuple(
            (tuple(leaf.shape), leaf.dtype, leaf.stop_gradient)
            if isinstance(leaf, Tensor)
            else (type(leaf), leaf)
            for leaf in leaves
        )
        modes = tuple([part.training for part in self._parts])
        frozen = tuple([p.stop_gradient for p in self.params])
        key = spec, given, modes, frozen
        result = self._kinds.get(key)
        if result is None:
            rest = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

            def run(tensors: Sequence[Tensor]) -> Any:
                filled = [*rest]
                for i, tensor in zip(places, tensors, strict=True):
                    filled[i] = tensor
                return self._native(layer, *spec.unflatten(filled))

            result = self._kinds[key] = _CallSignature(run, self._written)
            while len(self._kinds) > MAX_KINDS_OF_CALLS:
                self._kinds.pop(next(iter(self._kinds)))
        return result

    def _heard(self, args: tuple[Any, ...]) -> Any:
        """Call the net, and note whether the call prints."""
        output, by = call_watched(lambda: self._native(self._layer, *args))
        if by:
            self._why = (
                f"each call prints or writes to a file, by {by}; do that outside of "
                "the net and its transforms"
            )
        return output

    def _watched(self, args: tuple[Any, ...]) -> Any:
        """Call the net, and note whether the call changes its attributes or prints."""
        if self._state is not None:
            return self._heard(args)
        try:
            before = ObjectState(self._layer, self._apart | self._written.keys())
        except ValueError as error:
            self._why = str(error)
            raise NoProgram(self._why) from error
        add_written = self._written.watch(self._layer)
        output = self._heard(args)
        if before.is_same():
            self._state = before
            self._look()
        else:
            self._note_change(before)
            add_written()
        return output


_WANTED = attrgetter("wanted")


class _CallSignature:
    """Calls of one net with arguments of one kind.

    Attributes:
        history: the derivatives asked of the last calls.
        why: the reason why they run natively, if they do.
    """

    def __init__(
        self, run: Callable[[Sequence[Tensor]], Any], written: HookOutputs
    ) -> None:
        self._run, self._written = run, written
        self._sources: list[tuple[str, int]] = []  # of what a call leaves, by leaves
        self._places = -1  # how many were known when it was learnt
        self.history: deque[DerivativeRequests] = deque(maxlen=32)
        self.why = ""
        self._programs: dict[Asked, ProgramCache] = {}

    def is_left_alone(self) -> bool:
        """Tell whether the next call will probably gain nothing from a program.

        For its value alone a program would be faster for many points, and slower for
        few.
        """
        if self.why or not self.history or self.history[-1].unknown:
            return False
        return not (any(map(_WANTED, self.history)) and self._predicted())

    def usual(self) -> NativeReason | None:
        """Return why all calls gain nothing; None if some are asked for more."""
        if self.history[-1].is_settled:
            return NativeReason.SETTLED
        requested = any(notes.asked for notes in self.history)
        return None if requested or self.history[0].is_open else NativeReason.ALONE

    def _predicted(self) -> Asked:
        """Predict what will be asked of the next call.

        While more may still be asked of a call, its own prediction counts.
        """
        requested: list[Set[Entry]] = [notes.wanted for notes in self.history]
        count = len(requested)
        while count and self.history[count - 1].is_open:
            count -= 1
        for i in range(count, len(requested)) if count else ():
            requested[i] = predicted(requested[:i])
        return predicted(requested)

    def has_learnt(self) -> bool:
        """Tell whether the kind of outputs is known, and of what calls leave."""
        return self._places == len(self._written)

    def learn(self, output: Any, tensors: Sequence[Tensor]) -> None:
        """Learn the kind of the net's outputs, and what the call left in attributes."""
        outputs, self._spec = flatten_tree(output)
        self._count = len(outputs)
        if not all(isinstance(y, Tensor) for y in outputs):
            self.why = "it gives more than tensors"
        elif any(y is x for y in outputs for x in tensors):
            self.why = "it gives an argument as it is"
        left, self._left = flatten_tree(self._written.values())
        self._places = len(self._written)
        self._sources = [_source(y, outputs, tensors, k) for k, y in enumerate(left)]

    def ran(self, output: Any, tensors: list[Tensor]) -> CallResult:
        """Run a call natively."""
        outputs = [y for y in flatten_tree(output)[0] if isinstance(y, Tensor)]
        notes = DerivativeRequests()
        notes.unknown = self.why
        if self.history:
            last = self.history[-1]
            notes.is_settled = last.is_settled or bool(last.asked and not last.wanted)
        self.history.append(notes)
        made = NetCall(tensors, outputs, {}, notes, self.more, False)
        return CallResult(output, made, False, self.why)

    def by_program(self, tensors: list[Tensor]) -> CallResult:
        """Run a call by a program that also gives derivatives likely to be asked for.

        Raises:
            NoProgram: there can be none, or it gives something else.
        """
        self.why = self.why or self.history[-1].unknown
        if self.why:
            raise NoProgram(self.why)
        requested = self._predicted()
        rule = ChainRule(sorted(requested))
        values, known, left = self._computed(requested, tensors, rule)
        if self._sources:
            whole = {"output": values, "argument": tensors, "left": left}
            leaves = [whole[kind][k] for kind, k in self._sources]
            self._written.assign(self._left.unflatten(leaves))
        notes = DerivativeRequests()
        self.history.append(notes)
        output = self._spec.unflatten(values)
        made = NetCall(tensors, values, known, notes, self.more, True)
        rule.take(made)
        return CallResult(output, made, True, "")

    def traced(self, tensors: list[Tensor]) -> tuple[Any, NetCall] | None:
        """Return the output and the call, where a program of this kind is in use."""
        if self.why or not self.history or self._sources or self.is_left_alone():
            return None
        requested = self._predicted()
        if requested not in self._programs:
            return None
        every = self._partials(tensors, sorted(requested))
        values, results = every[: self._count], every[self._count :]
        known = dict(zip(sorted(requested), results, strict=True))
        made = NetCall(tensors, values, known, DerivativeRequests(), self.more, True)
        return self._spec.unflatten(values), made

    def more(self, tensors: Sequence[Tensor], entries: Sequence[Entry]) -> list[Tensor]:
        """Return derivatives of a call that came without them.

        Raises:
            NoProgram: as of :meth:`by_program`.
        """
        _, known, _ = self._computed(frozenset(entries), [*tensors])
        return [known[entry] for entry in entries]

    def _computed(
        self, asked: Asked, tensors: list[Tensor], rule: ChainRule | None = None
    ) -> tuple[list[Tensor], dict[Entry, Tensor], list[Tensor]]:
        """Return values, derivatives, and what a call leaves, by a program.

        Raises:
            NoProgram: there can be none, or it gives something else.
        """
        program = self._programs.get(asked)
        try:
            if program is None:
                program = self._made(asked, tensors)
            every, _ = call(program, tensors, None, known_gradients=rule)
        except (CaptureError, ValueError, TypeError, *FAULTS) as error:
            raise NoProgram(str(error)) from error
        values, results = every[: self._count], every[self._count :]
        known = dict(zip(sorted(asked), results, strict=False))
        return values, known, results[len(known) :]

    def _made(self, asked: Asked, tensors: list[Tensor]) -> ProgramCache:
        if len(self._programs) >= MAX_PROGRAMS_A_KIND:
            raise NoProgram(
                "what is asked for changes all the time; ask for it all at once"
            )
        entries = sorted(asked)
        program = ProgramCache(lambda tensors: (self._partials(tensors, entries), None))
        begun: list[OpenTrace] = []
        with self._written.marked() as marks:
            seen, _ = lookup_unchecked_program(program, tensors, None, begun)
            if seen.captured.program.draws:
                raise NoProgram("it draws random numbers; make the net without dropout")
            if any(kept is mark for kept in seen.captured.kept for mark in marks):
                raise NoProgram(
                    "it reads what the call before has left in an attribute; give it "
                    "as an argument"
                )
            result, _ = call(program, tensors, None, open_traces=begun)
        with self._written.kept():
            self._compare(tensors, result, entries)
        self._programs[asked] = program
        return program

    def _partials(
        self, tensors: list[Tensor], entries: Sequence[Entry]
    ) -> list[Tensor]:
        """Return values of all outputs, then derivatives, then what the call leaves."""
        places = sorted({place for entry in entries for place, _ in entry.by})
        if not places:
            return [*flatten_tree(self._run(tensors))[0], *self._leaves()]

        def net(params: list[Tensor], coords: list[Tensor]) -> list[Tensor]:
            given = [*params]
            for place, x in zip(places, coords, strict=True):
                given[place] = x
            return flatten_tree(self._run(given))[0]

        wanted: dict[Any, tuple[Any, ...]] = {k: (k,) for k in range(self._count)}
        for entry in entries:
            by = [(places.index(place), column) for place, column in entry.by]
            wanted[entry] = (entry.output, entry.column), *by
        results = derivatives(net, tensors, [tensors[i] for i in places], wanted)
        if self._sources:
            self._run(tensors)  # of which the program computes what is needed
        return [*results.values(), *self._leaves()]

    def _leaves(self) -> list[Tensor]:
        """Return the tensors that the last call has left in attributes."""
        return flatten_tree(self._written.values())[0]

    def _compare(
        self, tensors: list[Tensor], results: Sequence[Tensor], entries: Sequence[Entry]
    ) -> None:
        """See that gradients of the net itself are the same.

        Raises:
            NoProgram: they are not.
        """
        own = [t.detach() for t in tensors]
        for x, given in zip(own, tensors, strict=True):
            x.stop_gradient = given.stop_gradient
        try:
            expected = self._by_gradients(own, entries)
        except FAULTS:  # of which Paddle has none: by the rules of operators
            by_rules = capture(
                lambda own: self._by_gradients(own, entries), own, check=False
            )
            expected = by_rules.program(*own)
        with paddle.no_grad():
            requested = expected[: self._count + len(entries)]
            largest = max(float(y.abs().max()) for y in requested)
            for y, given in zip(expected, results, strict=True):
                scale = max(float(y.abs().max()), SMALLEST * largest)
                apart = float((y - given).abs().max())
                if not apart <= RTOL.get(dtype_name(y.dtype), 0.0) * scale:
                    raise NoProgram(
                        f"its Taylor series are {apart:.1e} from its gradients, of "
                        f"{scale:.1e} at most; its rows may depend on each other, or "
                        "float32 be too coarse for it: use float64"
                    )

    def _by_gradients(
        self, own: list[Tensor], entries: Sequence[Entry]
    ) -> list[Tensor]:
        """Do the work of :meth:`_partials`, one gradient after another."""
        outputs = flatten_tree(self._run(own))[0]
        results, left = [*outputs], self._leaves()
        for entry in entries:
            y = outputs[entry.output][:, entry.column : entry.column + 1]
            for place, column in entry.by:
                whole = paddle.grad(y, own[place], create_graph=True)[0]
                y = whole[:, column : column + 1]
            results.append(y)
        return [*results, *left]


def _source(
    y: Tensor, outputs: Sequence[Tensor], tensors: Sequence[Tensor], k: int
) -> tuple[str, int]:
    """Return where a tensor that a call leaves comes from, and its place there."""
    for kind, given in (("output", outputs), ("argument", tensors)):
        for i, x in enumerate(given):
            if x is y:
                return kind, i
    return "left", k


def predicted(history: Sequence[Set[Entry]]) -> Asked:
    """Predict the next entry: what came after the longest stretch like the last one."""
    last = history[-1]
    if history.count(last) == len(history):
        return frozenset(last)
    best, result = 0, last
    for end in range(len(history) - 1, 0, -1):
        length = 0
        while length < end and history[end - 1 - length] == history[-1 - length]:
            length += 1
        if length > best:
            best, result = length, history[end]
    return frozenset(result)
