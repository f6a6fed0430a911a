"""Tests whether a program captured for one batch size serves any size.

Two captures, for two sizes, show it. Their operations and the numbers in these must be
the same. In one of them, the size and its multiples must mean nothing else. Then the
program is for any size. A function that decides by the size is not such a program, and
the caller must know that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from paddle import Tensor

from ..tracing.operations import Operation, Value
from .along_samples import holds
from .samples import ANY, SIZED, Samples


class OperationSequence(Protocol):
    """The part of :class:`.program.Program` that this uses: operations in order."""

    @property
    def inputs(self) -> Sequence[Value]: ...

    @property
    def constants(self) -> dict[Value, Tensor]: ...

    @property
    def ops(self) -> Sequence[Operation]: ...

    @property
    def outputs(self) -> Sequence[Value]: ...


def samples_of(
    program: OperationSequence,
    size: int,
    other: OperationSequence,
    its_size: int,
    most: int = ANY,
    known: frozenset[int] = frozenset(),
) -> Samples | None:
    """Return what varies with the size in a program for one size that serves any.

    None where it does not do the same as another for another size, or one of these is
    more than it may serve.

    Args:
        most: the largest size that it serves.
        known: sizes that vary with it in the larger program that it is a part of.
    """
    if max(size, its_size) > most:
        return None
    result = _Pairs(size, its_size, known).of_programs(program, other)
    return result and result._replace(most=most)


class _Pairs:
    """The values of two programs that stand for one another."""

    def __init__(self, size: int, its_size: int, known: frozenset[int]) -> None:
        self._size, self._its_size = size, its_size
        self._pairs: dict[Value, Value] = {}
        self._varying = {*known}
        self._constant: set[int] = set()

    def of_programs(
        self, one: OperationSequence, other: OperationSequence
    ) -> Samples | None:
        results = [(one.inputs, other.inputs), (one.outputs, other.outputs)]
        results.append((tuple(one.constants), tuple(other.constants)))
        if len(one.ops) != len(other.ops) or not all(self.same(*p) for p in results):
            return None
        constants = zip(one.constants.values(), other.constants.values(), strict=True)
        if not all(is_same_tensor(*pair) for pair in constants):
            return None
        same = all(
            a.operator is b.operator
            and a.many == b.many
            and self._same_arguments(a, b)
            and self.same(a.outputs, b.outputs)
            for a, b in zip(one.ops, other.ops, strict=True)
        )
        if not same or not self._varying.isdisjoint(self._constant):
            return None
        varies = self._varying.__contains__
        if not all(holds(op, varies) for op in one.ops):
            return None
        return Samples(self._size, frozenset(self._varying))

    def _same_arguments(self, one: Operation, other: Operation) -> bool:
        if one.operator.name not in SIZED:
            return self.same(one.args, other.args)
        pairs = zip(one.args, other.args, strict=True)
        return all(
            self._same_sizes(a, b) if isinstance(a, list) else self.same(a, b)
            for a, b in pairs
        )

    def same(self, one: Any, other: Any) -> bool:
        """Tell whether two arguments are the same, except for paired values."""
        if type(one) is not type(other):
            return False
        if isinstance(one, Value):
            if one in self._pairs:
                return self._pairs[one] is other
            self._pairs[one] = other
            return one.dtype == other.dtype and self._same_shape(one, other)
        if isinstance(one, list | tuple):
            return len(one) == len(other) and all(map(self.same, one, other))
        if isinstance(one, slice):
            return all(
                self.same(getattr(one, end), getattr(other, end))
                for end in ("start", "stop", "step")
            )
        return bool(one == other) or (one != one and other != other)

    def _same_shape(self, one: Value, other: Value) -> bool:
        return self._same_sizes(one.shape, other.shape)

    def _same_sizes(self, one: Sequence[int], other: Sequence[int]) -> bool:
        """Tell whether sizes are the same, except for multiples of the batch size.

        These multiples must not be other sizes by chance.
        """
        for n, m in zip(one, other, strict=False):
            (self._constant if n == m else self._varying).add(n)
            if n != m and (n % self._size or n * self._its_size != m * self._size):
                return False
        return len(one) == len(other)


def is_same_tensor(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors hold the same."""
    if one is other:
        return True
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(np.array_equal(one.numpy(), other.numpy(), equal_nan=False))
