"""A choice between two functions as one operator of a program.

Both functions are programs of their own, and a call runs one of them. The gradient is
such an operator again, whose branches are the gradients of these: the branch that did
not run contributes nothing, not even NaN.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import paddle
from paddle import Tensor

from ..paddle_side.autograd.grad_mode import grad_mode
from .batches.batching import batched, recorded_one, replayed, without_stops
from .codegen.fused_kernels.regions import PRODUCTS
from .compiling.program import Program
from .operators.shared import is_zero, ops
from .tracing.operations import Operation, Value

LIGHT = 1 << 14
"""The largest number of elements for which machine code computes both branches.

The elements are those that the operators of both branches go over.
"""

_numbers = itertools.count()


class Branches:
    """Two programs with the same inputs and outputs. A call runs one of them.

    Args:
        programs: for a true and for a false predicate.
        drawn: how many of the last outputs of each program are random numbers that it
            has drawn. The backward pass needs them.
        batched: None for one predicate. With a predicate for each sample, tells which
            inputs have samples along their first axis.
        operands: how many of the first inputs always have a gradient, perhaps of zeros.
            No caller knows which branch will depend on them.
    """

    def __init__(
        self,
        programs: tuple[Program, Program],
        drawn: tuple[int, int] = (0, 0),
        batched: tuple[bool, ...] | None = None,
        operands: int = 0,
    ) -> None:
        self.programs, self.drawn, self.batched = programs, drawn, batched
        self.operands = operands
        self._number = next(_numbers)
        self._wide: dict[int, tuple[Program, Program]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_wide": {}}

    def __repr__(self) -> str:
        one, other = (len(program.ops) for program in self.programs)
        return f"Branches(no. {self._number}: {one} or {other} operators)"

    @property
    def count(self) -> int:
        """The number of results, without the random numbers."""
        return len(self.programs[0].outputs) - self.drawn[0]

    @cached_property
    def as_run(self) -> tuple[Program, ...]:
        """The programs without the places where gradients end."""
        return tuple(map(without_stops, self.programs))

    @cached_property
    def is_light(self) -> bool:
        """Tell whether machine code computes both sooner than Python chooses one."""
        rows = [op for program in self.as_run for op in program.ops]
        is_light = sum(map(_cost, rows)) <= LIGHT and not self._must_be_apart
        return is_light and not any(op.is_complex for op in rows)

    @cached_property
    def _must_be_apart(self) -> bool:
        """Tell whether one may not end at numbers that have chosen the other."""
        return any(program.may_not_end for program in self.programs)

    def both(self, predicate: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Compute both branches and choose from their results by the predicate."""
        truths = _truths(predicate)
        if self.batched is None:
            one, other = (replayed(program, tensors) for program in self.as_run)
        else:
            size = predicate.shape[0]
            one, other = (self._each(p, tensors, size) for p in self.as_run)
        return [_chosen(truths, a, b) for a, b in zip(one, other, strict=True)]

    def __call__(self, predicate: Tensor, *tensors: Tensor) -> list[Tensor]:
        """Return the results of one branch, and the random numbers of both.

        Those of the branch that did not run are zeros.
        """
        with grad_mode(False):
            if self.batched is not None:
                return self._of_samples(predicate, tensors)
            k = 0 if truth(predicate) else 1
            results: list[Tensor] = self.as_run[k].function(*tensors)
            if not any(self.drawn):
                return results
            other = self.programs[1 - k].outputs[self.count :]
            zeros = [*map(_zeros, other)]
            drawn = [results[self.count :], zeros]
            return [*results[: self.count], *drawn[k], *drawn[1 - k]]

    def _of_samples(self, chosen: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the results of all samples, each from the branch chosen for it."""
        size = chosen.shape[0]
        if self._must_be_apart:
            return self._apart(chosen, tensors)
        try:
            one, other = (p.function(*tensors) for p in self._whole(size, tensors))
        except Exception:  # at numbers of a sample that has chosen the other branch
            return self._apart(chosen, tensors)
        truths = _truths(chosen)
        return [_chosen(truths, a, b) for a, b in zip(one, other, strict=True)]

    def _whole(self, size: int, tensors: Sequence[Tensor]) -> tuple[Program, Program]:
        """Return both programs for this number of samples."""
        if size not in self._wide:

            def traced(program: Program) -> Program:
                def fn(leaves: list[Tensor]) -> list[Tensor]:
                    return self._each(program, leaves, size)

                return without_stops(recorded_one(fn, tensors)[0])

            one, other = self.programs
            self._wide[size] = traced(one), traced(other)
        return self._wide[size]

    def _apart(self, chosen: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the same results, with each branch run only where it was chosen."""
        assert self.batched is not None
        truths = _truths(chosen)
        results = [_zeros(v, chosen.shape[0]) for v in self.programs[0].outputs]
        for program, rows in zip(self.programs, (truths, ~truths), strict=True):
            places = paddle.nonzero(rows).flatten()
            if not (size := places.shape[0]):
                continue
            some = [
                x[places] if flag else x
                for x, flag in zip(tensors, self.batched, strict=True)
            ]
            for whole, part in zip(
                results, self._each(program, some, size), strict=True
            ):
                whole[places] = part
        return results

    def _each(
        self, program: Program, tensors: Sequence[Tensor], size: int
    ) -> list[Tensor]:
        """Return a program's results for all samples."""
        assert self.batched is not None
        return of_samples(program, tensors, self.batched, size)


def truth(predicate: Tensor) -> bool:
    """Tell whether a number is not zero.

    Paddle's ``bool`` tests whether it is above zero.
    """
    return bool(_truths(predicate))


def _truths(predicate: Tensor) -> Tensor:
    if predicate.dtype == paddle.bool or predicate.is_complex():
        return predicate.astype("bool")
    result: Tensor = ops.logical_not(is_zero(predicate))  # which may be machine code
    return result


def of_samples(
    program: Program, tensors: Sequence[Tensor], flags: Sequence[bool], size: int
) -> list[Tensor]:
    """Return a program's results for all samples, each with samples along axis 0.

    Args:
        flags: which tensors have samples.
        size: the number of samples.
    """
    if any(flags):
        results, differ = batched(program, tensors, flags)
    else:
        results, differ = replayed(program, tensors), [False] * len(program.outputs)
    return [
        y if flag else ops.expand(y, [size, *y.shape])
        for y, flag in zip(results, differ, strict=True)
    ]


def _zeros(value: Value, *count: int) -> Tensor:
    return paddle.zeros([*count, *value.shape], getattr(paddle, value.dtype))


def _chosen(truths: Tensor, one: Tensor, other: Tensor) -> Tensor:
    """Return one result or the other, by one truth or by a truth for each row."""
    rest = [1] * (one.ndim - 1)
    truths = truths.reshape([-1, *rest] if one.ndim else [])
    result: Tensor = paddle.where(truths, one, other)
    return result


def _cost(op: Operation) -> int:
    """Estimate how many elements an operation goes over."""
    sizes = [math.prod(v.shape) for v in (*op.inputs, *op.outputs)]
    if op.operator.name in PRODUCTS and len(op.inputs) > 1:
        return sizes[0] * math.prod(op.inputs[1].shape[-1:])
    return max(sizes, default=0)
