"""A context in which a library's derivatives come with the values of its nets."""

from __future__ import annotations

import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import wraps
from typing import Any
from weakref import ref

import paddle
from paddle import Tensor
from paddle.optimizer import Optimizer

from ..nets.derivatives.derivatives import MAX_ORDER
from ..paddle_side.dtypes import casts_automatically
from ..paddle_side.listener import is_plain
from .chain_rule import (
    MOST_COLUMNS,
    CallEntries,
    Expressions,
    request_derivatives,
    width,
    widths,
)
from .graphs import is_behind
from .net_calls import FAULTS, Native, NativeReason, NetCalls, NoProgram
from .optimizer_steps import OptimizerSteps
from .origins import Entry, NetCall, Origins
from .retained import Retained
from .whole_losses import WholeLosses

BEYOND = "paddle.grad differentiates it by what its arguments are computed from"

HOOKED = "derivatives of a tensor with a hook are asked for"

UNSEEN = (
    "derivatives of a tensor that no call of a net has given run natively; call the "
    "net itself, net(x) and not net.forward(x), within the context, and give "
    "taylor_mode the nets that are not the library's own"
)

NativeCall = tuple[NativeReason, NetCalls, tuple[Any, ...], Any]
"""A call that ran natively: why, its net, its arguments and its output."""

ColumnRequest = tuple[NetCall, list[Entry]]
"""Derivatives of one column, side by side, and the call of which they are asked."""


class _ThreadMode(threading.local):
    """Tell whether a context of this thread is at work."""

    is_at_work = False


_thread_mode = _ThreadMode()


class NativeWarning(UserWarning):
    """Calls of a net that run as they would without this package."""


