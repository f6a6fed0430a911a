"""Calls of one net: the first of each kind run natively, later ones by programs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from enum import Enum
from operator import attrgetter
from typing import Any, NamedTuple

import paddle
from paddle import Tensor

from ..errors import CaptureError
from ..nets.derivatives.derivatives import derivatives
from ..paddle_side.dtypes import dtype_name
from ..programs import OpenTrace, capture
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
RequestedEntries = frozenset[Entry]

RTOL = {"float64": 1e-6, "float32": 1e-2}
"""Largest allowed difference of a series from gradients, relative to the largest
entry."""

NOISE_LEVEL = 1e-3
"""Derivatives smaller than this part of the largest derivative count as noise."""

MAX_PROGRAMS_A_KIND = 8
"""Most programs that one kind of calls may have."""

MAX_KINDS_OF_CALLS = 64
"""Most kinds of calls that a net may have; beyond that the first kind is dropped."""

MAX_CHANGES = 3
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
        native_reason: the reason for this, if it holds for all calls like it.
    """

    output: Any
    call: NetCall | None
    by_program: bool
    why: str
    is_alone: bool = False
    native_reason: NativeReason | None = None


class NetCalls:
    """A net, and its kinds of calls: by mode, shapes, and what requires gradients.

    Args:
        ignored: names of attributes that the net's value does not depend on.
    """

    def __init__(self, layer: Any, native: Native, ignored: frozenset[str]) -> None:
        self._layer, self._native = layer, native
        self._ignored = {(id(vars(layer)), name) for name in ignored}
        self._hook_outputs = HookOutputs()
        self._signatures: dict[Any, _CallSignature] = {}
        self._state: ObjectState | None = None
        self._native_reasons: dict[
            Any, NativeReason
        ] = {}  # of calls that run natively, by shapes
        self._changes = 0
        self._refusal = ""  # why no call is served
        self._read_layer()

    def _read_layer(self) -> None:
        """Read the sublayers and parameters of the net, which distinguish calls."""
        self._hook_outputs.drop_stale()
        self._sublayers = self._layer.sublayers(include_self=True)
        self.params: list[Tensor] = self._layer.parameters()

    def native_reason_of(self, args: tuple[Any, ...]) -> NativeReason | None:
        """Return why earlier calls like this ran natively, None if they did not.

        It asks little, since such calls are to cost no more than they do natively.
        """
        return (
            self._native_reasons.get(self._shape_key(args))
            if self._native_reasons
            else None
        )

    def _shape_key(self, args: tuple[Any, ...]) -> Any:
        results = [self._layer.training]
        _add_shapes(results, args)
        return tuple(results)

    def run(self, args: tuple[Any, ...]) -> CallResult:
        """Return the output of the call, which a program computes if there is one."""
        result = self._run_call(args)
        if result.why:
            self._native_reasons[self._shape_key(args)] = NativeReason.REFUSED
        elif result.native_reason is not None:
            self._native_reasons[self._shape_key(args)] = result.native_reason
        return result

    def note_native_call(self, args: tuple[Any, ...], output: Any) -> NetCall | None:
        """Record a call that ran natively, and have the next one decided anew."""
        self._native_reasons.pop(self._shape_key(args), None)
        leaves, spec = flatten_tree(args)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        return self._signature_of(leaves, spec).record_native(output, tensors).call

    def _run_call(self, args: tuple[Any, ...]) -> CallResult:
        if self._refusal:
            return self._run_natively(args, self._refusal)
        leaves, spec = flatten_tree(args)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if len({id(t) for t in tensors}) != len(tensors) or not tensors:
            return self._run_natively(args, "no tensor, or one given twice")
        try:
            kind = self._signature_of(leaves, spec)
            gains_nothing = kind.gains_nothing()
            if not (gains_nothing or kind.why or self._is_same()):
                kind = self._signature_of(leaves, spec)
        except TypeError as error:
            return self._run_natively(args, f"an argument has no hash ({error})")
        if gains_nothing:
            output = self._native(self._layer, *args)
            result = kind.record_native(output, tensors)
            return result._replace(is_alone=True, native_reason=kind.native_reason())
        if self._refusal:
            return self._run_natively(args, self._refusal)
        if not kind.why and any(not t.is_leaf for t in tensors) and depend(tensors):
            kind.why = COMPUTED
        if kind.why == COMPUTED:
            return self._run_natively(args, COMPUTED)
        if kind.why:
            return self._run_natively(args, kind.why)
        try:
            if self._state is None or not kind.has_learned():
                output = self._run_noting_state(args)
                kind.learn(output, tensors)
                return kind.record_native(output, tensors)
            return kind.by_program(tensors)
        except NoProgram as error:
            kind.why = str(error)
        return kind.record_native(self._native(self._layer, *args), tensors)

    def run_traced(self, args: tuple[Any, ...]) -> tuple[Any, NetCall] | None:
        """Return the output and the call, operator by operator for a trace.

        None if calls like this run natively.
        """
        leaves, spec = flatten_tree(args)
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        return self._signature_of(leaves, spec).run_traced(tensors)

    def _is_same(self) -> bool:
        """Tell whether the net is unchanged; if not, forget its programs."""
        if self._state is None or self._state.is_same():
            return True
        self._note_change(self._state)
        self._state = None
        self._signatures.clear()
        self._native_reasons.clear()
        self._read_layer()
        return False

    def _note_change(self, before: ObjectState) -> None:
        self._changes += 1
        if self._changes > MAX_CHANGES:
            self._refusal = (
                f"its attributes change from call to call, such as {before.changed()}; "
                "count and collect outside of the net and its transforms"
            )

    def _run_natively(self, args: tuple[Any, ...], reason: str) -> CallResult:
        return CallResult(self._native(self._layer, *args), None, False, reason)

    def _signature_of(self, leaves: list[Any], spec: Any) -> _CallSignature:
        layer = self._layer
        argument_key = tuple(
            (tuple(leaf.shape), leaf.dtype, leaf.stop_gradient)
            if isinstance(leaf, Tensor)
            else (type(leaf), leaf)
            for leaf in leaves
        )
        modes = tuple([sublayer.training for sublayer in self._sublayers])
        frozen = tuple([p.stop_gradient for p in self.params])
        key = spec, argument_key, modes, frozen
        result = self._signatures.get(key)
        if result is None:
            constants = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            positions = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

            def run(tensors: Sequence[Tensor]) -> Any:
                filled = [*constants]
                for i, tensor in zip(positions, tensors, strict=True):
                    filled[i] = tensor
                return self._native(layer, *spec.unflatten(filled))

            result = self._signatures[key] = _CallSignature(run, self._hook_outputs)
            while len(self._signatures) > MAX_KINDS_OF_CALLS:
                self._signatures.pop(next(iter(self._signatures)))
        return result

    def _run_noting_output(self, args: tuple[Any, ...]) -> Any:
        """Call the net, and note whether the call prints."""
        output, printer = call_watched(lambda: self._native(self._layer, *args))
        if printer:
            self._refusal = (
                f"each call prints or writes to a file, by {printer}; do that outside "
                "of the net and its transforms"
            )
        return output

    def _run_noting_state(self, args: tuple[Any, ...]) -> Any:
        """Call the net, and note whether the call changes its attributes or prints."""
        if self._state is not None:
            return self._run_noting_output(args)
        try:
            state = ObjectState(self._layer, self._ignored | self._hook_outputs.keys())
        except ValueError as error:
            self._refusal = str(error)
            raise NoProgram(self._refusal) from error
        add_written = self._hook_outputs.watch(self._layer)
        output = self._run_noting_output(args)
        if state.is_same():
            self._state = state
            self._read_layer()
        else:
            self._note_change(state)
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
        self._run, self._hook_outputs = run, written
        self._sources: list[tuple[str, int]] = []  # of what a call leaves, by leaves
        self._learnt_count = -1  # how many were known when it was learnt
        self.history: deque[DerivativeRequests] = deque(maxlen=32)
        self.why = ""
        self._programs: dict[RequestedEntries, ProgramCache] = {}

    def gains_nothing(self) -> bool:
        """Tell whether the next call will probably gain nothing from a program.

        For its value alone a program would be faster for many points, and slower for
        few.
        """
        if self.why or not self.history or self.history[-1].unsupported:
            return False
        return not (any(map(_WANTED, self.history)) and self._predict_request())

    def native_reason(self) -> NativeReason | None:
        """Return why all calls gain nothing; None if some are asked for more."""
        if self.history[-1].is_settled:
            return NativeReason.SETTLED
        requested = any(notes.requested for notes in self.history)
        return None if requested or self.history[0].is_open else NativeReason.ALONE

    def _predict_request(self) -> RequestedEntries:
        """Predict what will be asked of the next call.

        While more may still be asked of a call, its own prediction counts.
        """
        history: list[Set[Entry]] = [notes.wanted for notes in self.history]
        count = len(history)
        while count and self.history[count - 1].is_open:
            count -= 1
        for i in range(count, len(history)) if count else ():
            history[i] = predict_next(history[:i])
        return predict_next(history)

    def has_learned(self) -> bool:
        """Tell whether the kind of outputs is known, and of what calls leave."""
        return self._learnt_count == len(self._hook_outputs)

    def learn(self, output: Any, tensors: Sequence[Tensor]) -> None:
        """Learn the kind of the net's outputs, and what the call left in attributes."""
        outputs, self._spec = flatten_tree(output)
        self._count = len(outputs)
        if not all(isinstance(y, Tensor) for y in outputs):
            self.why = "it gives more than tensors"
        elif any(y is x for y in outputs for x in tensors):
            self.why = "it gives an argument as it is"
        left, self._left = flatten_tree(self._hook_outputs.values())
        self._learnt_count = len(self._hook_outputs)
        self._sources = [
            _tensor_source(y, outputs, tensors, k) for k, y in enumerate(left)
        ]

    def record_native(self, output: Any, tensors: list[Tensor]) -> CallResult:
        """Run a call natively."""
        outputs = [y for y in flatten_tree(output)[0] if isinstance(y, Tensor)]
        notes = DerivativeRequests()
        notes.unsupported = self.why
        if self.history:
            last = self.history[-1]
            notes.is_settled = last.is_settled or bool(
                last.requested and not last.wanted
            )
        self.history.append(notes)
        call_record = NetCall(tensors, outputs, {}, notes, self.compute_entries, False)
        return CallResult(output, call_record, False, self.why)

    def by_program(self, tensors: list[Tensor]) -> CallResult:
        """Run a call by a program that also gives derivatives likely to be asked for.

        Raises:
            NoProgram: there can be none, or it gives something else.
        """
        self.why = self.why or self.history[-1].unsupported
        if self.why:
            raise NoProgram(self.why)
        requested = self._predict_request()
        rule = ChainRule(sorted(requested))
        values, known_entries, left = self._run_program(requested, tensors, rule)
        if self._sources:
            sources = {"output": values, "argument": tensors, "left": left}
            leaves = [sources[kind][k] for kind, k in self._sources]
            self._hook_outputs.assign(self._left.unflatten(leaves))
        notes = DerivativeRequests()
        self.history.append(notes)
        output = self._spec.unflatten(values)
        call_record = NetCall(
            tensors, values, known_entries, notes, self.compute_entries, True
        )
        rule.take_results(call_record)
        return CallResult(output, call_record, True, "")

    def run_traced(self, tensors: list[Tensor]) -> tuple[Any, NetCall] | None:
        """Return the output and the call, where a program of this kind is in use."""
        if self.why or not self.history or self._sources or self.gains_nothing():
            return None
        requested = self._predict_request()
        if requested not in self._programs:
            return None
        values_and_derivatives = self._values_and_derivatives(
            tensors, sorted(requested)
        )
        values, results = (
            values_and_derivatives[: self._count],
            values_and_derivatives[self._count :],
        )
        derivatives_by_entry = dict(zip(sorted(requested), results, strict=True))
        call_record = NetCall(
            tensors,
            values,
            derivatives_by_entry,
            DerivativeRequests(),
            self.compute_entries,
            True,
        )
        return self._spec.unflatten(values), call_record

    def compute_entries(
        self, tensors: Sequence[Tensor], entries: Sequence[Entry]
    ) -> list[Tensor]:
        """Return derivatives of a call that came without them.

        Raises:
            NoProgram: as of :meth:`by_program`.
        """
        _, derivatives_by_entry, _ = self._run_program(frozenset(entries), [*tensors])
        return [derivatives_by_entry[entry] for entry in entries]

    def _run_program(
        self,
        requested: RequestedEntries,
        tensors: list[Tensor],
        rule: ChainRule | None = None,
    ) -> tuple[list[Tensor], dict[Entry, Tensor], list[Tensor]]:
        """Return values, derivatives, and what a call leaves, by a program.

        Raises:
            NoProgram: there can be none, or it gives something else.
        """
        program = self._programs.get(requested)
        try:
            if program is None:
                program = self._build_program(requested, tensors)
            values_and_derivatives, _ = call(
                program, tensors, None, known_gradients=rule
            )
        except (CaptureError, ValueError, TypeError, *FAULTS) as error:
            raise NoProgram(str(error)) from error
        values, results = (
            values_and_derivatives[: self._count],
            values_and_derivatives[self._count :],
        )
        derivatives_by_entry = dict(zip(sorted(requested), results, strict=False))
        return values, derivatives_by_entry, results[len(derivatives_by_entry) :]

    def _build_program(
        self, requested: RequestedEntries, tensors: list[Tensor]
    ) -> ProgramCache:
        if len(self._programs) >= MAX_PROGRAMS_A_KIND:
            raise NoProgram(
                "what is asked for changes all the time; ask for it all at once"
            )
        entries = sorted(requested)
        program = ProgramCache(
            lambda tensors: (self._values_and_derivatives(tensors, entries), None)
        )
        open_traces: list[OpenTrace] = []
        with self._hook_outputs.replaced_by_nan() as marks:
            compiled, _ = lookup_unchecked_program(program, tensors, None, open_traces)
            if compiled.captured.program.draws:
                raise NoProgram("it draws random numbers; make the net without dropout")
            if any(
                constant is mark
                for constant in compiled.captured.outside_constants
                for mark in marks
            ):
                raise NoProgram(
                    "it reads what the call before has left in an attribute; give it "
                    "as an argument"
                )
            result, _ = call(program, tensors, None, open_traces=open_traces)
        with self._hook_outputs.preserved():
            self._check_against_gradients(tensors, result, entries)
        self._programs[requested] = program
        return program

    def _values_and_derivatives(
        self, tensors: list[Tensor], entries: Sequence[Entry]
    ) -> list[Tensor]:
        """Return values of all outputs, then derivatives, then what the call leaves."""
        inputs = sorted(
            {input_index for entry in entries for input_index, _ in entry.by}
        )
        if not inputs:
            return [*flatten_tree(self._run(tensors))[0], *self._left_tensors()]

        def net(params: list[Tensor], coords: list[Tensor]) -> list[Tensor]:
            arguments = [*params]
            for input_index, x in zip(inputs, coords, strict=True):
                arguments[input_index] = x
            return flatten_tree(self._run(arguments))[0]

        wanted: dict[Any, tuple[Any, ...]] = {k: (k,) for k in range(self._count)}
        for entry in entries:
            by = [
                (inputs.index(input_index), column) for input_index, column in entry.by
            ]
            wanted[entry] = (entry.output, entry.column), *by
        results = derivatives(net, tensors, [tensors[i] for i in inputs], wanted)
        if self._sources:
            self._run(tensors)  # of which the program computes what is needed
        return [*results.values(), *self._left_tensors()]

    def _left_tensors(self) -> list[Tensor]:
        """Return the tensors that the last call has left in attributes."""
        return flatten_tree(self._hook_outputs.values())[0]

    def _check_against_gradients(
        self, tensors: list[Tensor], results: Sequence[Tensor], entries: Sequence[Entry]
    ) -> None:
        """See that gradients of the net itself are the same.

        Raises:
            NoProgram: they are not.
        """
        copies = [t.detach() for t in tensors]
        for x, value in zip(copies, tensors, strict=True):
            x.stop_gradient = value.stop_gradient
        try:
            expected = self._derivatives_by_gradients(copies, entries)
        except FAULTS:  # of which Paddle has none: by the rules of operators
            by_rules = capture(
                lambda copies: self._derivatives_by_gradients(copies, entries),
                copies,
                check=False,
            )
            expected = by_rules.program(*copies)
        with paddle.no_grad():
            requested = expected[: self._count + len(entries)]
            largest = max(float(y.abs().max()) for y in requested)
            for y, value in zip(expected, results, strict=True):
                scale = max(float(y.abs().max()), NOISE_LEVEL * largest)
                difference = float((y - value).abs().max())
                if not difference <= RTOL.get(dtype_name(y.dtype), 0.0) * scale:
                    raise NoProgram(
                        f"its Taylor series are {difference:.1e} from its gradients, "
                        f"of {scale:.1e} at most; its rows may depend on each other, "
                        "or float32 be too coarse for it: use float64"
                    )

    def _derivatives_by_gradients(
        self, inputs: list[Tensor], entries: Sequence[Entry]
    ) -> list[Tensor]:
        """Do as :meth:`_values_and_derivatives`, one gradient after another."""
        outputs = flatten_tree(self._run(inputs))[0]
        results, left = [*outputs], self._left_tensors()
        for entry in entries:
            y = outputs[entry.output][:, entry.column : entry.column + 1]
            for input_index, column in entry.by:
                full_gradient = paddle.grad(y, inputs[input_index], create_graph=True)[
                    0
                ]
                y = full_gradient[:, column : column + 1]
            results.append(y)
        return [*results, *left]


def _tensor_source(
    y: Tensor, outputs: Sequence[Tensor], tensors: Sequence[Tensor], k: int
) -> tuple[str, int]:
    """Return where a tensor that a call leaves comes from, and its place there."""
    for kind, candidates in (("output", outputs), ("argument", tensors)):
        for i, x in enumerate(candidates):
            if x is y:
                return kind, i
    return "left", k


def predict_next(history: Sequence[Set[Entry]]) -> RequestedEntries:
    """Predict the next entry: what came after the longest stretch like the last one."""
    last = history[-1]
    if history.count(last) == len(history):
        return frozenset(last)
    longest, result = 0, last
    for end in range(len(history) - 1, 0, -1):
        length = 0
        while length < end and history[end - 1 - length] == history[-1 - length]:
            length += 1
        if length > longest:
            longest, result = length, history[end]
    return frozenset(result)
