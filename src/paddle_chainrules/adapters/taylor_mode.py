"""A context in which a library's derivatives come with the values of its nets."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from weakref import ref

import paddle
from paddle import Tensor
from paddle.optimizer import Optimizer

from ..nets.derivatives.derivatives import MAX_ORDER
from ..paddle_side.dtypes import casts_automatically
from ..paddle_side.listener import is_plain
from .graphs import is_behind
from .net_calls import FAULTS, Native, NetCalls, NoProgram
from .optimizer_steps import OptimizerSteps
from .origins import Call, Entry, Origins
from .retained import Retained

EXPRESSION = "what is computed of its output is derived"

UNSEEN = (
    "derivatives of a tensor that no call of a net has given run as ever; call the net "
    "itself, net(x) and not net.forward(x), within the context, and give taylor_mode "
    "the nets that are not the library's own"
)


_here = threading.local()


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
    """

    def __init__(self, library: str, apart: Iterable[str] = ()) -> None:
        self.programs = self.natively = self.alone = 0
        self.reasons: list[str] = []
        self._library, self._apart = library, frozenset(apart)
        self._nets: dict[int, NetCalls] = {}
        self._origins = Origins()
        self._hooked: dict[int, ref[Tensor]] = {}
        self._busy = self._off = False
        self._thread = threading.get_ident()
        self.steps = OptimizerSteps(self._is_here, self._tell)
        self._retained = Retained(
            self._turn_off, self._params, lambda: self.programs > 0
        )
        self._stack = ExitStack()

    def __enter__(self) -> TaylorMode:
        for owner in (paddle.Tensor, paddle.autograd):
            checked = self._retained.checked(owner.backward)
            self.replace(owner, "backward", checked)
        register = self._noting_hooks(paddle.Tensor.register_hook)
        self.replace(paddle.Tensor, "register_hook", register)
        self.replace(paddle, "grad", self._noting_gradients(paddle.grad))
        made = self.steps.taken(Optimizer._create_optimization_pass)
        self.replace(Optimizer, "_create_optimization_pass", made)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._nets.clear()
        self.clear()
        self.steps.clear()

    def __repr__(self) -> str:
        told = (
            f"Taylor mode of {self._library}: {self.programs} calls of nets by "
            f"programs, {self.natively} as ever"
        )
        if self.alone:
            told += f", {self.alone} without derivatives"
        if self.steps.programs or self.steps.natively:
            told += (
                f"; {self.steps.programs} steps of optimizers by programs, "
                f"{self.steps.natively} as ever"
            )
        return "\n".join([told, *self.reasons])

    def replace(self, owner: Any, name: str, value: Any) -> None:
        """Set an attribute until the context ends."""
        held = vars(owner)
        if name in held:
            self._stack.callback(setattr, owner, name, held[name])
        else:
            self._stack.callback(delattr, owner, name)
        setattr(owner, name, value)

    def take_calls_of(self, base: type, nets: Sequence[Any]) -> None:
        """Have calls of a library's nets, and of these, come here."""
        self._take_calls(base, lambda layer: True)
        for kind in {type(net) for net in nets if not isinstance(net, base)}:
            self._take_calls(kind, lambda layer: any(layer is net for net in nets))

    def _take_calls(self, kind: type, which: Callable[[Any], bool]) -> None:
        native: Native = kind.__call__

        def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs or not which(layer) or not self._serves():
                return native(layer, *args, **kwargs)
            return self._called(layer, native, args)

        self.replace(kind, "__call__", call)

    def _serves(self) -> bool:
        return (
            self._is_here()
            and not self._busy
            and paddle.is_grad_enabled()
            and not casts_automatically()
        )

    def _is_here(self) -> bool:
        return not (
            self._off
            or threading.get_ident() != self._thread
            or is_plain()
            or not paddle.in_dynamic_mode()
        )

    def _called(self, layer: Any, native: Native, args: tuple[Any, ...]) -> Any:
        net = self._nets.get(id(layer))
        if net is None:
            net = self._nets[id(layer)] = NetCalls(layer, native, self._apart)
        with self._at_work():
            ran = net.called(args)
        if ran.why:
            self._tell(f"calls of {type(layer).__name__} run as ever: {ran.why}")
        if ran.call is not None:
            self._origins.add_outputs(ran.call)
        self.programs += ran.by_program
        self.alone += ran.is_alone
        self.natively += not (ran.by_program or ran.is_alone)
        return ran.output

    def _noting_hooks(self, native: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap Paddle's registration of hooks, to note the tensors that have one."""

        @wraps(native)
        def register(tensor: Tensor, hook: Any) -> Any:
            self._hooked[id(tensor)] = ref(tensor)
            return native(tensor, hook)

        return register

    def _noting_gradients(self, native: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap ``paddle.grad`` to note calls that it differentiates with a graph."""

        @wraps(native)
        def grad(outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            connected = args[2] if len(args) > 2 else kwargs.get("create_graph", False)
            at_work = getattr(_here, "is_at_work", False)
            if connected and not at_work and self._is_here():
                ends, starts = map(_in_list, (outputs, inputs))
                own = {*map(id, self._params())}
                if not all(id(x) in own for x in starts):
                    self._note_calls(ends, "paddle.grad differentiates it")
            return native(outputs, inputs, *args, **kwargs)

        return grad

    def _note_calls(self, tensors: Iterable[Any], why: str) -> bool:
        """Have calls of nets run natively if they are behind these tensors."""
        found = False
        for y in tensors:
            for call in self._origins.calls():
                if call.notes.unknown:
                    continue
                if isinstance(y, Tensor) and is_behind(call.outputs, y):
                    call.notes.unknown, found = why, True
        return found

    def _is_hooked(self, tensor: Tensor) -> bool:
        found = self._hooked.get(id(tensor))
        return found is not None and found() is tensor

    def _params(self) -> Iterator[Tensor]:
        for net in self._nets.values():
            yield from net.params

    def _tell(self, why: str) -> None:
        """Warn once."""
        if why not in self.reasons:
            self.reasons.append(why)
            warnings.warn(why, NativeWarning, stacklevel=4)

    def _turn_off(self, why: str) -> None:
        self._off = True
        self._tell(f"Taylor mode of {self._library} is off: {why}")

    def clear(self) -> None:
        """Forget the tensors, as the library does."""
        self._origins.clear()
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
        if self._busy or self._thread != threading.get_ident():
            return natively()
        asked = [self._asked(y, x, row, columns) for x in xs]
        for each in asked:
            if each is not None:
                each[0].notes.asked.update(each[1])
        found = [None if each is None else _known(*each) for each in asked]
        results = [part for part in found if part is not None]
        if len(results) < len(found):
            try:
                results = self._as_ever(natively)
            except FAULTS:
                series = self._as_ever(lambda: _by_series(asked))
                if series is None:
                    raise
                results = series
        for each, result in zip(asked, results, strict=True):
            if each is not None:
                self._origins.add(result, *each)
        return results

    def _as_ever(self, natively: Callable[[], list[Tensor]]) -> list[Tensor]:
        with self._at_work():  # a derivative may ask for others on its way
            return natively()

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Let this context see nothing meanwhile, and others no ``paddle.grad``."""
        before, self._busy = getattr(_here, "is_at_work", False), True
        _here.is_at_work = True
        try:
            yield
        finally:
            self._busy, _here.is_at_work = False, before

    def _asked(
        self, y: Tensor, x: Tensor, row: int, columns: Sequence[Sequence[int]]
    ) -> tuple[Call, list[Entry]] | None:
        """Return a derivative's call and entries; None if no call gave ``y``."""
        origin = self._origins.of(y)
        if origin is None:
            if not self._note_calls([y], EXPRESSION) and not self.reasons:
                self._tell(UNSEEN)
            return None
        call, entries = origin.call, origin.entries
        place = call.place(x)
        if place is None or not 0 <= row < len(entries):
            call.notes.unknown = "it is derived by what is none of its arguments"
            return None
        found = [entries[row]]
        for each in columns:
            if not all(0 <= c < x.shape[1] for c in each):
                return None
            found = [e.derivative((place, c)) for e in found for c in each]
        if len(found[0].by) > MAX_ORDER:
            call.notes.unknown = f"derivatives go to order {MAX_ORDER}"
            return None
        if self._hooked and call.by_program:
            self._check_hooks(call, found)
        return call, found

    def _check_hooks(self, call: Call, entries: Sequence[Entry]) -> None:
        """Refuse derivatives of a tensor with a hook, which gradients would call.

        Raises:
            RuntimeError: a hook would not be called.
        """
        if any(map(self._is_hooked, self._origins.behind(call, entries))):
            call.notes.unknown = "derivatives of a tensor with a hook are asked for"
            raise RuntimeError(
                "a derivative was asked for of a tensor with a hook, which gradients "
                "pass through and Taylor series do not; ask for the derivatives before "
                "register_hook, or take the step again, which runs as ever from now on"
            )


def _in_list(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else [given]


def are_matrices(*tensors: Any) -> bool:
    """Tell whether all are matrices, so that a mode may be asked for derivatives."""
    return all(isinstance(t, Tensor) and t.ndim == 2 for t in tensors)


def _by_series(asked: Sequence[tuple[Call, list[Entry]] | None]) -> Any:
    """Return derivatives that Paddle has no gradients for, such as the fourth of cos.

    None if there can be no program, either.
    """
    found = []
    for each in asked:
        if each is None:
            return None
        call, entries = each
        try:
            found.append(_side_by_side(call.more(call.inputs, entries)))
        except NoProgram:
            return None
    return found


def _known(call: Call, entries: Sequence[Entry]) -> Tensor | None:
    """Return derivatives that were computed with a call, side by side."""
    found = [call.derivatives.get(entry) for entry in entries]
    known = [part for part in found if part is not None]
    if len(known) < len(found):
        return None
    return _side_by_side(known)


def _side_by_side(columns: Sequence[Tensor]) -> Tensor:
    return columns[0] if len(columns) == 1 else paddle.concat(columns, axis=-1)
