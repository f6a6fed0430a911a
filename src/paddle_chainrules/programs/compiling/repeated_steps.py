"""A step as one function of machine code, run repeatedly on its own results."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import paddle
from paddle import Tensor

from ...paddle_side.autograd.grad_mode import grad_mode
from ...paddle_side.interception import RAW
from ...paddle_side.shared_memory import without_gaps
from ..codegen.fused_kernels.region import FIRST, NEVER, Region
from ..codegen.fused_kernels.workspace import CPU
from ..tracing.operations import Value
from .program import Program

MAX_EAGER_STEPS = 16
"""The most steps, of all loops of a program, that are not worth machine code.

A loop of up to this many steps is not worth an operator within programs either.
"""

_taken: WeakKeyDictionary[Program, int] = WeakKeyDictionary()


def are_worth_code(program: Program, count: int) -> bool:
    """Tell whether this many more steps are worth the machine code of a step."""
    _taken[program] = _taken.get(program, 0) + count
    return _taken[program] > MAX_EAGER_STEPS


def memory_of(values: Iterable[Value], *count: int) -> list[Tensor]:
    """Return an uninitialized tensor for each value.

    Args:
        count: the number of parts along a new first axis.
    """
    empty = RAW.empty
    return [empty([*count, *v.shape], getattr(paddle, v.dtype), CPU) for v in values]


class NotRepeatable(Exception):
    """Raised where a step is more or less than one function that may follow itself."""


class RepeatedStep:
    """Steps that write their results into two sets of memory alternately.

    Args:
        program: of a step. It takes the carry, the step's own inputs, and the inputs of
            all steps. It gives the next carry and the step's outputs.
        carry: tensors that the first step is given. They stay as they are.
        xs: the inputs of single steps, a part for each step along the first axis.
        held: the inputs of all steps.
        backwards: whether steps go from the last part of xs to the first.

    Raises:
        NotRepeatable: it is not one such function.
    """

    def __init__(
        self,
        program: Program,
        carry: Sequence[Tensor],
        xs: Sequence[Tensor],
        held: Sequence[Tensor] = (),
        backwards: bool = False,
    ) -> None:
        if program.draws:
            raise NotRepeatable
        try:
            made = program.as_code
        except MemoryError:  # too little for LLVM
            raise NotRepeatable from None
        if len(made.ops) != 1 or len(made.regions) != 1 or made.samples is not None:
            raise NotRepeatable
        if len(made.inputs) != len(carry) + len(xs) + len(held):
            raise NotRepeatable
        # A result for each, which is the rule: programs copy what else they give.
        ends = {*made.outputs}
        if ends != {*made.ops[0].outputs} or len(ends) < len(made.outputs):
            raise NotRepeatable
        every = [*carry, *xs, *held, *made.constants.values()]
        if not all(t.place.is_cpu_place() and 0 not in t.shape for t in every):
            raise NotRepeatable
        (region,) = made.regions
        self._region: Region = region
        self._program, self._plain = made, program
        # Of their own, since what is read may be given other memory meanwhile.
        self._xs = [without_gaps(x).detach() for x in xs]
        self._held = [without_gaps(x).detach() for x in held]
        self._count, self._backwards = len(carry), backwards
        constants = made.constants.items()
        self._constants = {v: without_gaps(t).detach() for v, t in constants}
        self._start = [without_gaps(leaf) for leaf in carry]
        values = made.inputs[: self._count]
        self._sets = [memory_of(values), memory_of(values)]
        self._now = self._start
        size = sum(each.at(0) for each in region.work)
        self._work = np.empty(size + 64, np.uint8) if not region.on_stack else None
        self._ys: list[Tensor] = []
        self._row = 0

    def steps(self, count: int) -> Iterator[int]:
        """Run this many steps, and give the number of each once it is done."""
        self._ys = memory_of(self._program.outputs[self._count :], count)
        blocks = [self._block(k) for k in range(min(3, count))]
        code, pointers = self._region.code, [ctypes.c_char_p(b[0]) for b in blocks]
        for t in range(count):
            # The first one reads what it was given, the others each other's results.
            k = 2 - t % 2 if t else 0
            row, moving = blocks[k][1], blocks[k][2]
            at = self._row_of(t, count)
            for place, base, step in moving:
                row[place] = base + at * step
            if code(pointers[k]):  # type: ignore[arg-type]
                self._by_operators(at, self._sets[k % 2])
            self._now, self._row = self._sets[k % 2], at
            yield t

    def _row_of(self, t: int, count: int) -> int:
        """Return the part of the inputs that belongs to a step."""
        return count - 1 - t if self._backwards else t

    def _block(self, k: int) -> tuple[int, Any, list[tuple[int, int, int]]]:
        """Return a block of addresses: where it is, its entries, and what moves along.

        Args:
            k: 0 for the first step, then 1 and 2 alternately.
        """
        read = self._sets[k - 1] if k else self._start
        write = self._sets[k % 2]
        at: dict[Value, tuple[int, int]] = {}
        inputs, outputs = self._program.inputs, self._program.outputs
        for value, tensor in zip(inputs, read, strict=False):
            at[value] = tensor.data_ptr(), 0
        rest = inputs[self._count :]
        for value, x in zip(rest, self._xs, strict=False):
            at[value] = x.data_ptr(), value.bytes
        for value, x in zip(rest[len(self._xs) :], self._held, strict=True):
            at[value] = x.data_ptr(), 0
        for value, tensor in self._constants.items():
            at[value] = tensor.data_ptr(), 0
        rows = zip(outputs[: self._count], write, strict=True)
        at.update((v, (t.data_ptr(), 0)) for v, t in rows)
        for value, y in zip(outputs[self._count :], self._ys, strict=True):
            at[value] = y.data_ptr(), value.bytes
        places = [at[value] for value in self._region.order]
        numbers = [0, NEVER, *(base for base, _ in places)]
        if self._work is not None:
            numbers.append(self._work.ctypes.data)
        row = (ctypes.c_int64 * len(numbers))(*numbers)
        moving = [(FIRST + i, *place) for i, place in enumerate(places) if place[1]]
        return ctypes.addressof(row), row, moving

    def _by_operators(self, row: int, into: Sequence[Tensor]) -> None:
        """Run a step by operators where code has left it: an index is out of range.

        It raises, or writes what Paddle gives.
        """
        given = [*self._now, *(x[row] for x in self._xs), *self._held]
        with grad_mode(False):
            results = self._plain(*given)
            for to, own in zip(into, results, strict=False):
                paddle.assign(own, to)
            for whole, y in zip(self._ys, results[self._count :], strict=True):
                whole[row] = y

    def copies(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return copies of the carry and of the last step's outputs.

        Nobody else writes into them.
        """
        with grad_mode(False):
            own = [leaf.clone() for leaf in self._now]
            return own, [whole[self._row].clone() for whole in self._ys]

    def result(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the last carry, and the outputs of all steps."""
        return self._now, self._ys