class TaylorMode:
    """The context of an adapter; printed, it tells how the nets' calls ran.

    The first call of each kind (of a net in its mode, with arguments of such shapes)
    runs natively, and shows which derivatives are asked for. Later calls are programs
    that compute these derivatives with the value, by Taylor series. Gradients compute
    all others, as they do natively.

    Attributes:
        programs: how many calls ran as programs.
        natively: how many calls ran natively.
        alone: how many calls ran natively because nobody asked for their derivatives.
        reasons: why some calls still run natively.
        steps: the steps of optimizers.
        losses: the losses that are compiled whole; None unless asked for.
    """

    def __init__(
        self, library: str, ignored: Iterable[str] = (), jit: bool = False
    ) -> None:
        self.programs = self.natively = self.alone = 0
        self.reasons: list[str] = []
        self._library, self._ignored = library, frozenset(ignored)
        self._nets: dict[int, NetCalls] = {}
        self._origins = Origins()
        self._expressions = Expressions()
        self._unnoted: deque[NativeCall] = deque(maxlen=Origins.MAX_CALLS)
        self._hooked: dict[int, ref[Tensor]] = {}
        self._is_busy = self._is_off = self._by_library = False
        self._thread = threading.get_ident()
        self._is_tracing = False
        self.steps = OptimizerSteps(self._is_enabled, self._warn_once)
        self.losses = (
            WholeLosses(_Tracing(self), self._is_active, self._warn_once)
            if jit
            else None
        )
        self._retained = Retained(
            self._turn_off, self._params, lambda: self.programs > 0
        )
        self._stack = ExitStack()

    def __enter__(self) -> TaylorMode:
        for owner in (paddle.Tensor, paddle.autograd):
            guarded = self._retained.guard_backward(owner.backward)
            self.replace(owner, "backward", guarded)
        register = self._noting_hooks(paddle.Tensor.register_hook)
        self.replace(paddle.Tensor, "register_hook", register)
        self.replace(paddle, "grad", self._noting_gradients(paddle.grad))
        step = self.steps.wrapped_step(Optimizer._create_optimization_pass)
        self.replace(Optimizer, "_create_optimization_pass", step)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._nets.clear()
        self.clear()
        self.steps.clear()
        if self.losses is not None:
            self.losses.clear()

    def __repr__(self) -> str:
        text = (
            f"Taylor mode of {self._library}: {self.programs} calls of nets by "
            f"programs, {self.natively} natively"
        )
        if self.alone:
            text += f", {self.alone} without derivatives"
        if self.losses is not None:
            text += f"; {self.losses.programs} losses compiled whole"
        if self.steps.programs or self.steps.natively:
            text += (
                f"; {self.steps.programs} steps of optimizers by programs, "
                f"{self.steps.natively} natively"
            )
        return "\n".join([text, *self.reasons])

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute until the context ends."""
        attributes = vars(owner)
        if name in attributes:
            self._stack.callback(setattr, owner, name, attributes[name])
        else:
            self._stack.callback(delattr, owner, name)
        setattr(owner, name, value)

    def take_calls_of(self, base: type, nets: Sequence[Any]) -> None:
        """Have calls of a library's nets, and of these, come here."""
        self._take_calls(base, lambda layer: True)
        for kind in {type(net) for net in nets if not isinstance(net, base)}:
            self._take_calls(kind, lambda layer: any(layer is net for net in nets))

    def _take_calls(self, kind: type, is_included: Callable[[Any], bool]) -> None:
        native: Native = kind.__call__

        nets, thread, ident = self._nets, self._thread, threading.get_ident

        def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs or self._is_busy or ident() != thread:
                return native(layer, *args, **kwargs)
            net = nets.get(id(layer))
            native_reason = None if net is None else net.native_reason_of(args)
            if net is not None and native_reason is not None:
                before, self._is_busy = (
                    _thread_mode.is_at_work,
                    True,
                )  # as _AtWork, but faster
                _thread_mode.is_at_work = True
                try:
                    output = native(layer, *args)
                finally:
                    self._is_busy, _thread_mode.is_at_work = False, before
                if native_reason is NativeReason.REFUSED:
                    self.natively += 1
                elif paddle.is_grad_enabled() and not is_plain():
                    self.alone += 1
                    self._unnoted.append((native_reason, net, args, output))
                return output
            if self._is_tracing and net is not None and not self._is_busy:
                return self._run_traced_call(net, native, layer, args)
            if not is_included(layer) or not self._is_active():
                return native(layer, *args)
            return self._run_call(layer, native, args)

        self.replace(kind, "__call__", call)

    def _is_active(self) -> bool:
        return (
            self._is_enabled()
            and not self._is_busy
            and paddle.is_grad_enabled()
            and not casts_automatically()
        )

    def _is_enabled(self) -> bool:
        return not (
            self._is_off
            or threading.get_ident() != self._thread
            or is_plain()
            or not paddle.in_dynamic_mode()
        )

    def _run_call(self, layer: Any, native: Native, args: tuple[Any, ...]) -> Any:
        net = self._nets.get(id(layer))
        if net is None:
            net = self._nets[id(layer)] = NetCalls(layer, native, self._ignored)
        with self._suspended():
            result = net.run(args)
        if result.why:
            self._warn_once(
                f"calls of {type(layer).__name__} run natively: {result.why}"
            )
        if result.call is not None:
            self._origins.add_outputs(result.call)
        self.programs += result.by_program
        self.alone += result.is_alone
        self.natively += not (result.by_program or result.is_alone)
        return result.output

    def _run_traced_call(
        self, net: NetCalls, native: Native, layer: Any, args: tuple[Any, ...]
    ) -> Any:
        """Run a call while a loss is compiled."""
        with self._suspended():
            result = net.run_traced(args)
            if result is None:
                return native(layer, *args)
        output, call = result
        self._origins.add_outputs(call)
        return output

    def _note_calls(self, *kinds: NativeReason) -> None:
        """Note calls of these kinds that nobody had asked anything of."""
        unnoted = [*self._unnoted]
        self._unnoted.clear()
        for entry in unnoted:
            native_reason, net, args, output = entry
            if native_reason not in kinds:
                self._unnoted.append(entry)
                continue
            call = net.note_native_call(args, output)
            if call is not None:
                self._origins.add_outputs(call)

    def _noting_hooks(self, native: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap Paddle's registration of hooks, to note the tensors that have one."""

        @wraps(native)
        def register(tensor: Tensor, hook: Any) -> Any:
            self._hooked[id(tensor)] = ref(tensor)
            return native(tensor, hook)

        return register

    def _noting_gradients(self, native: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``paddle.grad`` to note what it differentiates with a graph."""

        @wraps(native)
        def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            create_graph = (
                args[2] if len(args) > 2 else kwargs.get("create_graph", False)
            )
            at_work = _thread_mode.is_at_work
            if not create_graph or at_work or not self._is_enabled():
                return native(outputs, inputs, *args, **kwargs)
            self._note_calls(NativeReason.ALONE)
            if all(map(_is_decided, self._origins.calls())):
                return native(outputs, inputs, *args, **kwargs)
            output_list, input_list = map(_as_list, (outputs, inputs))
            param_ids = {*map(id, self._params())}
            if all(id(x) in param_ids for x in input_list):
                return native(outputs, inputs, *args, **kwargs)
            is_plain_call = not any(args[:1]) and kwargs.get("grad_outputs") is None
            requested = (
                self._column_requests(output_list, input_list)
                if is_plain_call
                else None
            )
            if requested is not None:
                for call, entries in requested:
                    higher = any(len(entry.by) > 1 for entry in entries)
                    call.notes.gains |= higher or len(entries) == 1
                return self._answer_requests(
                    lambda: native(outputs, inputs, *args, **kwargs), requested
                )
            sources = self._note_gradients(output_list, input_list)
            result = native(outputs, inputs, *args, **kwargs)
            for gradient in result if sources else ():
                if isinstance(gradient, Tensor) and not gradient.stop_gradient:
                    self._expressions.add(gradient, sources)
            return result

        return grad

    def _column_requests(
        self, outputs: Sequence[Any], inputs: Sequence[Any]
    ) -> list[ColumnRequest] | None:
        """Return what a gradient of one column of a call's results is, by arguments."""
        if len(outputs) > 1 or not are_matrices(*outputs, *inputs):
            return None
        (y,) = outputs
        origin = self._origins.origin_of(y)
        if origin is None or len(origin.entries) > 1 or self._hooked:
            return None
        if any(width(x) > MOST_COLUMNS for x in inputs):
            return None
        requested = [self._request_of(y, x, 0, [range(width(x))]) for x in inputs]
        results = [request for request in requested if request is not None]
        return results if len(results) == len(requested) else None

    def _note_gradients(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor]
    ) -> list[CallEntries]:
        """Note what gradients need of calls; return what they are computed of.

        Calls that series can't serve run natively from now on.
        """
        sources = self._expressions.calls_behind(outputs, self._origins)
        for call, entries in sources:
            columns_by_input = {
                i: n
                for i, (x, n) in enumerate(zip(call.inputs, widths(call), strict=True))
                if any(x is leaf for leaf in inputs)
            }
            if columns_by_input and not call.notes.unsupported:
                call.notes.gains |= (
                    self._by_library or sum(columns_by_input.values()) == 1
                )
                if any(self._is_hooked(o.tensor) for o in self._origins):
                    call.notes.unsupported = HOOKED
                entries.update(
                    request_derivatives(call.notes, [sorted(entries)], columns_by_input)
                    or ()
                )
        for call in self._origins.calls():
            if call.by_program:
                call.notes.gains = True  # as the calls before have
            other_inputs = [x for x in inputs if call.input_index(x) is None]
            computed = [x for x in call.inputs if not x.is_leaf]
            if (
                not call.notes.unsupported
                and any(is_behind(other_inputs, x) for x in computed)
                and any(is_behind(call.outputs, y) for y in outputs)
            ):
                call.notes.unsupported = BEYOND
        return sources

    def _is_of_a_call(self, y: Tensor) -> bool:
        """Tell whether it is computed from a call's results, or gradients of them."""
        calls = [*self._origins.calls()]
        programs = bool(calls) and all(call.by_program for call in calls)
        return (
            programs
            or any(is_behind(call.outputs, y) for call in calls)
            or bool(self._expressions.calls_behind([y], self._origins))
        )

    def _is_hooked(self, tensor: Tensor) -> bool:
        result = self._hooked.get(id(tensor))
        return result is not None and result() is tensor

    def _params(self) -> Iterator[Tensor]:
        for net in self._nets.values():
            yield from net.params

    def _warn_once(self, reason: str) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)
            warnings.warn(reason, NativeWarning, stacklevel=4)

    def _turn_off(self, reason: str) -> None:
        self._is_off = True
        self._warn_once(f"Taylor mode of {self._library} is off: {reason}")

    def clear(self) -> None:
        """Forget the tensors, as the library does."""
        self._origins.clear()
        self._expressions.clear()
        self._unnoted.clear()
        self._hooked.clear()

    def derivative(
        self,
        natively: Callable[[], Tensor],
        y: Tensor,
        x: Tensor,
        row: int,
        *columns: Sequence[int],
    ) -> Tensor:
        """Return a derivative, computed with the net's value or now by gradients.

        Args:
            natively: computes it as the library does.
            y, x: the output, of shape [n, k], and the input, [n, d].
            row: the column of y.
            columns: the columns of x, for each differentiation; the result has one for
                each of the last.
        """
        return self.derivatives(lambda: [natively()], y, [x], row, *columns)[0]

    def derivatives(
        self,
        natively: Callable[[], list[Tensor]],
        y: Tensor,
        xs: Sequence[Tensor],
        row: int,
        *columns: Sequence[int],
    ) -> list[Tensor]:
        """Return derivatives by several inputs at once."""
        is_others_trace = is_plain() and not self._is_tracing
        if self._is_busy or is_others_trace or self._thread != threading.get_ident():
            return natively()
        if self._unnoted and self._origins.origin_of(y) is None:
            self._note_calls(NativeReason.ALONE, NativeReason.SETTLED)
        requested = [self._request_of(y, x, row, columns) for x in xs]
        results = [request for request in requested if request is not None]
        if len(results) == len(requested):
            for call, _ in results:
                call.notes.gains = True
            return self._answer_requests(natively, results)
        return self.run_library(natively)

    def run_library(self, natively: Callable[[], Any]) -> Any:
        """Return what the library computes by ``paddle.grad``, as a script may, too."""
        before, self._by_library = self._by_library, True
        try:
            return natively()
        finally:
            self._by_library = before

    def _answer_requests(
        self, natively: Callable[[], list[Tensor]], requests: Sequence[ColumnRequest]
    ) -> list[Tensor]:
        """Return derivatives that came with the calls' values, or now by gradients."""
        for call, entries in requests:
            call.notes.requested.update(entries)
        outcomes = [_known_derivatives(*request) for request in requests]
        results = [derivative for derivative in outcomes if derivative is not None]
        if len(results) < len(outcomes):
            try:
                results = self._run_natively(natively)
            except FAULTS:
                series = self._run_natively(lambda: _by_series(requests))
                if series is None:
                    raise
                results = series
        for request, result in zip(requests, results, strict=True):
            self._origins.add(result, *request)
        return results

    def _run_natively(self, natively: Callable[[], list[Tensor]]) -> list[Tensor]:
        with self._suspended():  # a derivative may ask for others on its way
            return natively()

    def _suspended(self) -> _Suspended:
        return _Suspended(self)

    def _request_of(
        self, y: Tensor, x: Tensor, row: int, columns: Sequence[Sequence[int]]
    ) -> ColumnRequest | None:
        """Return a derivative's call and entries; None if no call gave ``y``."""
        origin = self._origins.origin_of(y)
        if origin is None:
            is_quiet = self.reasons or self._is_tracing
            if not is_quiet and not self._is_of_a_call(y):
                self._warn_once(UNSEEN)
            return None
        call, entries = origin.call, origin.entries
        input_index = call.input_index(x)
        if input_index is None or not 0 <= row < len(entries):
            call.notes.unsupported = "it is derived by what is none of its arguments"
            return None
        results = [entries[row]]
        for inner_columns in columns:
            if not all(0 <= c < x.shape[1] for c in inner_columns):
                return None
            results = [
                e.derivative((input_index, c)) for e in results for c in inner_columns
            ]
        if len(results[0].by) > MAX_ORDER:
            call.notes.unsupported = f"derivatives go to order {MAX_ORDER}"
            return None
        if self._hooked and call.by_program:
            self._check_hooks(call, results)
        return call, results

    def _check_hooks(self, call: NetCall, entries: Sequence[Entry]) -> None:
        """Refuse derivatives of a tensor with a hook, which gradients would call.

        Raises:
            RuntimeError: a hook would not be called.
        """
        if any(map(self._is_hooked, self._origins.ancestors(call, entries))):
            call.notes.unsupported = HOOKED
            raise RuntimeError(
                "a derivative was asked for of a tensor with a hook, which gradients "
                "pass through and Taylor series do not; ask for the derivatives before "
                "register_hook, or take the step again, which runs natively from now on"
            )


