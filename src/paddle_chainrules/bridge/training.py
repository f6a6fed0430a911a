"""Steps of training whose loss and whose rule are functions of Julia.

Julia's functions call Paddle's operators on the tensors that they are given, so that a
step is captured like a step written in Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from paddle import Tensor

from ..paddle_side.dtypes import dtype_name
from ..paddle_side.listener import not_listening
from ..paddle_side.shared_memory import without_gaps
from ..settings import loops_are_on, programs_are_on
from ..transforms.control_flow.carry import program_of
from ..transforms.control_flow.scan import Loop
from ..transforms.derivatives.value_and_grad import value_and_grad_or_none
from .code import CompiledCall, NoCode, code_of, errors_as_reasons

Loss = Callable[[Sequence[Tensor]], Tensor]
"""Function from parameters to a number."""

Rule = Callable[..., tuple[Sequence[Tensor], Sequence[Tensor]]]
"""Function from parameters, the state of an optimizer and gradients to the next
parameters and the next state. Some gradients may be None."""


class Training:
    """Many steps, some at a time.

    Args:
        loss: a function of the parameters.
        rule: the optimizer.
        params: tensors, which stay as they are.
        state: tensors, which stay as they are.
        steps: the number of steps that there will be.
    """

    def __init__(
        self,
        loss: Loss,
        rule: Rule,
        params: Sequence[Tensor],
        state: Sequence[Tensor],
        steps: int,
    ) -> None:
        def step(carry: Any, _: None) -> Any:
            params, state = carry
            value, grads = value_and_grad_or_none(loss)(params)
            params, state = rule(params, state, grads)
            return (tuple(params), tuple(state)), value

        carry = tuple(params), tuple(state)
        self._loop = Loop(step, carry, length=steps, reports=True)
        self._walk: Iterator[int] = self._loop.walk()

    @errors_as_reasons
    def code(self) -> CompiledCall:
        """Return the code of a step, from a carry to the next carry and the loss."""
        program = self._loop.program() if loops_are_on() else None
        if program is None:
            raise NoCode(
                "a step of this loop is no program; use operators that programs have"
            )
        if len(program.outputs) != len(program.inputs) + 1:
            raise NoCode("a step gives something that is no tensor; use tensors alone")
        return CompiledCall("", *code_of(program))

    def advance(self, done: int, most: int, seconds: float) -> int:
        """Take more steps, and return how many are done then.

        Args:
            done: how many steps were done before.
            most: how many steps to do at most, in all.
            seconds: the time after which it stops.
        """
        end = time.perf_counter() + seconds
        while done < most:
            done = next(self._walk) + 1
            if time.perf_counter() > end:
                break
        return done

    def now(self, done: int, before: int) -> tuple[tuple[Tensor, ...], ...]:
        """Return parameters, state, and the losses of the steps since ``before``."""
        (params, state), _ = self._loop.reported()
        return (*_contiguous(params), *_contiguous(state)), (
            without_gaps(self._loop.results_between(before, done)),
        )


class Gradients:
    """A loss and its gradients as one program.

    Args:
        loss: a function of parameters and data.
        params: how many of the tensors of a call are parameters.
    """

    def __init__(
        self, loss: Callable[[Sequence[Tensor], Sequence[Tensor]], Tensor], params: int
    ) -> None:
        def loss_and_grads(params: Sequence[Tensor], data: Sequence[Tensor]) -> Any:
            return value_and_grad_or_none(lambda values: loss(values, data))(params)

        self._jitted, self._params = program_of(loss_and_grads), params

    @errors_as_reasons
    def code(self, *tensors: Tensor) -> CompiledCall:
        """Return the code of calls like this one, which gives the loss first.

        The structure has one flag for each parameter: whether the loss depends on it.
        """
        if not (programs_are_on() and loops_are_on()):
            raise NoCode("programs or machine code are off here; turn them on for code")
        compiled = self._jitted._fixed_size_program(*self._split_params(tensors))
        captured = compiled.captured
        if any(captured.requires):
            raise NoCode("it reads a tensor that requires gradients; detach it")
        flags = captured.filled([True] * len(captured.program.outputs))
        _, grads = compiled.structure.unflatten(flags)
        compiled_code = code_of(captured.program)
        return CompiledCall(
            "", *compiled_code, " ".join(str(int(g is not None)) for g in grads)
        )

    def __call__(self, *tensors: Tensor) -> tuple[Tensor | None, ...]:
        """Return the loss, and the gradient for each parameter."""
        value, grads = self._jitted(*self._split_params(tensors))
        return value, *(None if g is None else without_gaps(g) for g in grads)

    def _split_params(
        self, tensors: tuple[Tensor, ...]
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        return tensors[: self._params], tensors[self._params :]


def facts(tensor: Tensor) -> str:
    """Return its dtype and its sizes, with spaces between."""
    return " ".join((dtype_name(tensor.dtype), *map(str, tensor.shape)))


def own(tensor: Tensor) -> Tensor:
    """Return a copy, which is a constant wherever it is used."""
    with not_listening():
        return tensor.clone()


def _contiguous(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [*map(without_gaps, tensors)]
