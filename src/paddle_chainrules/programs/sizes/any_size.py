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

from ...settings import ANY
from ..tracing.operations import Operation, Value
from .along_samples import holds_for_any_count
from .samples import SIZED, Samples


class OperationSequence(Protocol):
    """The attributes of :class:`.program.Program` that this module uses."""

    @property
    def inputs(self) -> Sequence[Value]: ...

    @property
    def constants(self) -> dict[Value, Tensor]: ...

    @property
    def ops(self) -> Sequence[Operation]: ...

    @property
    def outputs(self) -> Sequence[Value]: ...


def infer_samples(
    program: OperationSequence,
    size: int,
    other: OperationSequence,
    other_size: int,
    most: int = ANY,
    known_varying: frozenset[int] = frozenset(),
) -> Samples | None:
    """Return the sizes that vary with the batch size in a program that serves any.

    None where it does not do the same as another for another size, or one of these is
    more than it may serve.

    Args:
        most: the largest size that it serves.
        known_varying: sizes that vary with it in the enclosing program.
    """
    if max(size, other_size) > most:
        return None
    result = _PairedValues(size, other_size, known_varying).compare_programs(
        program, other
    )
    return result and result._replace(most=most)


class _PairedValues:
    """The values of two programs that stand for one another."""

    def __init__(self, size: int, other_size: int, known: frozenset[int]) -> None:
        self._size, self._other_size = size, other_size
        self._pairs: dict[Value, Value] = {}
        self._varying = {*known}
        self._constant: set[int] = set()

    def compare_programs(
        self, first: OperationSequence, second: OperationSequence
    ) -> Samples | None:
        pairs = [(first.inputs, second.inputs), (first.outputs, second.outputs)]
        pairs.append((tuple(first.constants), tuple(second.constants)))
        if len(first.ops) != len(second.ops) or not all(
            self.is_same(*p) for p in pairs
        ):
            return None
        constants = zip(
            first.constants.values(), second.constants.values(), strict=True
        )
        if not all(is_same_tensor(*pair) for pair in constants):
            return None
        same = all(
            a.operator is b.operator
            and a.many == b.many
            and self._has_same_args(a, b)
            and self.is_same(a.outputs, b.outputs)
            for a, b in zip(first.ops, second.ops, strict=True)
        )
        if not same or not self._varying.isdisjoint(self._constant):
            return None
        varies = self._varying.__contains__
        if not all(holds_for_any_count(op, varies) for op in first.ops):
            return None
        return Samples(self._size, frozenset(self._varying))

    def _has_same_args(self, one: Operation, other: Operation) -> bool:
        if one.operator.name not in SIZED:
            return self.is_same(one.args, other.args)
        pairs = zip(one.args, other.args, strict=True)
        return all(
            self._are_same_sizes(a, b) if isinstance(a, list) else self.is_same(a, b)
            for a, b in pairs
        )

    def is_same(self, one: Any, other: Any) -> bool:
        """Tell whether two arguments are the same, except for paired values."""
        if type(one) is not type(other):
            return False
        if isinstance(one, Value):
            if one in self._pairs:
                return self._pairs[one] is other
            self._pairs[one] = other
            return one.dtype == other.dtype and self._has_same_shape(one, other)
        if isinstance(one, list | tuple):
            return len(one) == len(other) and all(map(self.is_same, one, other))
        if isinstance(one, slice):
            return all(
                self.is_same(getattr(one, end), getattr(other, end))
                for end in ("start", "stop", "step")
            )
        return bool(one == other) or (one != one and other != other)

    def _has_same_shape(self, one: Value, other: Value) -> bool:
        return self._are_same_sizes(one.shape, other.shape)

    def _are_same_sizes(self, one: Sequence[int], other: Sequence[int]) -> bool:
        """Tell whether sizes are the same, except for multiples of the batch size.

        These multiples must not be other sizes by chance.
        """
        for n, m in zip(one, other, strict=False):
            (self._constant if n == m else self._varying).add(n)
            if n != m and (n % self._size or n * self._other_size != m * self._size):
                return False
        return len(one) == len(other)


def is_same_tensor(one: Tensor, other: Tensor) -> bool:
    """Tell whether two tensors hold the same."""
    if one is other:
        return True
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return bool(np.array_equal(one.numpy(), other.numpy(), equal_nan=False))
