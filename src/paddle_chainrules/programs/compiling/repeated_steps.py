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
from ...paddle_side.devices import are_on_cpu
from ...paddle_side.interception import RAW
from ...paddle_side.shared_memory import without_gaps
from ...paddle_side.workspace import CPU
from ..codegen.fused_kernels.region import FIRST, NEVER, Region
from ..tracing.operations import Value
from .program import Program

MAX_EAGER_STEPS = 16
"""The most steps, of all loops of a program, that are not worth machine code.

A loop of up to this many steps is not worth an operator within programs either.
"""

_steps_run: WeakKeyDictionary[Program, int] = WeakKeyDictionary()


def allocate_outputs(values: Iterable[Value], *count: int) -> list[Tensor]:
    """Return an uninitialized tensor for each value.

    Args:
        count: the size of a new first axis.
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
        xs: the inputs of single steps, stacked along the first axis.
        invariants: the inputs of all steps.
        backwards: whether steps go from the last row of xs to the first.

    Raises:
        NotRepeatable: it is not one such function.
    """

    MAX_EAGER_STEPS = MAX_EAGER_STEPS

    @staticmethod
    def pays(program: Program, count: int) -> bool:
        """Tell whether this many more steps are worth the machine code of a step."""
        _steps_run[program] = _steps_run.get(program, 0) + count
        return _steps_run[program] > MAX_EAGER_STEPS

    @staticmethod
    def empty_results(program: Program) -> list[Tensor]:
        """Return an uninitialized tensor for each result of a step."""
        return allocate_outputs(program.outputs)

    @classmethod
    def of(cls, *args: Any) -> RepeatedStep | None:
        """Return the repeated step of these arguments, or None if there can be none."""
        try:
            return cls(*args)
        except NotRepeatable:
            return None

    def __init__(
        self,
        program: Program,
        carry: Sequence[Tensor],
        xs: Sequence[Tensor],
        invariants: Sequence[Tensor] = (),
        backwards: bool = False,
    ) -> None:
        if program.draws:
            raise NotRepeatable
        try:
            compiled = program.as_code
        except MemoryError:  # too little for LLVM
            raise NotRepeatable from None
        if (
            len(compiled.ops) != 1
            or len(compiled.regions) != 1
            or compiled.samples is not None
        ):
            raise NotRepeatable
        if len(compiled.inputs) != len(carry) + len(xs) + len(invariants):
            raise NotRepeatable
        # A result for each, which is the rule: programs copy what else they give.
        outputs = {*compiled.outputs}
        if outputs != {*compiled.ops[0].outputs} or len(outputs) < len(
            compiled.outputs
        ):
            raise NotRepeatable
        tensors = [*carry, *xs, *invariants, *compiled.constants.values()]
        if not are_on_cpu(tensors) or any(0 in t.shape for t in tensors):
            raise NotRepeatable
        (region,) = compiled.regions
        self._region: Region = region
        self._program, self._plain = compiled, program
        # Of their own, since what is read may be given other memory meanwhile.
        self._xs = [without_gaps(x).detach() for x in xs]
        self._invariants = [without_gaps(x).detach() for x in invariants]
        self._count, self._backwards = len(carry), backwards
        constants = compiled.constants.items()
        self._constants = {v: without_gaps(t).detach() for v, t in constants}
        self._first_carry = [without_gaps(leaf) for leaf in carry]
        values = compiled.inputs[: self._count]
        self._carry_buffers = [allocate_outputs(values), allocate_outputs(values)]
        self._carry = self._first_carry
        size = sum(buffer_size.at(0) for buffer_size in region.work)
        self._scratch = np.empty(size + 64, np.uint8) if not region.on_stack else None
        self._ys: list[Tensor] = []
        self._last_row = 0

    def run_steps(self, count: int) -> Iterator[int]:
        """Run this many steps, and give the number of each once it is done."""
        self._ys = allocate_outputs(self._program.outputs[self._count :], count)
        blocks = [self._address_block(k) for k in range(min(3, count))]
        code, pointers = self._region.code, [ctypes.c_char_p(b[0]) for b in blocks]
        for t in range(count):
            # The first one reads the first carry, the others each other's results.
            k = 2 - t % 2 if t else 0
            slots, moving = blocks[k][1], blocks[k][2]
            row_index = self._row_index(t, count)
            for slot, base, stride in moving:
                slots[slot] = base + row_index * stride
            if code(pointers[k]):  # type: ignore[arg-type]
                self._run_by_operators(row_index, self._carry_buffers[k % 2])
            self._carry, self._last_row = self._carry_buffers[k % 2], row_index
            yield t

    def _row_index(self, t: int, count: int) -> int:
        """Return the row of the stacked inputs and outputs that belongs to a step."""
        return count - 1 - t if self._backwards else t

    def _address_block(self, k: int) -> tuple[int, Any, list[tuple[int, int, int]]]:
        """Return the arguments of the machine code: a block of addresses.

        Args:
            k: 0 for the first step, then 1 and 2 alternately.

        Returns:
            The address of the block, the block, and for each entry that moves from row
            to row its slot, base address and stride.
        """
        carry_in = self._carry_buffers[k - 1] if k else self._first_carry
        carry_out = self._carry_buffers[k % 2]
        address_and_stride: dict[Value, tuple[int, int]] = {}
        inputs, outputs = self._program.inputs, self._program.outputs
        for value, tensor in zip(inputs, carry_in, strict=False):
            address_and_stride[value] = tensor.data_ptr(), 0
        other_inputs = inputs[self._count :]
        for value, x in zip(other_inputs, self._xs, strict=False):
            address_and_stride[value] = x.data_ptr(), value.bytes
        for value, x in zip(
            other_inputs[len(self._xs) :], self._invariants, strict=True
        ):
            address_and_stride[value] = x.data_ptr(), 0
        for value, tensor in self._constants.items():
            address_and_stride[value] = tensor.data_ptr(), 0
        next_carry = zip(outputs[: self._count], carry_out, strict=True)
        address_and_stride.update((v, (t.data_ptr(), 0)) for v, t in next_carry)
        for value, y in zip(outputs[self._count :], self._ys, strict=True):
            address_and_stride[value] = y.data_ptr(), value.bytes
        addresses = [address_and_stride[value] for value in self._region.order]
        entries = [0, NEVER, *(base for base, _ in addresses)]
        if self._scratch is not None:
            entries.append(self._scratch.ctypes.data)
        block = (ctypes.c_int64 * len(entries))(*entries)
        moving = [
            (FIRST + i, *address) for i, address in enumerate(addresses) if address[1]
        ]
        return ctypes.addressof(block), block, moving

    def _run_by_operators(self, row: int, targets: Sequence[Tensor]) -> None:
        """Run a step by operators where code has left it: an index is out of range.

        It raises, or writes what Paddle gives.
        """
        inputs = [*self._carry, *(x[row] for x in self._xs), *self._invariants]
        with grad_mode(False):
            results = self._plain(*inputs)
            for target, value in zip(targets, results, strict=False):
                paddle.assign(value, target)
            for stacked, y in zip(self._ys, results[self._count :], strict=True):
                stacked[row] = y

    def copies(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return copies of the carry and of the last step's outputs.

        Nobody else writes into them.
        """
        with grad_mode(False):
            carry = [leaf.clone() for leaf in self._carry]
            return carry, [stacked[self._last_row].clone() for stacked in self._ys]

    def result(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the last carry, and the outputs of all steps."""
        return self._carry, self._ys
