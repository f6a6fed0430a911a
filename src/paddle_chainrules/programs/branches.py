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
from ..paddle_side.rules.derivatives.piecewise import as_booleans, is_nonzero
from .batches.batching import batched, recorded_one, replayed, without_stops
from .codegen.fused_kernels.regions import PRODUCTS
from .compiling.program import Program
from .operators.shared import ops
from .tracing.operations import Operation, Value

MAX_LIGHT_ELEMENTS = 1 << 14
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
        self._programs_by_size: dict[int, tuple[Program, Program]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_programs_by_size": {}}

    def __repr__(self) -> str:
        true_count, false_count = (len(program.ops) for program in self.programs)
        return f"Branches(no. {self._number}: {true_count} or {false_count} operators)"

    @property
    def count(self) -> int:
        """The number of results, without the random numbers."""
        return len(self.programs[0].outputs) - self.drawn[0]

    @cached_property
    def as_run(self) -> tuple[Program, ...]:
        """The programs without operators that only stop gradients."""
        return tuple(map(without_stops, self.programs))

    @cached_property
    def is_light(self) -> bool:
        """Tell whether machine code computes both sooner than Python chooses one."""
        operations = [op for program in self.as_run for op in program.ops]
        is_light = (
            sum(map(_element_count, operations)) <= MAX_LIGHT_ELEMENTS
            and not self._must_run_separately
        )
        return is_light and not any(op.is_complex for op in operations)

    @cached_property
    def _must_run_separately(self) -> bool:
        """Tell whether a branch may not end at values that select the other one."""
        return any(program.may_not_end for program in self.programs)

    def compute_both(
        self, predicate: Tensor, tensors: Sequence[Tensor]
    ) -> list[Tensor]:
        """Compute both branches and choose from their results by the predicate."""
        mask = as_booleans(predicate)
        if self.batched is None:
            true_results, false_results = (
                replayed(program, tensors) for program in self.as_run
            )
        else:
            size = predicate.shape[0]
            true_results, false_results = (
                self._results_for_samples(p, tensors, size) for p in self.as_run
            )
        return [
            _select(mask, a, b)
            for a, b in zip(true_results, false_results, strict=True)
        ]

    def __call__(self, predicate: Tensor, *tensors: Tensor) -> list[Tensor]:
        """Return the results of one branch, and the random numbers of both.

        Those of the branch that did not run are zeros.
        """
        with grad_mode(False):
            if self.batched is not None:
                return self._run_samples(predicate, tensors)
            chosen = 0 if is_nonzero(predicate) else 1
            results: list[Tensor] = self.as_run[chosen].function(*tensors)
            if not any(self.drawn):
                return results
            unused_outputs = self.programs[1 - chosen].outputs[self.count :]
            zeros = [*map(_zeros, unused_outputs)]
            drawn = [results[self.count :], zeros]
            return [*results[: self.count], *drawn[chosen], *drawn[1 - chosen]]

    def _run_samples(
        self, predicates: Tensor, tensors: Sequence[Tensor]
    ) -> list[Tensor]:
        """Return the results of all samples, each from its selected branch."""
        size = predicates.shape[0]
        if self._must_run_separately:
            return self._run_chosen_samples(predicates, tensors)
        try:
            true_results, false_results = (
                p.function(*tensors) for p in self._programs_for_size(size, tensors)
            )
        except Exception:  # at numbers of a sample that has chosen the other branch
            return self._run_chosen_samples(predicates, tensors)
        mask = as_booleans(predicates)
        return [
            _select(mask, a, b)
            for a, b in zip(true_results, false_results, strict=True)
        ]

    def _programs_for_size(
        self, size: int, tensors: Sequence[Tensor]
    ) -> tuple[Program, Program]:
        """Return both programs for this number of samples."""
        if size not in self._programs_by_size:

            def trace_batched(program: Program) -> Program:
                def fn(leaves: list[Tensor]) -> list[Tensor]:
                    return self._results_for_samples(program, leaves, size)

                return without_stops(recorded_one(fn, tensors)[0])

            true_program, false_program = self.programs
            self._programs_by_size[size] = (
                trace_batched(true_program),
                trace_batched(false_program),
            )
        return self._programs_by_size[size]

    def _run_chosen_samples(
        self, predicates: Tensor, tensors: Sequence[Tensor]
    ) -> list[Tensor]:
        """Run each branch for the samples that select it; return all results."""
        assert self.batched is not None
        mask = as_booleans(predicates)
        results = [_zeros(v, predicates.shape[0]) for v in self.programs[0].outputs]
        for program, rows in zip(self.programs, (mask, ~mask), strict=True):
            indices = paddle.nonzero(rows).flatten()
            if not (size := indices.shape[0]):
                continue
            chosen_tensors = [
                x[indices] if flag else x
                for x, flag in zip(tensors, self.batched, strict=True)
            ]
            for result, chosen_result in zip(
                results,
                self._results_for_samples(program, chosen_tensors, size),
                strict=True,
            ):
                result[indices] = chosen_result
        return results

    def _results_for_samples(
        self, program: Program, tensors: Sequence[Tensor], size: int
    ) -> list[Tensor]:
        assert self.batched is not None
        return results_for_samples(program, tensors, self.batched, size)


def results_for_samples(
    program: Program, tensors: Sequence[Tensor], flags: Sequence[bool], size: int
) -> list[Tensor]:
    """Return a program's results for all samples, each with samples along axis 0.

    Args:
        flags: which tensors have samples.
        size: the number of samples.
    """
    if any(flags):
        results, is_batched = batched(program, tensors, flags)
    else:
        results, is_batched = replayed(program, tensors), [False] * len(program.outputs)
    return [
        y if flag else ops.expand(y, [size, *y.shape])
        for y, flag in zip(results, is_batched, strict=True)
    ]


def _zeros(value: Value, *count: int) -> Tensor:
    return paddle.zeros([*count, *value.shape], getattr(paddle, value.dtype))


def _select(mask: Tensor, true_result: Tensor, false_result: Tensor) -> Tensor:
    """Select one result or the other, by one boolean or by a boolean per row."""
    rest = [1] * (true_result.ndim - 1)
    mask = mask.reshape([-1, *rest] if true_result.ndim else [])
    result: Tensor = paddle.where(mask, true_result, false_result)
    return result


def _element_count(op: Operation) -> int:
    """Estimate how many elements an operation reads or computes."""
    sizes = [math.prod(v.shape) for v in (*op.inputs, *op.outputs)]
    if op.operator.name in PRODUCTS and len(op.inputs) > 1:
        return sizes[0] * math.prod(op.inputs[1].shape[-1:])
    return max(sizes, default=0)
