"""Sizes of a function's arguments that change with the number of samples.

Two calls tell: what has another first size in the second is taken for samples, all else
is as large in later calls.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import compress
from typing import Any, NamedTuple

from paddle import Tensor

from ..recordings.effects import tensors_among
from .keys import key_of

FirstSizes = tuple[int, ...]
"""The sizes of tensors along their first axes, zero for those that have none."""


class VaryingSizes(NamedTuple):
    """The first sizes that change with the number of samples.

    Attributes:
        varies: for each tensor, whether its first size does.
        other_sizes: the first sizes of the others.
    """

    varies: tuple[bool, ...]
    other_sizes: FirstSizes

    @classmethod
    def between(cls, first_sizes: FirstSizes, before: FirstSizes) -> VaryingSizes:
        """Return the sizes that two calls do not have in common."""
        varies = tuple(map(operator.ne, first_sizes, before))
        return cls(varies, cls._other_sizes(first_sizes, varies))

    @staticmethod
    def _other_sizes(
        first_sizes: FirstSizes, varies_flags: tuple[bool, ...]
    ) -> FirstSizes:
        return tuple(
            n for n, varies in zip(first_sizes, varies_flags, strict=True) if not varies
        )

    def size(self, first_sizes: FirstSizes) -> int:
        """Return the number of samples of a call; zero if that is not one number."""
        sizes = {*compress(first_sizes, self.varies)}
        is_like = self._other_sizes(first_sizes, self.varies) == self.other_sizes
        return sizes.pop() if is_like and len(sizes) == 1 else 0


def split_first_sizes(leaves: Sequence[Any]) -> tuple[FirstSizes, tuple[Any, ...]]:
    """Return the first sizes of all tensors, and a key of all else."""
    tensors = tensors_among(leaves)
    first_sizes = tuple(t.shape[0] if t.ndim else 0 for t in tensors)
    others = [leaf for leaf in leaves if not isinstance(leaf, Tensor)]
    are_tensors = tuple(isinstance(leaf, Tensor) for leaf in leaves)
    tensor_kinds = [(id(t.dtype), t.ndim, *t.shape[1:]) for t in tensors]
    return first_sizes, (are_tensors, *tensor_kinds, key_of(others))
