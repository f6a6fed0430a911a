"""The arguments of operators' rules, one class for each transform."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paddle import Tensor

from ...errors import NoRule as NoRule

Series = Sequence[Any]
"""Taylor coefficients ``x[k]`` of ``x(t) = sum of x[k] t**k``; None for zero."""


class Call:
    """One call of an operator, for the rule that gives its gradients.

    Attributes:
        args: tensors and other arguments, in the canonical order.
        outputs: all tensors of the result.
        cotangents: one for each, None for zero.
        wanted: positions of the arguments whose gradients are needed.
    """

    def __init__(
        self,
        args: Sequence[Any],
        outputs: Sequence[Tensor],
        cotangents: Sequence[Tensor | None],
        wanted: frozenset[int],
    ) -> None:
        self.args, self.outputs = args, outputs
        self.cotangents, self.wanted = cotangents, wanted

    @property
    def out(self) -> Tensor:
        return self.outputs[0]

    @property
    def cotangent(self) -> Any:
        """The cotangent of the first output."""
        return self.cotangents[0]


@dataclass(frozen=True)
class JetCall:
    """One call along a curve, for the rule that gives the series of its results.

    Attributes:
        args: a :data:`Series` for each tensor, also in lists; others as they are.
        outputs: all tensors of the result, the lowest coefficients.
        order: the order of the highest coefficient.
    """

    args: Sequence[Any]
    outputs: Sequence[Tensor]
    order: int

    @property
    def out(self) -> Tensor:
        return self.outputs[0]


@dataclass(frozen=True)
class BatchCall:
    """One call for many samples at once, for the rule that gives all their results.

    Attributes:
        args: in the canonical order; a tensor that differs from sample to sample has
            them along its first axis.
        batched: positions of these arguments; of a list, all tensors or none.
        size: how many samples there are.
        shapes: of the results of one sample.
        unused: positions of the results that nobody needs; a rule may give None there.
    """

    args: Sequence[Any]
    batched: frozenset[int]
    size: int
    shapes: Sequence[tuple[int, ...]]
    unused: frozenset[int] = frozenset()

    def ndim(self, i: int) -> int:
        """Return how many dimensions argument i has for one sample."""
        return int(self.args[i].ndim) - (i in self.batched)
