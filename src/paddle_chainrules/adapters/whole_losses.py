"""Compile a library's loss whole: nets, derivatives, equations and conditions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

from ..paddle_side.autograd.partial_gradients import ends_the_process
from ..paddle_side.dtypes import dtype_name
from ..settings import programs_are_on
from ..transforms.as_programs.jit import jit
from ..transforms.as_programs.keys import kinds_of_leaves
from ..transforms.containers.tree import flatten_tree
from .hook_outputs import AttributeKey
from .net_calls import RTOL, NoProgram
from .output import call_watched
from .state import ObjectState

LEARNING = 3
"""Calls of a kind before it is compiled. They show which derivatives nets need."""

MAX_TRIES = 2
"""Calls in a row that may change what they read, as one does that fills a cache."""

MAX_PROGRAMS = 4
"""Most programs for one kind of calls. Each change of what it reads takes another."""

MAX_KINDS = 64
"""Most kinds of calls. Beyond that the oldest is dropped."""

MIN_COMPARED_SCALE = 1e-6
"""Smallest scale of a comparison. Smaller tensors are compared by it."""

COMPARE = "write the loss in tensor operations, or use float64 if it is ill-conditioned"
"""Remedy for a loss whose program gives another result."""

FAULTS = Exception
"""Errors of tracing or of a program. The script's own run may raise none."""


@dataclass(frozen=True, eq=False)
class Loss:
    """A library's function of losses.

    Attributes:
        fn: the function, from trees of tensors to such a tree. It runs only while it is
            compiled.
        state: returns the state of the objects that it also reads.
        params: returns the tensors that losses are differentiated with respect to.
        simplify: called if the function can't be traced. Returns whether it has changed
            the function, so that the next call is to try again.
    """

    fn: Callable[..., Any]
    state: Callable[[], ObjectState]
    params: Callable[[], Sequence[Tensor]]
    simplify: Callable[[], bool] = lambda: False


