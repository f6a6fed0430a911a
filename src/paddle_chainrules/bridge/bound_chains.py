"""Derivatives of chains of Linear layers, at parameters that Julia shares."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import paddle
from paddle import Tensor

from ..nets.selection import Flags, each
from ..programs import second_order
from ..programs.activation_derivatives import Derivatives
from ..programs.second_order_plans import Plan
from ..programs.weights import Weights, weights_of
from ..transforms.effects import Effects
from ..transforms.recording import record
from .bound import Bound
from .packing import Back, Packed, one_or_all, plain
from .retained_bytes import (
    STEP_BYTES,
    Meter,
    allocated,
    behind_last,
)


class SecondOrder(Bound):
    """Derivatives of a chain up to the second order, in closed form."""

    def __init__(
        self,
        plan: Plan,
        derivatives: Derivatives,
        weights: Weights,
        several: bool = False,
    ) -> None:
        self._several = several
        self._plan = plan
        self._derivatives = derivatives
        self._weights = weights

    def forward(self, x: Tensor) -> Packed:
        found = second_order.value(self._plan, self._derivatives, self._weights, x)
        return one_or_all(found, self._several)

    def pullback(self, x: Tensor) -> tuple[Packed, Back]:
        before = allocated()
        found, reverse = second_order.pullback(
            self._plan, self._derivatives, self._weights, x
        )
        behind_last.value = STEP_BYTES * len(self._weights) + allocated() - before
        nothing = (None,) * (2 * len(self._weights))
        *_, (_, last_bias) = self._weights

        def back(
            params: Flags, inputs: bool, last: bool, *cotangents: Tensor | None
        ) -> tuple[Any, ...]:
            if all(cotangent is None for cotangent in cotangents):
                return (*nothing, None)
            asked = any(each(params, len(nothing)))
            grads, x_bar = reverse(cotangents, asked, inputs)
            if grads is None:
                return (*nothing, x_bar)
            *rest, bias_bar = grads
            return (
                *rest,
                paddle.zeros_like(last_bias) if bias_bar is None else bias_bar,
                x_bar,
            )

        return one_or_all(found, self._several), back


class Formula(Bound):
    """Derivatives of a chain by a formula, differentiated by the graph it records."""

    def __init__(
        self,
        formula: Callable[..., list[Tensor]],
        weights: Weights,
        meter: Meter,
        several: bool = False,
    ) -> None:
        self._several = several
        self._formula = formula
        self._weights = weights
        self._meter = meter

    def forward(self, *args: Tensor) -> Packed:
        return one_or_all(self._formula(self._weights, *args), self._several)

    def pullback(self, *args: Tensor) -> tuple[Packed, Back]:
        values = [*chain.from_iterable(self._weights)]
        count = len(values)

        def formula(leaves: list[Tensor]) -> list[Tensor]:
            return self._formula(weights_of(leaves[:count]), *leaves[count:])

        leaves = [*values, *args]
        before = allocated()
        found, recording = record(formula, leaves, Effects(writes=False, reaches=False))
        behind_last.value = self._meter.of(recording, allocated() - before)

        def back(
            params: Flags, inputs: bool, last: bool, *cotangents: Tensor | None
        ) -> tuple[Any, ...]:
            if all(cotangent is None for cotangent in cotangents):
                return (None,) * len(leaves)
            asked = [i for i, flag in enumerate(each(params, count)) if flag]
            asked += range(count, len(leaves) if inputs else count)
            grads = recording.gradients(cotangents, asked)
            return tuple(
                paddle.zeros_like(leaf) if grad is None and i in asked else plain(grad)
                for i, (leaf, grad) in enumerate(zip(leaves, grads, strict=True))
            )

        return one_or_all(found, self._several), back
