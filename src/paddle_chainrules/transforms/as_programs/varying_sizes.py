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

from ..tape.effects import tensors_among
from .keys import key_of

Firsts = tuple[int, ...]
"""The sizes of tensors along their first axes, zero for those that have none."""


class VaryingSizes(NamedTuple):
    """The first sizes that change with the number of samples.

    Attributes:
        places: for each tensor, whether its first size does.
        others: the first sizes of the others.
    """

    places: tuple[bool, ...]
    others: Firsts

    @classmethod
    def between(cls, firsts: Firsts, before: Firsts) -> VaryingSizes:
        """Return the sizes that two calls do not have in common."""
        places = tuple(map(operator.ne, firsts, before))
        return cls(places, cls._others(firsts, places))

    @staticmethod
    def _others(firsts: Firsts, places: tuple[bool, ...]) -> Firsts:
        return tuple(n for n, varies in zip(firsts, places, strict=True) if not varies)

    def size(self, firsts: Firsts) -> int:
        """Return the number of samples of a call; zero if that is not one number."""
        sizes = {*compress(firsts, self.places)}
        is_like = self._others(firsts, self.places) == self.others
        return sizes.pop() if is_like and len(sizes) == 1 else 0


def apart(leaves: Sequence[Any]) -> tuple[Firsts, tuple[Any, ...]]:
    """Return the first sizes of all tensors, and a key of all else."""
    tensors = tensors_among(leaves)
    firsts = tuple(t.shape[0] if t.ndim else 0 for t in tensors)
    others = [leaf for leaf in leaves if not isinstance(leaf, Tensor)]
    places = tuple(isinstance(leaf, Tensor) for leaf in leaves)
    rest = [(id(t.dtype), t.ndim, *t.shape[1:]) for t in tensors]
    return firsts, (places, *rest, key_of(others))