class _Tracing:
    """Have nets return derivatives with their values while a loss is compiled."""

    __slots__ = ("_mode",)

    def __init__(self, mode: TaylorMode) -> None:
        self._mode = mode

    def __enter__(self) -> None:
        self._mode._is_tracing = True

    def __exit__(self, *_: object) -> None:
        self._mode._is_tracing = False


class _Suspended:
    """Let a context see nothing meanwhile, and others no ``paddle.grad``."""

    __slots__ = ("_before", "_mode")

    def __init__(self, mode: TaylorMode) -> None:
        self._mode = mode

    def __enter__(self) -> None:
        self._before = _thread_mode.is_at_work
        self._mode._is_busy = _thread_mode.is_at_work = True

    def __exit__(self, *_: object) -> None:
        self._mode._is_busy, _thread_mode.is_at_work = False, self._before


def _is_decided(call: NetCall) -> bool:
    """Tell whether gradients of a call run natively, whatever is asked for."""
    return call.notes.is_settled or bool(call.notes.unsupported)


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else [value]


def are_matrices(*tensors: Any) -> bool:
    """Tell whether all are matrices, so that a mode may be asked for derivatives."""
    return all(isinstance(t, Tensor) and t.ndim == 2 for t in tensors)


def _by_series(requests: Sequence[ColumnRequest]) -> Any:
    """Return derivatives that Paddle has no gradients for, such as the fourth of cos.

    None if there can be no program, either.
    """
    results = []
    for call, entries in requests:
        try:
            results.append(_concat_columns(call.compute_entries(call.inputs, entries)))
        except NoProgram:
            return None
    return results


def _known_derivatives(call: NetCall, entries: Sequence[Entry]) -> Tensor | None:
    """Return derivatives that were computed with a call, side by side."""
    results = [call.derivatives.get(entry) for entry in entries]
    present = [derivative for derivative in results if derivative is not None]
    if len(present) < len(results):
        return None
    return _concat_columns(present)


def _concat_columns(columns: Sequence[Tensor]) -> Tensor:
    return columns[0] if len(columns) == 1 else paddle.concat(columns, axis=-1)