class WholeLosses:
    """Losses that :func:`.jit` compiles after some calls.

    Python code in a loss runs only while the loss is compiled. A loss that can't be
    compiled, or whose program gives another result, runs uncompiled.

    Args:
        tracing: a context in which nets return derivatives with their values.
        serves: tells whether to take the present call.
        tell: called with the reason if losses run uncompiled.

    Attributes:
        programs: how many losses ran compiled.
    """

    def __init__(
        self,
        tracing: AbstractContextManager[None],
        serves: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> None:
        self.programs = 0
        self._tracing, self._serves, self._tell = tracing, serves, tell
        self._signatures: dict[Any, _LossSignature] = {}
        self._refused: set[Loss] = set()

    def is_refused(self, loss: Loss) -> bool:
        """Tell whether a function runs uncompiled from now on."""
        return loss in self._refused

    def run(self, loss: Loss, args: Sequence[Any], natively: Callable[[], Any]) -> Any:
        """Call a function, compiled if possible.

        Args:
            loss: the same object at each call.
            args: its arguments.
            natively: computes the same as the library does.
        """
        if not (self._serves() and programs_are_on()):
            return natively()
        kind = self._signature_of(loss, args)
        kind.calls += 1
        if kind.why or kind.calls <= LEARNING:
            return natively()
        if kind.state is None or not kind.state.is_same():
            return self._compile_and_compare(kind, args, natively)
        try:
            result = self._run_compiled(kind, args)
        except FAULTS as error:
            self._note_refusal(kind, error)
            return natively()
        self.programs += 1
        return result

    def clear(self) -> None:
        """Forget all functions."""
        self._signatures.clear()
        self._refused.clear()

    def forget(self, loss: Loss) -> None:
        """Forget one function."""
        self._refused.discard(loss)
        for key in [key for key, kind in self._signatures.items() if kind.loss is loss]:
            del self._signatures[key]

    def _signature_of(self, loss: Loss, args: Sequence[Any]) -> _LossSignature:
        leaves, spec = flatten_tree(tuple(args))
        key = loss, spec, kinds_of_leaves(leaves)
        result = self._signatures.get(key)
        if result is None:
            result = self._signatures[key] = _LossSignature(loss)
            while len(self._signatures) > MAX_KINDS:
                self._signatures.pop(next(iter(self._signatures)))
        return result

    def _run_compiled(self, kind: _LossSignature, args: Sequence[Any]) -> Any:
        with self._tracing:
            return kind.program(*args)

    def _note_refusal(self, kind: _LossSignature, error: Exception) -> None:
        kind.why = str(error) or type(error).__name__
        if not any(k.state for k in self._signatures.values() if k.loss is kind.loss):
            self._refused.add(kind.loss)
        self._tell(f"losses run uncompiled: {kind.why}")

    def _compile_and_compare(
        self, kind: _LossSignature, args: Sequence[Any], run: Callable[[], Any]
    ) -> Any:
        """Compile the function, and compare the program with it.

        The function runs once uncompiled. Generators of random numbers end up where
        that run left them. A call that changes what it reads runs only then.
        """
        try:
            state = kind.loss.state()
        except FAULTS as error:
            self._note_refusal(kind, error)
            return run()
        generators_before = _generator_states()
        with _grad_inputs_collected() as inputs:
            native_result, prints = call_watched(run)
        generators_after, states = _generator_states(), paddle.get_rng_state()
        is_same = state.is_same()
        try:
            kind.tries = 0 if is_same else kind.tries + 1
            if not is_same and kind.tries < MAX_TRIES and not prints:
                return native_result
            if is_same:
                kind.recompile()
            if prints:
                raise NoProgram(
                    f"each call prints or writes to a file, by {prints}; do that in a "
                    "callback"
                )
            if generators_after != generators_before:
                raise NoProgram(
                    "they draw random numbers by NumPy or Python; draw them in a "
                    "callback"
                )
            _check_unchanged(state)
            try:
                compiled_result = self._run_compiled(kind, args)
            except FAULTS:
                if kind.loss.simplify():
                    return native_result
                raise
            if kind.program.program(*args).draws:
                raise NoProgram(
                    "they draw random numbers by Paddle; use a net without dropout"
                )
            _check_unchanged(state)
            _compare(_tensors_of_tree(native_result), _tensors_of_tree(compiled_result))
        except FAULTS as error:
            paddle.set_rng_state(states)
            self._note_refusal(kind, error)
            return native_result
        try:
            wanted = kind.loss.params()
            _compare(
                _gradients_of_sum(native_result, wanted, inputs),
                _gradients_of_sum(compiled_result, wanted),
            )
            result = self._run_compiled(kind, args)  # whose graph is whole
        except FAULTS as error:
            self._note_refusal(kind, error)
            return run()
        kind.state = state
        self.programs += 1
        return result


class _LossSignature:
    """Calls of one function with tensors of the same shapes.

    Attributes:
        loss: the function.
        calls: how many there have been.
        tries: how many of the last calls have changed what they read.
        why: the reason why they run uncompiled, if they do.
        program: the compiled function.
        state: what the compiled function has read; None before it is checked.
    """

    def __init__(self, loss: Loss) -> None:
        self.loss, self.calls, self.why, self.tries = loss, 0, "", 0
        self.program: Any = None
        self.state: ObjectState | None = None
        self._count = 0

    def recompile(self) -> None:
        """Compile for the present values of what the function reads.

        Raises:
            NoProgram: it was compiled too often.
        """
        self._count += 1
        if self._count > MAX_PROGRAMS:
            changed = "" if self.state is None else f", such as {self.state.changed()}"
            raise NoProgram(
                f"they read values that change from step to step{changed}; use a "
                "tensor for a value that changes"
            )
        self.program = jit(_UncomparedFunction(self.loss.fn), strict=True)


class _UncomparedFunction:
    """A function whose state :class:`.ObjectState` compares, and not :func:`.jit`."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn

    def __call__(self, *args: Any) -> Any:
        return self._fn(*args)


def _generator_states() -> tuple[Any, ...]:
    """Return the states of the generators of Python and NumPy."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - scripts draw from it
    return random.getstate(), kind, np.asarray(keys).tobytes(), *rest


def _check_unchanged(state: ObjectState) -> None:
    """See that a call has left alone what it reads.

    Raises:
        NoProgram: it has not.
    """
    if not state.is_same():
        raise NoProgram(
            f"each call changes what it reads, such as {state.changed()}; count and "
            "collect in a callback, since a compiled loss does neither"
        )


def mode_keys(layer: Any) -> set[AttributeKey]:
    """Return the attributes with the modes, train or eval, of a layer's sublayers."""
    sublayers = layer.sublayers(include_self=True)
    return {(id(vars(sublayer)), "training") for sublayer in sublayers}


def _tensors_of_tree(tree: Any) -> list[Tensor]:
    return [x for x in flatten_tree(tree)[0] if isinstance(x, Tensor)]


@contextmanager
def _grad_inputs_collected() -> Iterator[list[Tensor]]:
    """Collect the tensors by which ``paddle.grad`` differentiates inside."""
    inputs: list[Tensor] = []
    native = paddle.grad

    @wraps(native)
    def grad(*args: Any, **kwargs: Any) -> Any:
        inputs.extend(_tensors_of_tree([args[1:2], kwargs.get("inputs")]))
        return native(*args, **kwargs)

    paddle.grad = grad
    try:
        yield inputs
    finally:
        paddle.grad = native


def _gradients_of_sum(
    tree: Any, params: Sequence[Tensor], inputs: Sequence[Tensor] = ()
) -> list[Tensor | None]:
    """Return the gradients of the sum of a tree's tensors by the parameters.

    Where derivatives by some inputs are part of it, gradients by these are computed
    too, as ``backward`` does: kernels of second derivatives end the process if part of
    their gradients is not asked for.

    Raises:
        NoProgram: Paddle's gradients would end the process.
    """
    total = [x.sum() for x in _tensors_of_tree(tree) if not x.stop_gradient]
    if not total:
        return []
    tensors = {id(x): x for x in (*params, *inputs)}
    leaves = [x for x in tensors.values() if x.is_leaf]
    if ends_the_process(total, leaves):
        raise NoProgram(
            "Paddle's gradients of them end the process where a tensor requires "
            "gradients that the optimizer does not train; set stop_gradient = True, or "
            "make it a trainable variable"
        )
    results: list[Tensor | None] = paddle.grad(total, leaves, allow_unused=True)
    return results[: len(params)]


def _compare(native: Sequence[Tensor | None], results: Sequence[Tensor | None]) -> None:
    """Compare compiled results with uncompiled ones.

    Raises:
        NoProgram: they differ.
    """
    if len(native) != len(results):
        raise NoProgram(f"the program returns other tensors; {COMPARE}")
    with paddle.no_grad():
        for x, y in zip(native, results, strict=True):
            if x is None or y is None:
                if x is not y:
                    raise NoProgram(f"it depends on other parameters; {COMPARE}")
                continue
            scale = float(x.abs().max())
            difference = float((x - y).abs().max())
            if not difference <= RTOL.get(dtype_name(x.dtype), 0.0) * max(
                scale, MIN_COMPARED_SCALE
            ):
                raise NoProgram(
                    f"the program is off by {difference:.1e}, of {scale:.1e} at most; "
                    f"{COMPARE}"
                )
